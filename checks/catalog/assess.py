"""Says what one event of the kernel log means: fault class, the vendor's action and why, from the catalog and the line itself.

Knows no history and no other signal; weighing them is the diagnosis' business.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Callable, Optional

from checks.catalog.assessment import UNKNOWN_MACHINE, Assessment, Machine, assess_recovery
from checks.catalog.entries import XidEntry, lookup_signal, lookup_sxid, lookup_xid
from checks.catalog.links import PEER_REASONS, decode_nvlink4, decode_nvlink5, link_down_reason, registers_in
from checks.catalog.overrides import Override, key_of
from checks.model import Action, KernelEvent

SXID_CLASSES: dict[Action, str] = {
    Action.NONE: "none",
    Action.RESTART_JOB: "application",
    Action.REBOOT_NODE: "fabric",
    Action.REPLACE_NODE: "hardware",
    Action.CONTACT_SUPPORT: "unknown_code",
}

NVIDIA_BUCKETS: dict[str, Action] = {
    "IGNORE": Action.NONE,
    "RESTART_APP": Action.RESTART_JOB,
    "RESET_GPU": Action.RESET_GPU,
    "RESTART_VM": Action.REBOOT_NODE,
    "RESTART_BM": Action.REBOOT_NODE,
    "CONTACT_SUPPORT": Action.CONTACT_SUPPORT,
}
"""NVIDIA's immediate actions in our words. Source: NVIDIA XID catalog 2025-09-30."""

START_STATUS: dict[int, tuple[str, Action, str]] = {
    0x0F: ("gpu_lost", Action.REBOOT_NODE, "the GPU is lost"),
    0x55: ("reboot_needed", Action.REBOOT_NODE, "the GPU is not ready"),
    0x62: ("reset_needed", Action.RESET_GPU, "the GPU needs a reset"),
    0x65: ("reboot_needed", Action.REBOOT_NODE, "the GPU did not answer in time"),
}
"""Second number of "RmInitAdapter failed! (0x..:0x..:n)": fault class, action, words. Source: NV_STATUS codes of the driver."""


def assess(event: KernelEvent, machine: Machine = UNKNOWN_MACHINE) -> Assessment:
    """Return what an event means. Never raises for an unknown code, and never calls one harmless.

    The settings' override of a code counts before everything else that is known of it.
    """
    if event.companion:
        return Assessment("none", Action.NONE, "detail of the line beside it")
    shipped = _shipped(event, machine)
    override = machine.overrides.get(key_of(event))
    return _overridden(shipped, key_of(event), override) if override else shipped


def _shipped(event: KernelEvent, machine: Machine) -> Assessment:
    if event.kind == "sxid":
        return _assess_sxid(event)
    if event.kind == "host":
        return _assess_host(event)
    entry = lookup_xid(event.code if event.code is not None else -1)
    return _DECODERS.get(entry.code, _by_table)(event, entry, machine)


def _overridden(shipped: Assessment, key: str, override: Override) -> Assessment:
    why = f" ({override.why})" if override.why else ""
    return Assessment(
        override.fault_class,
        override.action,
        f"{shipped.because}; the settings say {override.action.value} for {key}{why}",
        override.escalation or shipped.escalation,
        shipped.interrupts_job if override.interrupts_job is None else override.interrupts_job,
        overridden=not override.escalation,
    )


