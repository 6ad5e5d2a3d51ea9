"""Training jobs: one adapter per job system behind one protocol, so that recovery reads the same everywhere."""
