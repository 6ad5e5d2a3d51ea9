"""What happened on a node before: each fault once per event, told from this boot's log and from what was remembered of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from checks.catalog import Assessment, assess
from checks.diagnosis.evidence import EVENT_CLASSES, dealt_with, settling
from checks.diagnosis.facts import Hardware, Timing, named, same_gpu
from checks.kernel_log import fold
from checks.kernel_log.bursts import BURST_SILENCE_S
from checks.model import Action, GpuRef, KernelEvent
from checks.pci_address import canonical

REBOOTS = frozenset({Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.POWER_CYCLE})
"""Steps that begin another boot."""

REPAIRS = REBOOTS | {Action.RESET_GPU}
"""Steps after which a fault that is there again has come back."""

KEPT_FAULTS = 64
"""Past faults kept of one node, the newest. Hotspare default: no rule asks for more than the third in a month."""

KEPT_S = 30 * 86_400.0
"""How long a past fault is kept, seconds. Source: the longest window of a repeat rule in the catalog."""

OWN_BOOT_S = 1800.0
"""A boot so soon after a reboot that we called is ours, seconds. Source: ParallelCluster waits 30 min for a node."""

OWN_BOOT_SETTLING_S = 120.0
"""Link training lines of a boot of ours do not count so long, seconds. Hotspare default, as policy.settling_s."""

CLOCK_NOISE_S = 1.0
"""The same line's time, told by two looks, differs by less, seconds. Hotspare default: uptime and clock are read in 10 ms."""

SEVERAL_UNITS = "several"
"""The unit of an event that shows on more than one: a program does that, a bad unit does not."""

_UNIT = re.compile(r"\bGPC\W{0,3}(\d{1,3})\W{1,4}TPC\W{0,3}(\d{1,3})", re.IGNORECASE)
_LINK = re.compile(r"\blink\s{1,3}(\d{1,4})", re.IGNORECASE)


@dataclass(frozen=True)
class PastFault:
    """One event: a burst of lines of one fault in one place. Times are Unix time (s) of its first and last line.

    `lasting` tells of a state that lasts until a repair. `incident` and `job` are empty where they are not known.
    """

    kind: str
    code: Optional[int]
    at: float
    until: float
    signal: str = ""
    gpu: GpuRef = GpuRef()  # noqa: RUF009 - frozen, so safely shared
    link: Optional[int] = None
    unit: str = ""
    lasting: bool = False
    boot_id: str = ""
    job: str = ""
    incident: str = ""

    @property
    def fault(self) -> tuple[str, Optional[int], str]:
        """Which fault it is, wherever it happened."""
        return self.kind, self.code, self.signal


@dataclass(frozen=True)
class PastRepair:
    """A reset, reboot or power cycle of the node, at a Unix time (s)."""

    at: float
    action: Action


@dataclass(frozen=True)
class History:
    """What is known of a node's past, and of its present: the boot, the incident that is open and the job on it, if any."""

    faults: tuple[PastFault, ...] = ()
    repairs: tuple[PastRepair, ...] = ()
    boot_id: str = ""
    incident: str = ""
    job: str = ""

    def repaired_between(self, start: float, end: float) -> bool:
        """Say whether a reset, reboot or power cycle of ours came between two times."""
        return any(start < repair.at <= end for repair in self.repairs if repair.action in REPAIRS)


NO_HISTORY = History()


def fault_of(event: KernelEvent, meaning: Assessment, hardware: Hardware, timing: Timing) -> PastFault:
    """Return an event of the log as it is remembered. One without a stamp is as of now."""
    at = timing.when(event.monotonic_s)
    at = timing.now if at is None else at
    return PastFault(
        kind=event.kind,
        code=event.code,
        at=at,
        until=at,
        signal=event.signal,
        gpu=hardware.complete(GpuRef(pci=canonical(event.pci))) if event.pci else GpuRef(),
        link=_link_of(event),
        unit=_unit_of(event),
        lasting=meaning.action is not Action.NONE and meaning.fault_class not in EVENT_CLASSES,
    )


def with_log(history: History, events: Sequence[KernelEvent], timing: Timing, hardware: Hardware) -> History:
    """Add what this boot's log tells to what was remembered; only faults that a repeat rule counts are kept.

    Lines that were dealt with are remembered already, or were consequences of the repair. Links that train in a boot that we
    caused are no faults.
    """
    timing = replace(timing, settling_s=max(timing.settling_s, _own_boot_settling(history, timing)))
    found = list(_sorted_out(history.faults, hardware, history, timing.now))
    log = [event for event in events if not event.companion and not dealt_with(event, timing) and not settling(event, timing)]
    causes = {id(cause) for burst in fold(log) for cause in burst.causes}
    for event in log:
        meaning = assess(event, hardware.machine)
        if any(rule.harmless_too or meaning.action is not Action.NONE for rule in meaning.repeats):
            _take(found, fault_of(event, meaning, hardware, timing), id(event) in causes, history, timing)
    newest = sorted(found, key=lambda fault: fault.at)[-KEPT_FAULTS:]
    return replace(history, faults=tuple(newest))