def _by_table(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    nameless = entry.reserved and entry.action is Action.CONTACT_SUPPORT
    known = "reserved or unknown: the driver's recovery action decides, else a person" if nameless else entry.meaning
    elsewhere = machine.family and entry.families is not None and listed_for(machine.family) not in entry.families
    where = f" (NVIDIA does not list it for {machine.family})" if elsewhere and not nameless else ""
    because = f"XID {entry.code} ({entry.mnemonic}): {known}{where}; {_who_says(entry)} {entry.action.value}"
    return Assessment(entry.fault_class, entry.action, because, entry.escalation, entry.interrupts_job)


def _who_says(entry: XidEntry) -> str:
    """Name the source of a shipped action: the catalog where it says the same, else Hotspare, beside what NVIDIA says."""
    if NVIDIA_BUCKETS.get(entry.nvidia_immediate) is entry.action:
        return f"{entry.source} says"
    beside = f"{entry.source} says {entry.nvidia_immediate}, " if entry.nvidia_immediate else ""
    return f"{beside}Hotspare's catalog says"


def listed_for(family: str) -> str:
    """Return the family under which NVIDIA's catalog lists a GPU: H200 under H100, B200 and B300 under B100, and so on."""
    return {"H200": "H100", "B200": "B100", "B300": "B100", "GB300": "GB200"}.get(family, family)


def _decoded(event: KernelEvent, entry: XidEntry, fault_class: str, action: Action, why: str, interrupts: str = "") -> Assessment:
    return Assessment(
        fault_class=fault_class,
        action=action,
        because=f"XID {entry.code} ({entry.mnemonic}): {why}, so {action.value}",
        escalation=entry.escalation,
        interrupts_job=interrupts or entry.interrupts_job,
    )


def _remap_failure(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    if "already pending" in event.text.lower():
        why = "the row is already pending, which the next reset activates"
        return _decoded(event, entry, "none", Action.NONE, why, "at_boundary")
    return _by_table(event, entry, machine)


_RESET_FLAG = re.compile(r"(?<![\w-])RST:\s*(Yes|No)", re.IGNORECASE)
_DRAIN_FLAG = re.compile(r"D-RST:\s*(Yes|No)", re.IGNORECASE)


def _containment(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    """94 and 95 say in the line whether a reset is needed; the number alone does not."""
    reset, drain = _flag(_RESET_FLAG, event.text), _flag(_DRAIN_FLAG, event.text)
    if reset or drain:
        why = "the line says that a reset is needed" + ("" if reset else " after a drain")
        return _decoded(event, entry, "memory_uncorrectable", Action.RESET_GPU, why, "yes" if reset else "at_boundary")
    if reset is False:
        why = "the line says that no reset is needed"
        return _decoded(event, entry, "memory_contained", Action.RESTART_JOB, why, "job_dies_anyway")
    return _by_table(event, entry, machine)


def _flag(pattern: re.Pattern[str], text: str) -> Optional[bool]:
    match = pattern.search(text)
    return None if match is None else match.group(1).lower() == "yes"


def _double_bit(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    if "framebuffer" in event.text.lower():
        why = "uncorrectable error in DRAM; the reset activates the row remap"
    else:
        why = "uncorrectable error, in SRAM or in a place that the line does not say, taken as SRAM; the reset clears it"
    return _decoded(event, entry, "memory_uncorrectable", Action.RESET_GPU, why)


def _nvlink4(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    said = decode_nvlink4(event.text)
    if not said:
        return _by_table(event, entry, machine)
    gravest = said[0]
    why = "; ".join(f"register {row.register}: {row.meaning}" for row in said)
    decoded = _decoded(event, entry, gravest.fault_class, gravest.action, why, "no" if gravest.action is Action.NONE else "")
    return replace(decoded, escalation=gravest.escalation or entry.escalation)


def _nvlink5(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    """The decode table decides; where it has no row, or says less than the line's own Fatal, the line's word does."""
    fatal = event.severity.lower() == "fatal"
    row = decode_nvlink5(entry.code, event.text, machine.driver_branch)
    if row is None or (fatal and row.severity == "Non-fatal" and row.action is not Action.RESET_GPU):
        if event.severity and not fatal:
            return _decoded(event, entry, "none", Action.NONE, "the line says Nonfatal; counted per link", "no")
        return _by_table(event, entry, machine)
    where = f"{row.units[0]}{_reason(entry.code, event, row.units[0])}"
    look_at = f"; investigate: {row.look_at}" if row.look_at else ""
    if row.action is None:
        why = f"{where}: the line alone asks for nothing, the recovery action (XID 154) decides{look_at}"
        return _decoded(event, entry, "none", Action.NONE, why, "no")
    harmless = row.action is Action.NONE
    fault_class = "none" if harmless else entry.fault_class
    return _decoded(event, entry, fault_class, row.action, f"{where}: {row.severity}{look_at}", "no" if harmless else "")


def _reason(code: int, event: KernelEvent, unit: str) -> str:
    reason = link_down_reason(registers_in(event.text))
    if unit != "NETIR_LINK_EVT" or reason is None:
        return ""
    return f", reason {reason}" + (" (the far end)" if reason in PEER_REASONS else "")


def _recovery_changed(event: KernelEvent, entry: XidEntry, machine: Machine) -> Assessment:
    if event.recovery_to is None:
        why = "the line does not say which recovery action"
        return _decoded(event, entry, "unknown_code", Action.CONTACT_SUPPORT, why)
    return assess_recovery(event.recovery_to, "XID 154")


_DECODERS: dict[int, Callable[[KernelEvent, XidEntry, Machine], Assessment]] = {
    48: _double_bit,
    64: _remap_failure,
    74: _nvlink4,
    94: _containment,
    95: _containment,
    154: _recovery_changed,
    **dict.fromkeys(range(144, 151), _nvlink5),
}

DECODED_CODES = frozenset(_DECODERS)
"""XIDs whose line decides, not their number alone."""


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


_START_CODES = re.compile(r"RmInitAdapter failed! \(0x[0-9a-fA-F]{1,8}:0x([0-9a-fA-F]{1,8}):\d+\)")


def _assess_host(event: KernelEvent) -> Assessment:
    signal = lookup_signal(event.signal)
    because = f"kernel log: {signal.meaning} ({signal.source})"
    shipped = Assessment(signal.fault_class, signal.action, because, signal.escalation, signal.interrupts_job)
    codes = _START_CODES.search(event.text)
    status = START_STATUS.get(int(codes.group(1), 16)) if codes else None
    if not status:
        return shipped
    fault_class, action, words = status
    return replace(shipped, fault_class=fault_class, action=action, because=f"{because}; its status says that {words}")
