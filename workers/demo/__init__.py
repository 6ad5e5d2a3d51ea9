"""The demonstration: three faults on a lab cluster, healed by the real worker, judged by what can be seen from outside."""
