"""A real Kubernetes control plane for the lab and the tests: binaries built from Go modules, started on loopback."""
