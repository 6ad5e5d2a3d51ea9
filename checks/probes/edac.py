"""Errors of the system's memory as the kernel's EDAC counts them, by memory controller and module."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.probes.kernel_numbers import whole
from checks.probes.looks import Looks
from checks.probes.rates import rose
from checks.thresholds import Thresholds

ROOT = "/sys/devices/system/edac/mc"
DAY_S = 86400.0
_CONTROLLER = re.compile(r"^mc\d+$")
_MODULE = re.compile(r"^(?:dimm|rank)\d+$")


@dataclass(frozen=True)
class Edac:
    """Counts since the driver was loaded, by place: "mc0", or "mc0/dimm1" where modules are told apart."""

    corrected: dict[str, int] = field(default_factory=dict)
    uncorrected: dict[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def read_edac(host: Host) -> Edac:
    """Read the counters; many instance types hide their memory controllers, which is no error."""
    corrected: dict[str, int] = {}
    uncorrected: dict[str, int] = {}
    unread: list[str] = []
    for controller in host.list(ROOT) or ():
        if not _CONTROLLER.match(controller):
            continue
        folder = f"{ROOT}/{controller}"
        for file, found in (("ce_count", corrected), ("ue_count", uncorrected)):
            count = whole(host.read_text(f"{folder}/{file}"))
            if count is not None:
                found[controller] = count
            else:
                unread.append(f"{controller}/{file}")
        corrected.update(_modules(host, controller))
    return Edac(corrected, uncorrected, tuple(unread))


def _modules(host: Host, controller: str) -> dict[str, int]:
    found = {}
    for module in host.list(f"{ROOT}/{controller}") or ():
        if _MODULE.match(module):
            count = whole(host.read_text(f"{ROOT}/{controller}/{module}/dimm_ce_count"))
            if count is not None:
                found[f"{controller}/{module}"] = count
    return found


def counters_of(edac: Edac) -> Iterable[tuple[str, float]]:
    """Name every counter that later looks compare with."""
    yield from ((f"edac/{place}/ce", count) for place, count in edac.corrected.items())


def judge_edac(edac: Edac, looks: Looks, limits: Thresholds, at: float) -> list[Finding]:
    """An error that could not be corrected condemns the machine; corrected ones count when one module has many in a day."""
    findings = []
    if edac.unread:
        findings.append(Finding("edac", Verdict.UNKNOWN, "memory errors could not be read", ", ".join(edac.unread)[:500], at))
    for place, count in edac.uncorrected.items():
        if count:
            summary = f"the system memory at {place} had {count} errors that could not be corrected"
            findings.append(
                Finding("edac", Verdict.CRITICAL, summary, f"ue_count = {count}, threshold 0", at, Action.REPLACE_NODE)
            )
    findings += _many(edac, looks, limits.memory_corrected_per_day, at)
    if (edac.corrected or edac.uncorrected) and not findings:
        total = sum(count for place, count in edac.corrected.items() if "/" not in place)
        summary = f"no memory error was left uncorrected, {total} were corrected"
        findings.append(Finding("edac", Verdict.OK, summary, seen_at=at))
    return findings


def _many(edac: Edac, looks: Looks, most: float, at: float) -> Iterable[Finding]:
    """A controller counts only where its modules are not told apart."""
    told_apart = {place.split("/")[0] for place in edac.corrected if "/" in place}
    for place, count in edac.corrected.items():
        if place in told_apart:
            continue
        rise = rose(looks, f"edac/{place}/ce", count, most, DAY_S)
        if rise is None or rise.amount * DAY_S / max(DAY_S, rise.seconds) <= most:
            continue
        summary = f"the system memory at {place} corrected {rise.amount:g} errors in {rise.seconds / 3600:.1f} h"
        evidence = f"ce_count = {count}; threshold {most:g} a day"
        yield Finding("edac", Verdict.WARN, summary, evidence, at, Action.REPLACE_NODE)
