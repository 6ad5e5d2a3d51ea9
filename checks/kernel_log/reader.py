"""From lines of any kernel log to fault events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO, Optional

from checks.kernel_log.envelope import open_line
from checks.kernel_log.host_lines import WORDS, parse_host, probed_gpu
from checks.kernel_log.nvidia_lines import CONTINUATION, CONTINUED, FAULT_WORDS, parse_nvidia
from checks.kernel_log.scan import ALL_WORDS, LISTED_MESSAGE, NVIDIA_ALONE, scan
from checks.model import KernelEvent

PROBED = "NVRM: The NVIDIA GPU"
"""Begins the first of the three lines that tell of a GPU lost at driver start."""

CONTINUATION_LINES = 2
"""Lines that may carry on an XID 31. Source: driver print format."""

RETOLD_WITHIN = 8
"""Events before one in its line among which it may have been told already. Hotspare default: log shippers copy a text twice."""

_WORDS = (*FAULT_WORDS, *WORDS)


def parse_line(line: str, last_probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the first fault event of one line, None for a line without any.

    Companion lines of an SXid come back with `companion` set: they are evidence, not a fault of their own.
    """
    events = parse_all(line, last_probed_gpu)
    return events[0] if events else None


def parse_all(line: str, last_probed_gpu: str = "") -> list[KernelEvent]:
    """Return every fault event of one line: two lines may have been written into each other, or JSON may hold many.

    Of a JSON document that retells one message in several places, the first place counts.
    """
    if not _may_be_fault(line):
        return []
    events: list[KernelEvent] = []
    for message in open_line(line, _WORDS):
        told = events[-RETOLD_WITHIN:]
        found = parse_nvidia(message) or _one(parse_host(message, last_probed_gpu))
        events += [event for event in found if not any(_retold(event, before) for before in told)]
    return events


def _retold(event: KernelEvent, told: KernelEvent) -> bool:
    """Say whether two events of different messages of one line are one. The lines of a storm have stamps of their own."""
    same = _what(event) == _what(told) and (event.node == told.node or not event.node or not told.node)
    stamps = {stamp for stamp in (event.monotonic_s, told.monotonic_s) if stamp is not None}
    return same and len(stamps) < 2 and (event.text.startswith(told.text) or told.text.startswith(event.text))


def _what(event: KernelEvent) -> tuple[object, ...]:
    return event.kind, event.code, event.signal, event.pci


def _one(event: Optional[KernelEvent]) -> list[KernelEvent]:
    return [event] if event else []


def _may_be_fault(line: str) -> bool:
    """Say quickly that most lines are no fault. In journald's JSON a message with odd bytes is a list of numbers."""
    return any(map(line.__contains__, _WORDS)) or LISTED_MESSAGE in line


def read_stream(stream: BinaryIO, nvidia_alone: bool = False) -> Iterator[KernelEvent]:
    """Yield the fault events of a log of any size, in its order, in memory that does not grow with it.

    `nvidia_alone` leaves out what only the host's kernel says, such as machine checks: many times as fast.
    """
    lines = scan(stream, NVIDIA_ALONE if nvidia_alone else ALL_WORDS)
    return read_lines(line.decode("utf-8", "replace") for line in lines)


def read_lines(lines: Iterable[str]) -> Iterator[KernelEvent]:
    """Yield the fault events of a log, in its order. Remembers what one event spreads over several lines."""
    last_probed_gpu = ""
    unfinished: Optional[KernelEvent] = None
    left = 0
    for line in lines:
        if unfinished and FAULT_WORDS[0] not in line and CONTINUATION.search(line):
            unfinished = _continued(unfinished, line)
            continue
        events = parse_all(line, last_probed_gpu)
        if PROBED in line and not events:
            last_probed_gpu = probed_gpu(line)
        left -= 1
        if unfinished and (events or left <= 0):
            yield unfinished
            unfinished = None
        if events and events[-1].code == CONTINUED and events[-1].kind == "xid":
            unfinished, left = events.pop(), CONTINUATION_LINES
        yield from events
    if unfinished:
        yield unfinished


def _continued(event: KernelEvent, line: str) -> KernelEvent:
    """An XID 31 with the next of its lines."""
    found = CONTINUATION.search(line)
    more = line[found.start(1) :].strip()[:400] if found else ""
    return replace(event, text=f"{event.text}\n{more}", raw=f"{event.raw}\n{more}")
