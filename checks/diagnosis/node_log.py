"""Keeps what a node's log of any length says, in memory that does not grow with it, and diagnoses the node from it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from checks.catalog import Assessment, Machine, assess
from checks.diagnosis.diagnose import diagnose
from checks.diagnosis.facts import Hardware, Timing
from checks.diagnosis.history import KEPT_FAULTS, History, PastFault, fault_of
from checks.diagnosis.storms import Sighting, Storm
from checks.kernel_log.bursts import BURST_SILENCE_S, identity
from checks.model import Action, Confidence, Diagnosis, KernelEvent, Verdict
from checks.pci_address import canonical

KEPT_PER_ACTION = 250
"""Different faults that one node's log can keep for each action. Hotspare default: a crash of 8 GPUs shows under a hundred."""

SURVIVES_BOOT = frozenset({"memory_exhausted", "hardware"})
"""Classes that a reboot does not mend, so that their lines count whatever boot they are of."""

DISRUPTIVE = frozenset({Action.RESET_GPU, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE})

_BOOT = re.compile(r"(?:^|[\]:;>\"]\s{0,4})Linux version \d")


@dataclass
class Kept:
    """A fault, with the number of its lines and the Unix time of the first."""

    event: KernelEvent
    meaning: Assessment
    at: Optional[float]
    last_at: Optional[float]
    last_monotonic_s: Optional[float]
    lines: int = 1


@dataclass
class NodeLog:
    """One node's faults since its last boot, each once per burst."""

    node: str
    kept: list[Kept] = field(default_factory=list)
    history: int = 0
    left_out: int = 0
    boot_id: str = ""
    boot_at: Optional[float] = None
    _last: dict[object, Kept] = field(default_factory=dict)
    _past: deque[PastFault] = field(default_factory=lambda: deque(maxlen=KEPT_FAULTS))
    _room: dict[Action, int] = field(default_factory=dict)

    def add(self, event: KernelEvent, at: Optional[float], machine: Machine) -> Assessment:
        """Take in the next event of the log; return what it means."""
        meaning = assess(event, machine)
        if event.companion:
            return meaning
        if self._of_earlier_boot(at) and meaning.fault_class not in SURVIVES_BOOT:
            self.history += 1
            self._remember(event, meaning, at)
            return meaning
        if event.boot_id and event.boot_id != self.boot_id:
            if self.boot_id:
                self.booted(at)
            self.boot_id = event.boot_id
        key = (event.boot_id, canonical(event.pci), identity(event), meaning.fault_class)
        known = self._last.get(key)
        if known and not _apart(known, event, at):
            known.lines += 1
            known.last_at, known.last_monotonic_s = at, event.monotonic_s
        elif self._room.get(meaning.action, 0) >= KEPT_PER_ACTION:
            self.left_out += 1
        else:
            self._room[meaning.action] = self._room.get(meaning.action, 0) + 1
            self._last[key] = Kept(event, meaning, at, at, event.monotonic_s)
            self.kept.append(self._last[key])
        return meaning

    def booted(self, at: Optional[float]) -> None:
        """What came before a boot is history, but for what a boot does not mend. Logs may be given newest first."""
        if self._of_earlier_boot(at):
            return
        before = [one for one in self.kept if at is None or one.last_at is None or one.last_at <= at]
        ids = {id(one) for one in before}
        gone = {id(one) for one in before if one.meaning.fault_class not in SURVIVES_BOOT}
        self.history += len(gone)
        for one in before:
            if id(one) in gone:
                self._remember(one.event, one.meaning, one.at)
        self.kept = [one for one in self.kept if id(one) not in gone]
        self.boot_at = at
        self._last = {key: one for key, one in self._last.items() if id(one) not in ids}
        self._room.clear()
        for one in self.kept:
            self._room[one.meaning.action] = self._room.get(one.meaning.action, 0) + 1

    def _remember(self, event: KernelEvent, meaning: Assessment, at: Optional[float]) -> None:
        """Keep a fault of an earlier boot for the question whether it has come back; one without a time of day cannot tell."""
        if at is None or not any(rule.harmless_too or meaning.action is not Action.NONE for rule in meaning.repeats):
            return
        fault = replace(fault_of(event, meaning, Hardware(), Timing(at)), boot_id=f"before {self.boot_at or at}")
        last = self._past[-1] if self._past else None
        if (
            last is None
            or (last.fault, last.gpu, last.link) != (fault.fault, fault.gpu, fault.link)
            or at - last.at > BURST_SILENCE_S
        ):
            self._past.append(fault)

    def _of_earlier_boot(self, at: Optional[float]) -> bool:
        return at is not None and self.boot_at is not None and at < self.boot_at

    def sightings(self) -> list[tuple[Kept, Sighting]]:
        """The faults as the question for storms sees them."""
        return [(one, _sighting(self.node, one)) for one in self.kept]

    def diagnosis(self, hardware: Hardware, storms: Sequence[Storm], mine: Sequence[tuple[Kept, Sighting]]) -> Diagnosis:
        """Say what is wrong with the node: its own faults first, then what it has its part in.

        `mine` is what `sightings` gave, of which `storms` may have taken some.
        """
        taken = {id(one) for storm in storms for one in storm.sightings}
        own = self._diagnose([kept for kept, seen in mine if id(seen) not in taken], hardware)
        parts = [storm for storm in storms if self.node in storm.nodes]
        if not parts:
            return own
        notes = tuple(f"part of one {storm.kind} incident on {len(storm.nodes)} nodes: {storm.because[0]}" for storm in parts)
        if own.fault_class != "none":
            return replace(own, because=(*own.because, *notes))
        whole = self._diagnose([kept for kept, _ in mine], hardware)
        alone = (f"alone it would be {whole.action.value}: {whole.because[0]}",) if whole.fault_class != "none" else ()
        gravest = next((storm for storm in parts if storm.kind != "application"), None)
        if gravest:
            return Diagnosis(gravest.fault_class, gravest.action, Confidence.LOW, (*notes, *alone), whole.code)
        return replace(whole, because=(*whole.because, *notes))

    def _diagnose(self, kept: Sequence[Kept], hardware: Hardware) -> Diagnosis:
        history = History(tuple(self._past), boot_id="last")
        found = diagnose((), [one.event for one in kept], timing=_timing(kept), hardware=hardware, history=history)
        lines = sum(one.lines for one in kept)
        notes = [f"{lines} lines, of which {len(kept)} tell something new"] if lines > len(kept) else []
        if self.history:
            notes.append(f"{self.history} faults before the last boot in the log are history")
        if self.left_out:
            notes.append(f"{self.left_out} further lines were counted but not weighed: more different faults than are kept")
        if found.fault_class == "none":
            said = [reason for reason in found.because if not reason.startswith(("nothing accuses", "no check gave"))]
            notes = ["the log alone was read, no check of the node", *said, *notes]
            return replace(found, because=("no line of the log accuses the node", *notes))
        return replace(found, because=(*found.because, *notes))


