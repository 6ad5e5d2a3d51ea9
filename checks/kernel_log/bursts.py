"""Folds a burst of fault lines into one event per GPU, with consequences under their causes."""

from __future__ import annotations

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
    running: dict[str, list[KernelEvent]] = {}
    for event in counted:
        key = event.kind + "/" + canonical(event.pci)
        group = running.get(key)
        if group is None or _apart(group[-1], event):
            group = running[key] = []
            groups.append(group)
        group.append(event)
    return [_burst(group, counted) for group in groups]


def _apart(earlier: KernelEvent, later: KernelEvent) -> bool:
    if earlier.monotonic_s is None or later.monotonic_s is None:
        return False
    return later.monotonic_s - earlier.monotonic_s > BURST_SILENCE_S


def _burst(group: list[KernelEvent], everything: list[KernelEvent]) -> Burst:
    distinct: dict[object, KernelEvent] = {}
    for event in group:
        distinct.setdefault(_identity(event), event)
    codes = {event.code: event for event in reversed(group) if event.kind == "xid"}
    causes: list[KernelEvent] = []
    consequences: list[KernelEvent] = []
    for event in distinct.values():
        folded = _is_consequence(event, codes) or _is_cleanup(event, everything)
        (consequences if folded else causes).append(event)
    return Burst(canonical(group[0].pci), tuple(causes), tuple(consequences), len(group))


def _identity(event: KernelEvent) -> object:
    """What makes two lines of a burst the same fault: the wording of 154, 64 and SXid lines matters, a repeat does not."""
    return (event.kind, event.code, event.signal, event.severity.lower(), event.link, event.recovery_to, _retells(event))


def _retells(event: KernelEvent) -> str:
    """Texts that decide between two meanings of one code, so that the harmless one never hides the other."""
    text = event.text.lower()
    return "".join(word for word in ("already pending", "rst: yes", "framebuffer") if word in text)


def _is_consequence(event: KernelEvent, first_by_code: dict[Optional[int], KernelEvent]) -> bool:
    if event.kind != "xid" or event.code is None:
        return False
    lost = first_by_code.get(OFF_THE_BUS)
    if lost is not None and event.code != OFF_THE_BUS and not _before(event, lost):
        return True
    return bool(CONSEQUENCES.get(event.code, frozenset()) & {code for code in first_by_code if code is not None})


def _is_cleanup(event: KernelEvent, everything: list[KernelEvent]) -> bool:
    """A channel removal is never a cause when the line names one, or when another fault of the node came shortly before."""
    if event.kind != "xid" or event.code != CHANNEL_REMOVED:
        return False
    return event.caused_by is not None or any(_shortly_before(other, event) for other in everything)


def _shortly_before(other: KernelEvent, event: KernelEvent) -> bool:
    if other.kind != "xid" or other.code == CHANNEL_REMOVED:
        return False
    if other.monotonic_s is None or event.monotonic_s is None:
        return canonical(other.pci) == canonical(event.pci)
    return 0.0 <= event.monotonic_s - other.monotonic_s <= CLEANUP_WINDOW_S


def _before(event: KernelEvent, other: KernelEvent) -> bool:
    if event.monotonic_s is None or other.monotonic_s is None:
        return False
    return event.monotonic_s < other.monotonic_s
