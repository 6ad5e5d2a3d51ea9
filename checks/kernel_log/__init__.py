"""Reads fault lines of the kernel log, in every prefix and driver format that is met, and folds bursts into single events."""

from checks.kernel_log.bursts import Burst, fold
from checks.kernel_log.reader import parse_line, read_lines

__all__ = ["Burst", "fold", "parse_line", "read_lines"]
