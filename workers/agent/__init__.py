"""The agent: follows the kernel log of the node that it runs on and reports faults to the intake."""
