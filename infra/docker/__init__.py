"""The recipe of Hotspare's container image; `hotspare manifests DIR` writes it."""
