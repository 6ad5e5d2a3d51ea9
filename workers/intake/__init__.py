"""The HTTP door through which other monitors report faults."""
