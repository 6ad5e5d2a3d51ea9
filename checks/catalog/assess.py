"""Says what one event of the kernel log means: fault class, the vendor's action and why, from the catalog and the line itself.

Knows no history and no other signal; weighing them is the diagnosis' business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Optional

from checks.catalog.entries import XidEntry, lookup_signal, lookup_sxid, lookup_xid
from checks.model import Action, KernelEvent


@dataclass(frozen=True)
class Assessment:
    """What one event or reading means by itself. `because` is one plain sentence that names its source."""

    fault_class: str
    action: Action
    because: str
    escalation: str = ""
    interrupts_job: str = ""


RECOVERY_ACTIONS: dict[int, tuple[str, Action, str]] = {
    0: ("none", Action.NONE, "none"),
    1: ("reset_needed", Action.RESET_GPU, "GPU reset"),
    2: ("reboot_needed", Action.REBOOT_NODE, "node reboot"),
    3: ("reset_needed", Action.RESTART_JOB, "no new peer-to-peer work on the GPU"),
    4: ("reset_needed", Action.RESET_GPU, "drain, then GPU reset"),
    5: ("unknown_code", Action.CONTACT_SUPPORT, "recover the IMEX domain"),
    6: ("reset_needed", Action.RESET_GPU, "bus reset"),
    7: ("reboot_needed", Action.POWER_CYCLE, "system reboot"),
}
"""The driver's recovery action by number: fault class, action, words.

Sources: ctrl2080gpu.h of 595.45.04 and of a 610-class tree; the printed words changed between them, the numbers did not."""

DRAIN_AND_RESET = 4
"""The recovery action that can wait for the job's end: the GPU works on, with less capacity. Source: ctrl2080gpu.h, 595.45.04."""

SXID_CLASSES: dict[Action, str] = {
    Action.NONE: "none",
    Action.RESTART_JOB: "application",
    Action.REBOOT_NODE: "fabric",
    Action.REPLACE_NODE: "hardware",
    Action.CONTACT_SUPPORT: "unknown_code",
}


def assess(event: KernelEvent) -> Assessment:
    """Return what an event means. Never raises for an unknown code, and never calls one harmless."""
    if event.companion:
        return Assessment("none", Action.NONE, "detail of the line beside it")
    if event.kind == "sxid":
        return _assess_sxid(event)
    if event.kind == "host":
        signal = lookup_signal(event.signal)
        because = f"kernel log: {signal.meaning} ({signal.source})"
        return Assessment(signal.fault_class, signal.action, because, signal.escalation, signal.interrupts_job)
    entry = lookup_xid(event.code if event.code is not None else -1)
    return _DECODERS.get(entry.code, _by_table)(event, entry)


def assess_recovery(number: int, seen_in: str) -> Assessment:
    """Return what the driver's recovery action asks for; a number that is not known goes to a person."""
    unknown = ("unknown_code", Action.CONTACT_SUPPORT, "a step that is not known")
    fault_class, action, words = RECOVERY_ACTIONS.get(number, unknown)
    interrupts = "no" if action is Action.NONE else "at_boundary" if number == DRAIN_AND_RESET else "yes"
    because = f"{seen_in}: the driver's recovery action is {number} ({words})"
    return Assessment(fault_class, action, because, interrupts_job=interrupts)


def _by_table(event: KernelEvent, entry: XidEntry) -> Assessment:
    nameless = entry.reserved and entry.action is Action.CONTACT_SUPPORT
    known = "reserved or unknown, so a person is asked" if nameless else entry.meaning
    because = f"XID {entry.code} ({entry.mnemonic}): {known}; {entry.source} says {entry.action.value}"
    return Assessment(entry.fault_class, entry.action, because, entry.escalation, entry.interrupts_job)


def _decoded(event: KernelEvent, entry: XidEntry, fault_class: str, action: Action, why: str, interrupts: str = "") -> Assessment:
    table = _by_table(event, entry)
    because = f"XID {entry.code} ({entry.mnemonic}): {why}, so {action.value}"
    return replace(
        table, fault_class=fault_class, action=action, because=because, interrupts_job=interrupts or table.interrupts_job
    )


def _remap_failure(event: KernelEvent, entry: XidEntry) -> Assessment:
    if "already pending" in event.text.lower():
        why = "the row is already pending, which the next reset activates"
        return _decoded(event, entry, "none", Action.NONE, why, "at_boundary")
    return _by_table(event, entry)


_RESET_FLAG = re.compile(r"(?<![\w-])RST:\s*(Yes|No)", re.IGNORECASE)
_DRAIN_FLAG = re.compile(r"D-RST:\s*(Yes|No)", re.IGNORECASE)


def _containment(event: KernelEvent, entry: XidEntry) -> Assessment:
    """94 and 95 say in the line whether a reset is needed; the number alone does not."""
    reset, drain = _flag(_RESET_FLAG, event.text), _flag(_DRAIN_FLAG, event.text)
    if reset or drain:
        why = "the line says that a reset is needed" + ("" if reset else " after a drain")
        return _decoded(event, entry, "memory_uncorrectable", Action.RESET_GPU, why, "yes" if reset else "at_boundary")
    if reset is False:
        why = "the line says that no reset is needed"
        return _decoded(event, entry, "memory_contained", Action.RESTART_JOB, why, "job_dies_anyway")
    return _by_table(event, entry)


def _flag(pattern: re.Pattern[str], text: str) -> Optional[bool]:
    match = pattern.search(text)
    return None if match is None else match.group(1).lower() == "yes"


def _double_bit(event: KernelEvent, entry: XidEntry) -> Assessment:
    if "framebuffer" in event.text.lower():
        why = "uncorrectable error in DRAM; the reset activates the row remap"
    else:
        why = "uncorrectable error, in SRAM or in a place that the line does not say, taken as SRAM; the reset clears it"
    return _decoded(event, entry, "memory_uncorrectable", Action.RESET_GPU, why)


def _nvlink5(event: KernelEvent, entry: XidEntry) -> Assessment:
    if event.severity.lower().replace("-", "") == "nonfatal":
        return _decoded(event, entry, "none", Action.NONE, "the line says Nonfatal; counted per link", "no")
    return _by_table(event, entry)


def _recovery_changed(event: KernelEvent, entry: XidEntry) -> Assessment:
    if event.recovery_to is None:
        why = "the line does not say which recovery action"
        return _decoded(event, entry, "unknown_code", Action.CONTACT_SUPPORT, why)
    return assess_recovery(event.recovery_to, "XID 154")


_DECODERS: dict[int, Callable[[KernelEvent, XidEntry], Assessment]] = {
    48: _double_bit,
    64: _remap_failure,
    94: _containment,
    95: _containment,
    154: _recovery_changed,
    **dict.fromkeys(range(144, 151), _nvlink5),
}


def _assess_sxid(event: KernelEvent) -> Assessment:
    """The severity word of the line decides, not the number: numbers moved and severities differ between switch generations."""
    entry = lookup_sxid(event.code if event.code is not None else -1)
    word = event.severity.lower()
    if word == "fatal":
        action = entry.if_fatal or Action.REBOOT_NODE
    elif word in ("non-fatal", "nonfatal"):
        action = entry.if_nonfatal or Action.NONE
    elif word == "correctable":
        action = Action.NONE
    else:
        action = entry.if_no_word or Action.CONTACT_SUPPORT
    because = f"SXid {entry.code} ({entry.name}): {entry.meaning}; the line says {event.severity or 'no severity'}"
    return Assessment(SXID_CLASSES.get(action, "fabric"), action, because, entry.escalation, entry.interrupts_job)
