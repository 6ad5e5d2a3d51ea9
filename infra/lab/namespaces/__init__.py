"""Real nodes in network namespaces: OpenSSH in each, a switch between them, Open MPI over it, links made slow by the kernel."""
