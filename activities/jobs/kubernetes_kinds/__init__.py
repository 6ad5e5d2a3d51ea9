"""What differs between kinds of Kubernetes workloads, one module a kind, behind the protocol in `workload.py`."""
