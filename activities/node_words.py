"""From the checks' words to those of history: a probe's answer as an examination, a deep test as one verdict, cut to size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from activities.burn_in import GroupTestResult
from activities.gpu_records import same_host
from activities.host_memory import RungAttempt
from activities.host_records import SpareTest
from activities.inventory import Node
from activities.node_messages import DeepTest, DeepTestResult, Examination, Examine, Gpu, Opinion, Report, Seen
from activities.parity import JoinVerdict
from activities.probing import ProbeAnswer
from checks.catalog import Override
from checks.diagnosis import Hardware, History, ReportedFault, Timing, diagnose
from checks.diagnosis.candidates import FINDING_CLASSES
from checks.model import Action, Confidence, Diagnosis, Finding, GpuRef, Verdict

LINE_LIMIT = 400
"""Characters kept of one line that enters history. Hotspare default: an incident's whole history stays under 60 KB."""

LINES = 12
"""Findings and reasons kept of one examination. Hotspare default: what an operator reads; the rest is in the evidence bundle."""

CONFIGURATION = "configuration"
"""Fault class, and cause of a test's verdict: how the node is set up."""

_WORST_FIRST = (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN, Verdict.OK)


def weigh(answer: ProbeAnswer, request: Examine, overrides: Mapping[str, Override], history: History | None = None) -> Diagnosis:
    """Diagnose what the probe saw together with what was reported and what was before, leaving out what was dealt with.

    `overrides` are the settings' own meanings of single codes.
    """
    timing, hardware = evidence_of(answer, request, overrides)
    reports = [_reported(report) for report in request.reports if not report.resolved]
    return diagnose(answer.findings, answer.events, reports, timing=timing, hardware=hardware, history=history or History())


def evidence_of(answer: ProbeAnswer, request: Examine, overrides: Mapping[str, Override]) -> tuple[Timing, Hardware]:
    """Return when a probe looked and what of its evidence counts, and the machine that it saw."""
    taken_at = answer.taken_at.timestamp()
    after_s = None
    if request.handled_until is not None and answer.uptime_s is not None:
        after_s = request.handled_until.timestamp() - (taken_at - answer.uptime_s)
    timing = Timing(now=taken_at, uptime_s=answer.uptime_s, settling_s=request.settling_s, after_s=after_s)
    return timing, Hardware(answer.instance_type or request.node.instance_type, answer.gpus, answer.driver_version, overrides)


def _reported(report: Report) -> ReportedFault:
    gpu = GpuRef(index=report.gpu.index, uuid=report.gpu.uuid, pci=report.gpu.pci, serial=report.gpu.serial)
    seen_at = report.seen_at.timestamp() if report.seen_at else 0.0
    return ReportedFault(report.source, report.xid, report.sxid, report.what, gpu, seen_at)


def examination(answer: ProbeAnswer, diagnosis: Diagnosis) -> Examination:
    """Build the examination of a node that could be read: findings that are not OK, worst first, and the opinion."""
    notable = [finding for finding in answer.findings if finding.verdict is not Verdict.OK]
    notable.sort(key=lambda finding: _WORST_FIRST.index(finding.verdict))
    return Examination(
        reachable=True,
        verdict=answer.verdict,
        opinion=Opinion(
            fault_class=diagnosis.fault_class,
            action=diagnosis.action,
            confidence=diagnosis.confidence,
            because=[reason[:LINE_LIMIT] for reason in diagnosis.because[:LINES]],
            code=diagnosis.code,
            gpu=_gpu(diagnosis.gpu),
            at_boundary=diagnosis.at_boundary,
            awaits_job=diagnosis.awaits_job,
        ),
        boot_id=answer.boot_id,
        taken_at=answer.taken_at,
        findings=[_seen(finding) for finding in notable[:LINES]],
        gpu_serials=[gpu.serial for gpu in answer.gpus if gpu.serial],
        gpu_processes=answer.gpu_processes,
        uptime_s=answer.uptime_s,
    )


def with_ledger(seen: Examination, bans: Sequence[str], elsewhere: Sequence[RungAttempt]) -> Examination:
    """Add what host memory says of the node's GPUs: one that is banned is a finding, and as bad as any."""
    if not bans and not elsewhere:
        return seen
    found = [Seen(check="ledger", verdict=Verdict.CRITICAL, summary=ban[:LINE_LIMIT]) for ban in bans]
    return seen.model_copy(
        update={
            "verdict": Verdict.CRITICAL if bans else seen.verdict,
            "findings": [*found, *seen.findings][:LINES],
            "known_bad": [ban[:LINE_LIMIT] for ban in bans[:LINES]],
            "elsewhere": list(elsewhere[-LINES:]),
        }
    )


