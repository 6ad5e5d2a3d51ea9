"""Encryption of everything that Temporal keeps of a workflow, as an option, and the server through which people read it."""
