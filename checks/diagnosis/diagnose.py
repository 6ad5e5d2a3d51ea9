"""From all that is known of a node to one diagnosis, with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from checks.catalog import lookup_xid
from checks.diagnosis.candidates import KERNEL_CHECKS, SECOND_SIGNALS, Candidate, from_events, from_findings
from checks.diagnosis.evidence import current_events
from checks.diagnosis.facts import RANK, Hardware, ReportedFault, Timing, named, same_gpu
from checks.diagnosis.history import NO_HISTORY, History, with_log
from checks.diagnosis.repeats import Before
from checks.kernel_log.nvidia_lines import RECOVERY_ACTION_CHANGED
from checks.model import Action, Confidence, Diagnosis, Finding, KernelEvent, Verdict

KERNEL_KINDS = frozenset({"xid", "sxid", "host"})
NOTES_LIMIT = 12
"""Reasons that a diagnosis carries at most. Hotspare default: what a person reads."""


def diagnose(
    findings: Sequence[Finding],
    events: Sequence[KernelEvent] = (),
    reports: Sequence[ReportedFault] = (),
    *,
    timing: Timing,
    hardware: Optional[Hardware] = None,
    history: History = NO_HISTORY,
) -> Diagnosis:
    """Weigh everything; an accusation needs a kernel line of this boot or a reading of the node, a report alone is not enough.

    Confidence is HIGH when a kernel line and a reading agree, MEDIUM for one of them alone. "none" is HIGH only when every check
    could be made; where something could not be read it is LOW, and says what. A fault that, by `history` or the log, has come
    back asks for what the catalog says of its repeat.
    """
    machine = hardware or Hardware()
    readings = [finding for finding in findings if finding.check not in KERNEL_CHECKS]
    current = current_events(events, timing, reports)
    past = with_log(history, events, timing, machine)
    accused, notes = from_events(current.events, readings, machine, Before(past, timing, tuple(events)))
    accused += _not_yet_said(from_findings(readings, machine), accused)
    notes += list(current.notes)
    said, agreed = _weigh_reports(reports, accused, timing)
    if not accused:
        return _nothing(readings, said + notes)
    chosen = max(accused, key=lambda one: (_rank(one), not one.at_boundary, len(one.seconds), not _says_only_what(one)))
    others = [f"also: {one.because}" for one in accused if one is not chosen]
    backed = bool(chosen.seconds) or chosen in agreed
    because = [chosen.because, *(f"second signal: {second}" for second in chosen.seconds), *said, *others, *notes]
    return Diagnosis(
        fault_class=chosen.fault_class,
        action=chosen.action,
        confidence=Confidence.HIGH if backed else Confidence.MEDIUM,
        because=_short(because),
        code=chosen.code,
        gpu=chosen.gpu,
        at_boundary=chosen.at_boundary,
        awaits_job=any(one.awaits_job for one in accused),
    )


def _rank(candidate: Candidate) -> int:
    return RANK.index(candidate.action)


def _says_only_what(candidate: Candidate) -> bool:
    """Say whether it is the driver's recovery action: that says what to do, and a fault beside it why."""
    return candidate.kind == "xid" and candidate.code == RECOVERY_ACTION_CHANGED


def _not_yet_said(found: list[Candidate], accused: list[Candidate]) -> list[Candidate]:
    """Drop readings that already back an accusation of the kernel log which asks for as much or more."""
    return [one for one in found if not any(one.because in other.seconds and _rank(other) >= _rank(one) for other in accused)]


def _weigh_reports(
    reports: Sequence[ReportedFault], accused: list[Candidate], timing: Timing
) -> tuple[list[str], list[Candidate]]:
    """Say of each report whether something on the node confirms it, and return the readings that a report agrees with.

    Reports never accuse by themselves. One that agrees with a kernel line adds little: both come from the same driver.
    """
    said: list[str] = []
    agreed: list[Candidate] = []
    for report in reports:
        confirming = [candidate for candidate in accused if _confirms(candidate, report)]
        if timing.booted_at is not None and 0.0 < report.seen_at < timing.booted_at:
            said.append(f"{report.source} reported {report.name} before the last boot, so it is history")
        elif report.xid is None and report.sxid is None:
            said.append(f"{report.source} reported: {report.name}; it names no code that could be looked for")
        elif confirming:
            said.append(f"{report.source} reported {report.name}: confirmed on the node")
            agreed += [candidate for candidate in confirming if candidate.kind not in KERNEL_KINDS]
        else:
            said.append(f"{report.source} reported {report.name}: not confirmed, neither kernel log nor readings show it")
    return said, agreed


def _confirms(candidate: Candidate, report: ReportedFault) -> bool:
    """Say whether a candidate is what was reported: same code or a reading of its kind, on the same GPU where both name one."""
    if candidate.gpu is not None and named(report.gpu) and not same_gpu(candidate.gpu, report.gpu):
        return False
    if candidate.kind in KERNEL_KINDS:
        return (candidate.kind, candidate.code) in (("xid", report.xid), ("sxid", report.sxid))
    accuses_of = lookup_xid(report.xid).fault_class if report.xid is not None else "fabric"
    return candidate.kind in SECOND_SIGNALS.get(accuses_of, ())


def _nothing(readings: Sequence[Finding], notes: list[str]) -> Diagnosis:
    unread = [finding.summary for finding in readings if finding.verdict is Verdict.UNKNOWN]
    if unread or not readings:
        because = ["nothing accuses the node, but not all could be read", *(unread or ["no check gave a finding"]), *notes]
        return Diagnosis("none", Action.NONE, Confidence.LOW, _short(because))
    because = ["no fault line of this boot counts, and every reading is in order", *notes]
    return Diagnosis("none", Action.NONE, Confidence.HIGH, _short(because))


def _short(because: list[str]) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(because))
    if len(distinct) <= NOTES_LIMIT:
        return tuple(distinct)
    return (*distinct[: NOTES_LIMIT - 1], f"and {len(distinct) - NOTES_LIMIT + 1} more")