def occurrence(fault: PastFault, history: History) -> PastFault:
    """Return the event of the history to which a fault of the present boot belongs, the fault itself where there is none."""
    new = replace(fault, boot_id=history.boot_id)
    return next((known for known in reversed(history.faults) if _same_event(known, new, history)), new)


def same_device(one: PastFault, other: PastFault) -> bool:
    """Say whether two faults were on one GPU, switch or card; two that name none were on the node itself."""
    if named(one.gpu) and named(other.gpu):
        return same_gpu(one.gpu, other.gpu)
    return not named(one.gpu) and not named(other.gpu)


def _take(found: list[PastFault], new: PastFault, begins: bool, history: History, timing: Timing) -> None:
    """Put a line where it belongs: into an event that is known, or as a new one if the line begins one."""
    new = replace(new, boot_id=history.boot_id)
    for place in range(len(found) - 1, -1, -1):
        known = found[place]
        if _same_event(known, new, history) and (begins or new.at >= known.at):
            found[place] = _joined(known, new, history, timing)
            return
    if begins:
        found.append(_of_present(new, history, timing))


def _same_event(known: PastFault, new: PastFault, history: History) -> bool:
    """A burst goes on, or a state lasts: the same fault in the same place and boot, with no repair in between."""
    alike = known.fault == new.fault and known.link == new.link and same_device(known, new)
    if not alike or known.boot_id != new.boot_id:
        return False
    if known.at - BURST_SILENCE_S <= new.at <= known.until + BURST_SILENCE_S:
        return True
    return new.lasting and new.at >= known.at and not history.repaired_between(known.until, new.at)


def _joined(known: PastFault, new: PastFault, history: History, timing: Timing) -> PastFault:
    unit = SEVERAL_UNITS if known.unit and new.unit and known.unit != new.unit else known.unit or new.unit
    until = new.until if new.until > known.until + CLOCK_NOISE_S else known.until
    joined = replace(known, until=until, unit=unit)
    return _of_present(joined, history, timing)


def _of_present(fault: PastFault, history: History, timing: Timing) -> PastFault:
    """A fault that is fresh or lasts is of the incident that is open and of the job that runs, where it is of none yet."""
    if not fault.lasting and timing.now - fault.until > timing.event_age_s:
        return fault
    return replace(fault, incident=fault.incident or history.incident, job=fault.job or history.job)


def _sorted_out(faults: Iterable[PastFault], hardware: Hardware, history: History, now: float) -> Iterable[PastFault]:
    """Drop what is too old. After a power cycle the hardware may be another: a PCI address alone names nothing then."""
    moved_at = max((repair.at for repair in history.repairs if repair.action is Action.POWER_CYCLE), default=float("-inf"))
    for fault in faults:
        if now - fault.until > KEPT_S:
            continue
        if fault.until > moved_at:
            yield replace(fault, gpu=hardware.complete(fault.gpu)) if named(fault.gpu) else fault
        elif fault.gpu.serial or fault.gpu.uuid:
            yield replace(fault, gpu=replace(fault.gpu, pci="", index=None))
        elif not named(fault.gpu):
            yield fault


def _own_boot_settling(history: History, timing: Timing) -> float:
    booted = timing.booted_at
    ours = booted is not None and any(
        repair.at <= booted + BURST_SILENCE_S and booted - repair.at <= OWN_BOOT_S
        for repair in history.repairs
        if repair.action in REBOOTS
    )
    return OWN_BOOT_SETTLING_S if ours else 0.0


def _link_of(event: KernelEvent) -> Optional[int]:
    """The link that a line names. XID 74 names it in its words; -1 in NVLink 5 lines is none."""
    if event.link is not None:
        return event.link if event.link >= 0 else None
    found = _LINK.search(event.text) if event.kind == "xid" and event.code == 74 else None
    return int(found.group(1)) if found else None


def _unit_of(event: KernelEvent) -> str:
    """The GPC and TPC that a line names, such as "GPC 3 TPC 1"; empty where it names none."""
    found = _UNIT.search(event.text) if event.kind == "xid" else None
    return f"GPC {int(found.group(1))} TPC {int(found.group(2))}" if found else ""
