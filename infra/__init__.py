"""What Hotspare runs on and beside: manifests, units, and the lab."""
