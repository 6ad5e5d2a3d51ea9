"""Probes: short, passive looks at a node. Each reads one thing and says OK, WARN, CRITICAL or UNKNOWN."""
