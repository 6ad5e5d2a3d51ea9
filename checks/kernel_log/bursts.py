"""Folds a burst of fault lines into one event per GPU, with consequences under their causes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from checks.model import KernelEvent
from checks.pci_address import canonical

BURST_SILENCE_S = 180.0
"""A burst ends after so many seconds of silence. Source: NVIDIA's fleet agent; NVSentinel counts 180 s as one burst too."""

CLEANUP_WINDOW_S = 10.0
"""An XID 45 this soon after a fault on any GPU of the node is its consequence. Source: a tracer that infers causes by time."""

CHANNEL_REMOVED = 45
OFF_THE_BUS = 79
CONSEQUENCES: dict[int, frozenset[int]] = {
    43: frozenset({13, 31, 32, 69, 79, 94, 95, 119, 120, 149}),
    63: frozenset({64}),
    171: frozenset({48}),
    172: frozenset({48}),
}
"""A code, and the causes in the same burst under which it folds. Sources: NVIDIA XID catalog; 171 and 172 only qualify a 48."""

DECIDING_REGISTERS: dict[object, int] = {74: 7, **dict.fromkeys(range(144, 151), 2), "driver_start_failed": 2}
"""How many numbers of a line decide what it means, by code or signal. Source: NVIDIA XID catalog; driver print format."""

_HEX = re.compile(r"0x[0-9a-f]{1,16}")


@dataclass(frozen=True)
class Burst:
    """Fault lines of one GPU (or switch, or the host) that belong to one event.

    `causes` holds the first line of each different fault, `consequences` what followed from them or from a fault of another GPU;
    `lines` counts all lines.
    """

    pci: str
    causes: tuple[KernelEvent, ...]
    consequences: tuple[KernelEvent, ...]
    lines: int

    @property
    def events(self) -> tuple[KernelEvent, ...]:
        """All the different events of the burst, causes first."""
        return self.causes + self.consequences


def fold(events: Iterable[KernelEvent]) -> list[Burst]:
    """Group events by PCI bus id and silence, drop companions and repeats, and tell causes from consequences.

    Events without a stamp join the running burst of their GPU: a log keeps its order even where it has no clock.
    """
    counted = [event for event in events if not event.companion]
    groups: list[list[KernelEvent]] = []
    running: dict[tuple[str, ...], list[KernelEvent]] = {}
    for event in counted:
        key = (event.node, event.boot_id, event.kind, canonical(event.pci))
        group = running.get(key)
        if group is None or _apart(group[-1], event):
            group = running[key] = []
            groups.append(group)
        group.append(event)
    seen = _Seen(counted)
    return [_burst(group, seen) for group in groups]


class _Seen:
    """The faults of each node, for the question whether one of them came before a line."""

    def __init__(self, events: Iterable[KernelEvent]) -> None:
        self._codes: set[tuple[str, Optional[int]]] = set()
        self._gpus: set[tuple[str, str]] = set()
        self._unstamped: set[tuple[str, str]] = set()
        self._stamps: dict[str, list[float]] = {}
        for event in events:
            if event.kind != "xid":
                continue
            self._codes.add((event.node, event.code))
            if event.code == CHANNEL_REMOVED:
                continue
            gpu = (event.node, canonical(event.pci))
            self._gpus.add(gpu)
            if event.monotonic_s is None:
                self._unstamped.add(gpu)
            else:
                self._stamps.setdefault(event.node, []).append(event.monotonic_s)
        for stamps in self._stamps.values():
            stamps.sort()

    def has(self, node: str, code: int) -> bool:
        """Say whether the node had this XID."""
        return (node, code) in self._codes

    def shortly_before(self, event: KernelEvent) -> bool:
        """Say whether another fault of the node came shortly before; without a clock, whether the same GPU had one at all."""
        gpu = (event.node, canonical(event.pci))
        if event.monotonic_s is None:
            return gpu in self._gpus
        stamps = self._stamps.get(event.node, [])
        place = bisect_right(stamps, event.monotonic_s)
        close = place > 0 and event.monotonic_s - stamps[place - 1] <= CLEANUP_WINDOW_S
        return close or gpu in self._unstamped


def _apart(earlier: KernelEvent, later: KernelEvent) -> bool:
    """Stamps that fall far back are of the next boot."""
    if earlier.monotonic_s is None or later.monotonic_s is None:
        return False
    return abs(later.monotonic_s - earlier.monotonic_s) > BURST_SILENCE_S


def _burst(group: list[KernelEvent], seen: _Seen) -> Burst:
    distinct: dict[object, KernelEvent] = {}
    for event in group:
        distinct.setdefault(identity(event), event)
    codes = {event.code: event for event in reversed(group) if event.kind == "xid"}
    causes: list[KernelEvent] = []
    consequences: list[KernelEvent] = []
    for event in distinct.values():
        folded = _is_consequence(event, codes) or _is_cleanup(event, seen)
        (consequences if folded else causes).append(event)
    return Burst(canonical(group[0].pci), tuple(causes), tuple(consequences), len(group))


def identity(event: KernelEvent) -> object:
    """What makes two lines of a burst the same fault: the wording of 154, 64 and SXid lines matters, a repeat does not."""
    return (event.kind, event.code, event.signal, event.severity.lower(), event.link, event.recovery_to, _retells(event))


def _retells(event: KernelEvent) -> str:
    """Texts and registers that decide between meanings of one code, so that the harmless one never hides the other."""
    text = event.text.lower()
    words = [word for word in ("already pending", "rst: yes", "framebuffer") if word in text]
    return " ".join(words + _HEX.findall(text)[: DECIDING_REGISTERS.get(event.code or event.signal, 0)])


def _is_consequence(event: KernelEvent, first_by_code: dict[Optional[int], KernelEvent]) -> bool:
    if event.kind != "xid" or event.code is None:
        return False
    lost = first_by_code.get(OFF_THE_BUS)
    if lost is not None and event.code != OFF_THE_BUS and not _before(event, lost):
        return True
    return bool(CONSEQUENCES.get(event.code, frozenset()) & {code for code in first_by_code if code is not None})


def _is_cleanup(event: KernelEvent, seen: _Seen) -> bool:
    """What names a cause that the log has is its consequence.

    A channel removal is never a cause when its line names one, or when another fault of the node came shortly before.
    """
    if event.kind != "xid":
        return False
    if event.caused_by is not None and event.caused_by != event.code and seen.has(event.node, event.caused_by):
        return True
    return event.code == CHANNEL_REMOVED and (event.caused_by is not None or seen.shortly_before(event))


def _before(event: KernelEvent, other: KernelEvent) -> bool:
    if event.monotonic_s is None or other.monotonic_s is None:
        return False
    return event.monotonic_s < other.monotonic_s
