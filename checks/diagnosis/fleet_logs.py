"""Diagnoses every node whose kernel log is given, and tells single faults from one event on many nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Optional, cast

from checks.catalog import Assessment
from checks.diagnosis.facts import Hardware
from checks.diagnosis.node_log import Kept, NodeLog, tells_of_boot, verdict_of
from checks.diagnosis.storms import Sighting, Storm, find_storms
from checks.diagnosis.wall_clock import written_at
from checks.kernel_log import read_lines
from checks.kernel_log.envelope import open_line
from checks.kernel_log.scan import ALL_WORDS, scan
from checks.model import Action, Confidence, Diagnosis, KernelEvent, Verdict

MOST_NODES = 20_000
"""Nodes that are told apart. Hotspare default: more is no cluster but a damaged log."""

REST = "(further nodes)"
"""Where the faults of still more nodes go."""

HEAD = 1 << 16
"""Bytes at the beginning of a log by which it is told from what is none. Hotspare default."""

_BOOT_WORD = b"Linux version "
_LOG_LINE = re.compile(
    r"^\s*(?:<\d{1,3}>)?\[\s*\d{1,12}\.\d{1,9}\]|\[\s*\d{1,12}\.\d{6}\]"
    r"|^\s*(?:>\s*)?\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|^\s*\d{1,4},\d+,\d+,"
    r"|\bkernel(?:\[\d+\])?: |^kern\s{0,4}:|\bNVRM: |nvidia-nvswitch\d"
    r'|"(?:_TRANSPORT|SYSLOG_IDENTIFIER)"\s{0,2}:\s{0,2}"kernel"',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Recommendation:
    """What is to be done about one node. UNKNOWN where nothing that was read is a kernel log."""

    node: str
    diagnosis: Diagnosis
    verdict: Verdict
    lines: int


class FleetLogs:
    """Reads logs one after the other, in bounded memory, and concludes at the end.

    A node that has no fault is known by its kernel lines at the beginning of a log: further on only fault lines are read.

    `now` (Unix time, s) is for stamps without a year.
    """

    def __init__(self, hardware: Hardware, now: float) -> None:
        self._hardware = hardware
        self._now = now
        self._nodes: dict[str, NodeLog] = {}
        self._readable: set[str] = set()

    def read(self, stream: BinaryIO, name: str) -> Iterator[tuple[str, KernelEvent, Assessment]]:
        """Yield (node, event, meaning) for each fault line. Lines that name no host are of the node `name`."""
        tap = _Tap(stream)
        newest = _Newest(self._now)
        seen: set[str] = set()
        lines = scan(cast("BinaryIO", tap), (*ALL_WORDS, _BOOT_WORD))
        for event in read_lines(self._watch(lines, newest, name)):
            node = self._node(event.node or name)
            seen.add(node.node)
            yield node.node, event, node.add(event, newest.time_of(event), self._hardware.machine)
        head = tap.head.decode("utf-8", "replace")
        names = seen | {self._node(host).node for host in _hosts_in(head)} or {self._node(_host_in(head) or name).node}
        if seen or _LOG_LINE.search(head):
            self._readable |= names

    def conclude(self, looked_at: int = 0) -> tuple[list[Recommendation], list[Storm]]:
        """Return what to do about each node, and the events that show on several, of `looked_at` nodes: else those with a log."""
        seen = {name: log.sightings() for name, log in self._nodes.items()}
        storms = find_storms((sighting for mine in seen.values() for _, sighting in mine), looked_at or len(self._nodes))
        return [self._recommend(log, storms, seen[name]) for name, log in self._nodes.items()], storms

    def _recommend(self, log: NodeLog, storms: list[Storm], mine: Sequence[tuple[Kept, Sighting]]) -> Recommendation:
        if log.node not in self._readable:
            because = ("nothing that was read is a line of a kernel log: missing evidence is not health",)
            return Recommendation(log.node, Diagnosis("none", Action.NONE, Confidence.LOW, because), Verdict.UNKNOWN, 0)
        parts = [storm for storm in storms if log.node in storm.nodes]
        diagnosis = log.diagnosis(self._hardware, parts, mine)
        return Recommendation(log.node, diagnosis, verdict_of(diagnosis), sum(kept.lines for kept in log.kept))

    def _node(self, name: str) -> NodeLog:
        known = self._nodes.get(name)
        if known is None:
            name = name if len(self._nodes) < MOST_NODES else REST
            known = self._nodes.setdefault(name, NodeLog(name))
        return known

    def _watch(self, lines: Iterator[bytes], newest: _Newest, name: str) -> Iterator[str]:
        """Pass lines on; note their times, and boots on the way."""
        for raw in lines:
            line = raw.decode("utf-8", "replace")
            newest.note(line)
            if tells_of_boot(line):
                self._node(_host_of(line) or name).booted(newest.at)
            yield line


class _Newest:
    """The last few lines, to find the time of the one that an event is from: an event may be known a line or two later."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._lines: list[str] = []

    def note(self, line: str) -> None:
        self._lines = [*self._lines[-3:], line]

    @property
    def at(self) -> Optional[float]:
        return written_at(self._lines[-1], self._now) if self._lines else None

    def time_of(self, event: KernelEvent) -> Optional[float]:
        """The time on the event's line."""
        words = event.raw.split("\n")[0][:200]
        line = next((line for line in reversed(self._lines) if words in line), self._lines[-1] if self._lines else "")
        return written_at(line, self._now)


class _Tap:
    """A stream that remembers its beginning."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.head = b""

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        if len(self.head) < HEAD:
            self.head += block[: HEAD - len(self.head)]
        return block


def _host_of(line: str) -> str:
    return next((message.node for message in open_line(line) if message.node), "")


def _host_in(head: str) -> str:
    """The host that the first lines name."""
    return next((host for line in head.split("\n")[:50] if (host := _host_of(line))), "")


def _hosts_in(head: str) -> set[str]:
    """The hosts of all kernel lines, but for a line that is cut."""
    whole = head if len(head.encode()) < HEAD else head[: head.rfind("\n") + 1]
    return {host for line in whole.split("\n") if _LOG_LINE.search(line) and (host := _host_of(line))}
