"""The documents of Run Command by which Hotspare reaches nodes (access.kind = "ssm")."""
