"""From lines of any kernel log to fault events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from checks.kernel_log.envelope import open_line
from checks.kernel_log.host_lines import WORDS, parse_host, probed_gpu
from checks.kernel_log.nvidia_lines import FAULT_WORD, parse_nvidia
from checks.model import KernelEvent


def parse_line(line: str, last_probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the fault event of one line, None for every other line.

    Companion lines of an SXid come back with `companion` set: they are evidence, not a fault of their own.
    """
    if not _may_be_fault(line):
        return None
    for message in open_line(line):
        event = parse_nvidia(message) or parse_host(message, last_probed_gpu)
        if event:
            return event
    return None


_WORDS = (FAULT_WORD, *WORDS)


def _may_be_fault(line: str) -> bool:
    """Say quickly that most lines are no fault. In journald's JSON a message with odd bytes is a list of numbers."""
    return any(map(line.__contains__, _WORDS)) or ('"MESSAGE"' in line and "[" in line)


def read_lines(lines: Iterable[str]) -> Iterator[KernelEvent]:
    """Yield the fault events of a log, in its order. Remembers what one event spreads over several lines."""
    last_probed_gpu = ""
    for line in lines:
        event = parse_line(line, last_probed_gpu)
        if event:
            yield event
        elif "NVRM: The NVIDIA GPU" in line:
            last_probed_gpu = probed_gpu(line)
