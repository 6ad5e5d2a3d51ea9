"""Everything Hotspare does to the world outside: one module per outside system, no cloud or SSH library imported here."""
