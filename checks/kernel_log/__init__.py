"""Reads fault lines of the kernel log, in every prefix and driver format that is met, and folds bursts into single events."""

from checks.kernel_log.bursts import Burst, fold
from checks.kernel_log.cursor import Cursor, unread
from checks.kernel_log.reader import parse_all, parse_line, read_lines, read_stream

__all__ = ["Burst", "Cursor", "fold", "parse_all", "parse_line", "read_lines", "read_stream", "unread"]