def verdict_of(diagnosis: Diagnosis) -> Verdict:
    """What disrupts the node now is CRITICAL; what can wait, concerns the job or needs a person is WARN; nothing wrong is OK."""
    if diagnosis.fault_class == "none" and diagnosis.action is Action.NONE:
        return Verdict.OK
    return Verdict.CRITICAL if diagnosis.action in DISRUPTIVE and not diagnosis.at_boundary else Verdict.WARN


def tells_of_boot(line: str) -> bool:
    """Say whether a line is the kernel's first of a boot."""
    return "Linux version " in line and bool(_BOOT.search(line))


def _timing(kept: Sequence[Kept]) -> Timing:
    """The end of the log is now. Nothing in a log is too old to be told of; where stamps fall back, time cannot be told."""
    stamped = [one for one in kept if one.last_monotonic_s is not None]
    stamps = [one.event.monotonic_s or 0.0 for one in stamped]
    if any(later < earlier - BURST_SILENCE_S for earlier, later in zip(stamps, stamps[1:])):
        return Timing(0.0, event_age_s=float("inf"))
    uptime_s = max((one.last_monotonic_s or 0.0 for one in stamped), default=None)
    booted = next(
        (one.at - one.event.monotonic_s for one in reversed(stamped) if one.at and one.event.monotonic_s is not None), 0.0
    )
    now = max([booted + (uptime_s or 0.0), *(one.last_at for one in kept if one.last_at is not None)])
    return Timing(now, None if uptime_s is None else now - booted, event_age_s=float("inf"))


def _apart(known: Kept, event: KernelEvent, at: Optional[float]) -> bool:
    for before, after in ((known.last_monotonic_s, event.monotonic_s), (known.last_at, at)):
        if before is not None and after is not None:
            return abs(after - before) > BURST_SILENCE_S
    return False


def _sighting(node: str, one: Kept) -> Sighting:
    event, meaning = one.event, one.meaning
    return Sighting(
        node=node,
        kind=event.kind,
        code=event.code,
        fault_class=meaning.fault_class,
        action=meaning.action,
        at=one.at,
        uptime_s=event.monotonic_s,
        signal=event.signal,
        lines=one.lines,
    )
