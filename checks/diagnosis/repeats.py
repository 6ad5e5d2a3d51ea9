"""Goes one step up where a fault has come back, exactly as the catalog's rule for it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from checks.catalog import Assessment
from checks.catalog.overrides import CLASS_OF_ACTION
from checks.catalog.repeats import RepeatRule
from checks.diagnosis.facts import RANK, Hardware, Timing
from checks.diagnosis.history import SEVERAL_UNITS, History, PastFault, fault_of, occurrence, same_device
from checks.kernel_log.bursts import BURST_SILENCE_S
from checks.model import Action, GpuRef, KernelEvent

_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


@dataclass(frozen=True)
class Before:
    """What was before the present faults: the history with this boot's log in it, and that log."""

    history: History
    timing: Timing
    log: tuple[KernelEvent, ...] = ()

    def weighed(self, event: KernelEvent, meaning: Assessment, hardware: Hardware) -> tuple[Assessment, bool]:
        """Return what an event means after what was before it, and whether the job on the node could change that.

        The action only ever goes up. A rule that asks for less than the line itself is said beside it.
        """
        rules = [rule for rule in meaning.repeats if rule.harmless_too or meaning.action is not Action.NONE]
        if not rules:
            return meaning, False
        fault = occurrence(fault_of(event, meaning, hardware, self.timing), self.history)
        if not fault.lasting and self.timing.now - fault.until > self.timing.event_age_s:
            return meaning, False
        awaits_job = False
        reached = []
        for rule in rules:
            count, open_question = self._count(rule, fault)
            awaits_job = awaits_job or open_question
            if count >= rule.count and not (rule.alone and self._xid_near(fault)):
                reached.append((rule, count))
        if not reached:
            return meaning, awaits_job
        rule, count = max(reached, key=lambda one: RANK.index(one[0].action))
        return _raised(meaning, rule, self._said(rule, count, fault)), awaits_job

    def _count(self, rule: RepeatRule, fault: PastFault) -> tuple[int, bool]:
        """How many events the rule counts, this one included; and whether the name of the job would make it enough."""
        earlier = self._earlier(rule, fault)
        if not rule.other_jobs:
            return 1 + len({past.incident or str(past.at) for past in earlier}), False
        jobs = {past.job for past in earlier if past.job and past.job != fault.job}
        return (1 + len(jobs), False) if fault.job else (1, 1 + len(jobs) >= rule.count)

    def _earlier(self, rule: RepeatRule, fault: PastFault) -> list[PastFault]:
        return [
            past
            for past in self.history.faults
            if past != fault
            and past.fault == fault.fault
            and 0.0 <= fault.at - past.at <= rule.within_s
            and not (fault.incident and past.incident == fault.incident)
            and _same_place(rule.per, past, fault)
            and (not rule.after_repair or self._came_back(past, fault))
        ]

    def _came_back(self, past: PastFault, fault: PastFault) -> bool:
        """Another boot has reset the GPUs, whoever asked for it."""
        other_boot = bool(past.boot_id and fault.boot_id and past.boot_id != fault.boot_id)
        return other_boot or self.history.repaired_between(past.until, fault.at)

    def _xid_near(self, fault: PastFault) -> bool:
        times = [self.timing.when(event.monotonic_s) for event in self.log if event.kind == "xid"]
        return any(at is None or abs(at - fault.at) <= BURST_SILENCE_S for at in times)

    def _said(self, rule: RepeatRule, count: int, fault: PastFault) -> str:
        name = {"xid": f"XID {fault.code}", "sxid": f"SXid {fault.code}"}.get(fault.kind, fault.signal)
        since = min(past.at for past in self._earlier(rule, fault))
        jobs = " under different jobs" if rule.other_jobs else ""
        span = _span(fault.at - since)
        return f'{_ORDINALS.get(count, f"{count}th")} {name} on {_place(rule.per, fault)} in {span}{jobs} (rule: "{rule.text}")'


def _raised(meaning: Assessment, rule: RepeatRule, said: str) -> Assessment:
    if RANK.index(rule.action) <= RANK.index(meaning.action):
        return replace(meaning, because=f"{meaning.because}; {said}: {rule.action.value} before it serves again")
    harmless = meaning.action is Action.NONE
    return replace(
        meaning,
        fault_class=CLASS_OF_ACTION[rule.action],
        action=rule.action,
        because=f"{said}, so {rule.action.value}; alone it would be {meaning.action.value}: {meaning.because}",
        interrupts_job="at_boundary" if harmless else meaning.interrupts_job,
    )


def _same_place(per: str, past: PastFault, fault: PastFault) -> bool:
    if per == "node":
        return True
    if not same_device(past, fault):
        return False
    if per == "link":
        return fault.link is not None and past.link == fault.link
    return per == "device" or (fault.unit not in ("", SEVERAL_UNITS) and past.unit == fault.unit)


def _place(per: str, fault: PastFault) -> str:
    if per == "node":
        return "this node"
    where = {"unit": f"{fault.unit} of ", "link": f"link {fault.link} of "}.get(per, "")
    return where + _device(fault.kind, fault.gpu)


def _device(kind: str, gpu: GpuRef) -> str:
    name = {"xid": "GPU", "sxid": "switch"}.get(kind, "device")
    if gpu.serial:
        return f"{name} serial {gpu.serial}"
    return f"{name} {gpu.uuid or gpu.pci}" if gpu.uuid or gpu.pci else "this node"


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
