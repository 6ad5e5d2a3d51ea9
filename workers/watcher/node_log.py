"""Decides, line by line, what of a node's kernel log is reported, and how far it counts as handled. Pure: no clock, no wire.

The same fault a thousand times is one report and a count; what follows from a reported fault is no fault of its own.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace

from checks.catalog import Machine, assess
from checks.kernel_log import Cursor, fold, parse_line, unread
from checks.kernel_log.host_lines import probed_gpu
from checks.model import Action, KernelEvent

_STAMP = re.compile(r"^\[\s*(\d{1,12}\.\d{1,9})\]")
_RECENT = 200
"""Events remembered for folding. Hotspare default: over the longest burst worth telling apart."""


@dataclass(frozen=True)
class Start:
    """What is known when the log is opened. `uptime_s` is None where the node does not tell."""

    boot_id: str
    uptime_s: float | None
    cursor: Cursor | None
    first_connect_max_age_s: float
    repeat_s: float
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True)
class Batch:
    """One class of fault that is to be reported: its first line since the last report, and how many lines say the same."""

    fault_class: str
    event: KernelEvent
    count: int
    began_before: Cursor


class NodeLog:
    """The log of one boot of one node, read over one connection."""

    def __init__(self, start: Start) -> None:
        self._handled_before = _handled_before(start)
        self._read = self._handled_before
        self._repeat_s = start.repeat_s
        self._machine = start.machine
        self._pending: dict[str, Batch] = {}
        self._reported_at: dict[str, float] = {}
        self._recent: deque[KernelEvent] = deque(maxlen=_RECENT)
        self._probed_gpu = ""
        self._stamp: float | None = None

    def take(self, line: str) -> None:
        """Take the next line of the log."""
        stamp = _STAMP.match(line)
        if stamp:
            self._stamp = float(stamp.group(1))
        event = self._parse(line)
        if event is None:
            return
        self._recent.append(event)
        if not unread([event], self._handled_before, self._handled_before.boot_id)[0]:
            return
        before = _just_before(event, self._read)
        self._read = unread([event], self._read, self._read.boot_id)[1]
        if self._counts(event):
            self._note(event, before)

    def due(self, now: float) -> list[Batch]:
        """What is to be reported now (seconds of any steady clock): a fault not reported within `repeat_s`."""
        return [
            batch
            for name, batch in self._pending.items()
            if name not in self._reported_at or now - self._reported_at[name] >= self._repeat_s
        ]

    def confirmed(self, batch: Batch, now: float) -> None:
        """The server has the report. No line may be taken between `due` and this."""
        self._reported_at[batch.fault_class] = now
        del self._pending[batch.fault_class]

    @property
    def cursor(self) -> Cursor:
        """Up to where everything is handled: before the oldest line that waits to be reported."""
        waiting = [batch.began_before for batch in self._pending.values()]
        return min([*waiting, self._read], key=lambda cursor: (cursor.monotonic_s, len(cursor.at_that_stamp)))

    def _parse(self, line: str) -> KernelEvent | None:
        """Read a line. One without a stamp has that of the line before it: the log keeps its order."""
        event = parse_line(line, self._probed_gpu)
        if event is None and "NVRM: The NVIDIA GPU" in line:
            self._probed_gpu = probed_gpu(line)
        if event is not None and event.monotonic_s is None:
            return replace(event, monotonic_s=self._stamp)
        return event

    def _counts(self, event: KernelEvent) -> bool:
        """Whether the line is a fault of its own that asks for something."""
        meaning = assess(event, self._machine)
        if event.companion or meaning.action == Action.NONE:
            return False
        if meaning.fault_class in self._pending:
            return True
        return not any(_same(event, other) for burst in fold(self._recent) for other in burst.consequences)

    def _note(self, event: KernelEvent, before: Cursor) -> None:
        name = assess(event, self._machine).fault_class
        waiting = self._pending.get(name)
        if waiting:
            self._pending[name] = replace(waiting, count=waiting.count + 1)
        else:
            self._pending[name] = Batch(name, event, 1, before)


def _handled_before(start: Start) -> Cursor:
    """Where the log was left; another boot begins at its beginning; on the first connection, what is old counts as handled."""
    if start.cursor is not None:
        return start.cursor if start.cursor.boot_id == start.boot_id else Cursor(boot_id=start.boot_id)
    oldest = 0.0 if start.uptime_s is None else start.uptime_s - start.first_connect_max_age_s
    return Cursor(boot_id=start.boot_id, monotonic_s=max(oldest, 0.0))


def _just_before(event: KernelEvent, read: Cursor) -> Cursor:
    """The place before an event. Stamps of different processors may run backwards: then before its own stamp."""
    if event.monotonic_s is None or event.monotonic_s >= read.monotonic_s:
        return read
    return Cursor(read.boot_id, event.monotonic_s, (), read.unstamped)


def _same(event: KernelEvent, other: KernelEvent) -> bool:
    return (event.kind, event.code, event.pci, event.signal) == (other.kind, other.code, other.pci, other.signal)