def unreadable(node: Node, why: str, *, answers: bool, boot_id: str = "") -> Examination:
    """Build the examination of a node whose state is unknown. One that answers has a broken monitor, not a fault."""
    because = f"{node.name} answers, but its state is unknown: {why}" if answers else f"{node.name} does not answer: {why}"
    return Examination(
        reachable=answers,
        verdict=Verdict.UNKNOWN,
        opinion=Opinion(
            fault_class="none" if answers else "unreachable",
            action=Action.NONE if answers else Action.REBOOT_NODE,
            confidence=Confidence.LOW if answers else Confidence.MEDIUM,
            because=[because[:LINE_LIMIT]],
        ),
        boot_id=boot_id,
        taken_at=datetime.now(UTC),
        why_unreachable="" if answers else why[:LINE_LIMIT],
    )


def too_ill(before: Examination) -> DeepTestResult | None:
    """Return the verdict on a node that is not well enough to be tested under load, or None."""
    if not before.reachable or before.verdict in (Verdict.CRITICAL, Verdict.UNKNOWN):
        reasons = [*before.opinion.because, *_summaries(before)] or ["the node could not be read"]
        if _only_configuration(before):
            return _result(Verdict.UNKNOWN, reasons, before).model_copy(update={"cause": CONFIGURATION})
        return _result(before.verdict if before.reachable else Verdict.UNKNOWN, reasons, before)
    return None


def on_the_same_host(request: DeepTest, before: Examination) -> DeepTestResult | None:
    """Return the verdict on a node that was stopped to get another host and came back on the same, or None."""
    same = same_host(request.left_host, before.gpu_serials)
    if not same:
        return None
    because = f"it is on the same host as before it was stopped (GPU serials {', '.join(same)}): the stop changed nothing"
    return _result(Verdict.CRITICAL, [because, "no load test was started"], before).model_copy(update={"cause": "same_host"})


def not_started(reasons: list[str], before: Examination) -> DeepTestResult:
    """Build the result of a test that was not started on a node that may be well, because it is not free or not ours."""
    because = [*reasons, "no load test was started"]
    return _result(Verdict.UNKNOWN, because, before).model_copy(update={"cause": "could_not_run"})


def differs(parity: JoinVerdict, before: Examination) -> DeepTestResult:
    """Build the result of a test that was not started because the node is set up otherwise than those that it would join."""
    because = [f"configuration: {difference}" for difference in parity.differences]
    return _result(Verdict.WARN, because, before).model_copy(update={"cause": CONFIGURATION})


def deep_result(alone: GroupTestResult, after: Examination, parity: JoinVerdict) -> DeepTestResult:
    """Join the one-node run and the look after it: the worst of both, and OK only when both are.

    A node whose only trouble is its configuration has no verdict: a person mends that, and no repair or replacement.
    """
    verdict = min((alone.verdict, after.verdict), key=_WORST_FIRST.index)
    misconfigured = alone.verdict is Verdict.OK and _only_configuration(after)
    run = f"all_reduce_perf on this node alone: {alone.cause}; {alone.evidence}"
    reasons = [run, *(_summaries(after) or ["probe after the run: nothing found"])]
    if not after.reachable:
        reasons.append(f"after the run: {after.why_unreachable}")
    reasons += [f"configuration: {difference}" for difference in parity.differences]
    reasons += [parity.said] if parity.said else []
    cause = CONFIGURATION if misconfigured else alone.cause
    numbers = {"cause": cause, "busbw_gbs": alone.busbw_gbs, "floor_gbs": alone.floor_gbs}
    return _result(Verdict.UNKNOWN if misconfigured else verdict, reasons, after).model_copy(update=numbers)


def trusted(test: SpareTest, before: Examination, parity: JoinVerdict) -> DeepTestResult:
    """Build the result for a spare that passed its own test in this boot, and of which the look now finds nothing."""
    hours = (before.taken_at - test.at).total_seconds() / 3600
    passed = f"passed its whole test {hours:.1f} h ago in this boot; looked at now: nothing found"
    return _result(Verdict.OK, [passed, *([parity.said] if parity.said else [])], before).model_copy(update={"cause": "healthy"})


def _only_configuration(seen: Examination) -> bool:
    """Whether something is wrong with a node that could be read, and all of it is how it is set up."""
    classes = {FINDING_CLASSES.get(finding.check, "") for finding in seen.findings}
    return classes == {CONFIGURATION} and Verdict.UNKNOWN not in {finding.verdict for finding in seen.findings}


def _result(verdict: Verdict, because: list[str], seen: Examination) -> DeepTestResult:
    short = [reason[:LINE_LIMIT] for reason in because[:LINES]]
    return DeepTestResult(verdict=verdict, because=short, boot_id=seen.boot_id, gpu_serials=seen.gpu_serials)


def _summaries(seen: Examination) -> list[str]:
    return [f"{finding.check}: {finding.verdict.value}: {finding.summary}" for finding in seen.findings]


def _seen(finding: Finding) -> Seen:
    return Seen(
        check=finding.check,
        verdict=finding.verdict,
        summary=finding.summary[:LINE_LIMIT],
        evidence=finding.evidence[:LINE_LIMIT],
        gpu=_gpu(finding.gpu),
    )


def _gpu(gpu: GpuRef | None) -> Gpu:
    return Gpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci, serial=gpu.serial) if gpu else Gpu()
