"""Manifests that Hotspare needs in a Kubernetes cluster; `hotspare manifests DIR` writes them."""
