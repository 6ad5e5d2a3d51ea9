"""Which kernel events count now: not what was dealt with, what the driver itself took back, or what belongs to a fresh boot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from checks.catalog import assess, lookup_sxid
from checks.diagnosis.facts import ReportedFault, Timing
from checks.kernel_log.nvidia_lines import RECOVERY_ACTION_CHANGED
from checks.model import KernelEvent
from checks.pci_address import canonical

EVENT_CLASSES = frozenset({"application", "memory_contained"})
"""Classes whose lines tell of something that happened and is over; all others tell of a state that lasts until a repair."""

ENDED_BY_RESET = EVENT_CLASSES | {"reset_needed", "reboot_needed", "link", "memory_uncorrectable"}
"""Classes that are over once the driver sets a GPU's recovery action back to none. Spare rows, say, do not come back."""

LINK_BLOCKS = ("DLPL", "MINION", "NVLIPT", "NVLIPT link")
"""Blocks of the NVSwitch that take part in link training. Source: NVSwitch driver source of 595.45.04."""


@dataclass(frozen=True)
class Current:
    """The events that count, in log order, and why others do not."""

    events: tuple[KernelEvent, ...]
    notes: tuple[str, ...]


def current_events(events: Iterable[KernelEvent], timing: Timing, reports: Sequence[ReportedFault] = ()) -> Current:
    """Sort out the events of this boot. A fresh report of an event makes it count whatever its age."""
    log = [event for event in events if not event.companion]
    last_word = _last_recovery(log)
    reported = {(kind, code) for report in reports for kind, code in (("xid", report.xid), ("sxid", report.sxid))}
    kept: list[KernelEvent] = []
    notes: dict[str, int] = {}
    for position, event in enumerate(log):
        reason = (
            dealt_with(event, timing)
            or _taken_back(event, position, last_word)
            or _too_old(event, timing, (event.kind, event.code) in reported)
            or settling(event, timing)
        )
        if reason:
            note = f"{describe(event)}: {reason}"
            notes[note] = notes.get(note, 0) + 1
        else:
            kept.append(event)
    return Current(tuple(kept), tuple(note if count == 1 else f"{note} ({count} lines)" for note, count in notes.items()))


def describe(event: KernelEvent) -> str:
    """Name an event in a few words: code and place."""
    name = {"xid": f"XID {event.code}", "sxid": f"SXid {event.code}"}.get(event.kind, event.signal)
    return f"{name} on {canonical(event.pci)}" if event.pci else name


def is_event(event: KernelEvent) -> bool:
    """Say whether a line tells of something over (an event), not of a state that lasts until a repair."""
    return assess(event).fault_class in EVENT_CLASSES


def dealt_with(event: KernelEvent, timing: Timing) -> str:
    """Say why an event that was dealt with before does not count, empty where it was not."""
    if timing.after_s is None or event.monotonic_s is None or event.monotonic_s > timing.after_s:
        return ""
    return "printed before the last repair or look, so it is history"


def _last_recovery(log: Sequence[KernelEvent]) -> dict[str, tuple[int, Optional[int]]]:
    """Return, per GPU, the position and number of the last recovery action that the driver printed."""
    return {
        canonical(event.pci): (position, event.recovery_to)
        for position, event in enumerate(log)
        if event.kind == "xid" and event.code == RECOVERY_ACTION_CHANGED and event.recovery_to is not None
    }


def _taken_back(event: KernelEvent, position: int, last_word: dict[str, tuple[int, Optional[int]]]) -> str:
    """The last recovery action of a GPU is the one that holds; a change to "none" ends what came before it on that GPU."""
    if event.kind != "xid":
        return ""
    last_position, number = last_word.get(canonical(event.pci), (-1, None))
    if position >= last_position:
        return ""
    if number == 0 and assess(event).fault_class in ENDED_BY_RESET:
        return "the driver has since set the GPU's recovery action back to none"
    return "a later recovery action replaced it" if event.code == RECOVERY_ACTION_CHANGED else ""


def _too_old(event: KernelEvent, timing: Timing, reported: bool) -> str:
    if reported or timing.uptime_s is None or event.monotonic_s is None or not is_event(event):
        return ""
    age = timing.uptime_s - event.monotonic_s
    return f"happened {age / 60:.0f} min ago and is an event, not a state" if age > timing.event_age_s else ""


def settling(event: KernelEvent, timing: Timing) -> str:
    """Say why a link that trains after a boot does not count, empty for every other event."""
    if (
        timing.settling_s <= 0
        or event.monotonic_s is None
        or event.monotonic_s >= timing.settling_s
        or not _is_link_training(event)
    ):
        return ""
    return f"links train in the first {timing.settling_s:.0f} s after a boot"


def _is_link_training(event: KernelEvent) -> bool:
    if event.kind == "sxid":
        return lookup_sxid(event.code if event.code is not None else -1).block in LINK_BLOCKS
    return event.kind == "xid" and assess(event).fault_class == "link"
