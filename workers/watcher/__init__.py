"""The watcher role: follows every node's kernel log and reports faults within a second."""
