"""Signals that have taken healthy nodes out of service elsewhere: what the policy does about what is diagnosed from them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from activities.node import Opinion
from checks.diagnosis import Hardware, ReportedFault, Timing, diagnose
from checks.kernel_log import read_lines
from checks.model import Action, Finding, Verdict
from tests.decisions.situations import ACTING, examination, facts, out
from workflows.decisions.facts import Facts, RungOutcome, RungTaken, Spare, StepKind
from workflows.decisions.policy import next_step

FINE = (Finding("gpu_count", Verdict.OK, "all 8 GPUs are on the bus and answer"), Finding("nvml", Verdict.OK, "8 GPUs answer"))
UNREAD = (Finding("nvml", Verdict.UNKNOWN, "the GPUs could not be read"),)
NO_ROW = "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped"
LEAVES_THE_NODE_ALONE = {StepKind.CLOSE, StepKind.EXAMINE, StepKind.ASK_PERSON}


def xid(code: int, at: float, text: str = "text") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:0000:1b:00): {code}, pid=1, name=python, {text}"


def weighed(
    *lines: str,
    findings: Sequence[Finding] = FINE,
    reports: Sequence[ReportedFault] = (),
    uptime_s: float = 5000.0,
    settling_s: float = 0.0,
) -> Opinion:
    """What the checks make of a node, as an incident knows it."""
    found = diagnose(
        findings,
        list(read_lines(lines)),
        reports,
        timing=Timing(1_800_000_000.0, uptime_s, settling_s),
        hardware=Hardware("p5.48xlarge"),
    )
    return Opinion(
        fault_class=found.fault_class,
        action=found.action,
        confidence=found.confidence,
        because=list(found.because),
        code=found.code,
        at_boundary=found.at_boundary,
    )


def situation(what: Opinion, verdict: Verdict = Verdict.OK, **changes: object) -> Facts:
    return facts(what, examination=examination(what, verdict=verdict), **changes)


@pytest.mark.parametrize("code", [43, 45])
def test_what_a_dead_job_leaves_in_the_log_closes_the_incident(code: int) -> None:
    """https://github.com/NVIDIA/NVSentinel/pull/1629"""
    step = next_step(situation(weighed(xid(code, 4990))), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "nothing found")


@pytest.mark.parametrize("code", [13, 31, 137])
def test_an_application_fault_restarts_the_job_and_quarantines_nothing(code: int) -> None:
    """https://github.com/NVIDIA/NVSentinel/pull/1629"""
    what = weighed(xid(code, 4990))
    assert next_step(situation(what, Verdict.WARN, job="train"), ACTING).kind is StepKind.ASK_ALONE
    assert next_step(situation(what, Verdict.WARN, job="train", alone=True), ACTING).kind is StepKind.TELL_JOB
    assert next_step(situation(what, Verdict.WARN), ACTING).outcome == "nothing to restart"


def test_a_fault_that_shows_on_many_nodes_at_once_pages_once_and_takes_no_node_out() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1701"""
    event = {"storm": "214 of 288 nodes show gpu_lost", "storm_id": "storm/lab/fleet/20261101T030000"}
    what = weighed(xid(79, 4990))
    assert next_step(situation(what, Verdict.CRITICAL, **event), ACTING).kind is StepKind.JOIN_STORM
    step = next_step(situation(what, Verdict.CRITICAL, storm_joined=True, **event), ACTING)
    assert (step.kind, step.outcome, step.page) == (StepKind.CLOSE, "part of a storm", "")  # its storm pages, once


def test_links_that_train_after_our_reboot_lead_to_the_re_test_never_to_another_reboot() -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1701"""
    training = "[   38.178720] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 44 LTSSM Fault Up"
    what = weighed(training, uptime_s=90, settling_s=ACTING.settling_s)
    rebooted = out(what, examination=examination(what, verdict=Verdict.OK), disrupted=True, spare=Spare.NONE_FREE)
    assert next_step(rebooted, ACTING).kind is StepKind.RETEST


def test_a_passing_burn_in_overrules_a_passive_signal() -> None:
    """https://github.com/NVIDIA/aicr/issues/2641"""
    tested = out(disrupted=True, retest=Verdict.OK, burn_in=Verdict.OK)
    assert next_step(tested, ACTING).kind is StepKind.BACK_IN_SERVICE


@pytest.mark.parametrize("alert", ["DCGM_FR_IMEX_UNHEALTHY", "IPAMDNotReady", "NetworkingReady is False"])
def test_an_alert_alone_closes_when_the_node_was_looked_at_and_is_well(alert: str) -> None:
    """https://github.com/NVIDIA/DCGM/issues/308, https://github.com/aws/containers-roadmap/issues/2536"""
    assert next_step(facts(examination=None), ACTING).kind is StepKind.EXAMINE
    step = next_step(situation(weighed(reports=[ReportedFault("alertmanager", what=alert)])), ACTING)
    assert (step.kind, step.outcome) == (StepKind.CLOSE, "nothing found")


@pytest.mark.parametrize("looks", range(6))
def test_a_monitor_that_cannot_read_the_node_replaces_nothing_however_often_it_fails(looks: int) -> None:
    """https://github.com/aws/containers-roadmap/issues/2555, https://github.com/aws/eks-node-monitoring-agent/pull/107,
    https://github.com/aws/sagemaker-hyperpod-cli/pull/425
    """
    step = next_step(situation(weighed(findings=UNREAD), Verdict.UNKNOWN, unreadable_probes=looks), ACTING)
    assert step.kind in LEAVES_THE_NODE_ALONE
    assert step.outcome in ("", "monitor failed")


def test_a_row_remap_failure_is_never_reset_or_rebooted() -> None:
    """https://github.com/awslabs/awsome-distributed-ai/pull/1190"""
    what = weighed(xid(64, 4990, NO_ROW))
    assert what.action is Action.REPLACE_NODE
    for spare in (Spare.NOT_ASKED, Spare.NONE_SEEN, Spare.NONE_FREE):
        assert next_step(out(what, job="train", job_told=True, spare=spare), ACTING).kind is not StepKind.DISRUPT


def test_an_old_application_fault_holds_no_node() -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/1014, https://github.com/aws/eks-node-monitoring-agent/issues/215"""
    assert next_step(situation(weighed(xid(31, 100), uptime_s=3 * 86_400)), ACTING).outcome == "nothing found"


@pytest.mark.parametrize("result", [Verdict.UNKNOWN, Verdict.WARN])
def test_a_burn_in_that_does_not_clearly_fail_disrupts_nothing(result: Verdict) -> None:
    """https://github.com/Azure/azurehpc-health-checks/issues/142"""
    rebooted = [RungTaken(rung=Action.REBOOT_NODE, outcome=RungOutcome.HELPED)]
    tested = out(disrupted=True, retest=Verdict.OK, burn_in=result, taken=rebooted)
    assert next_step(tested, ACTING).kind in (StepKind.ASK_PERSON, StepKind.BACK_IN_SERVICE)


def test_a_missing_measurement_certifies_no_node() -> None:
    """https://github.com/NVIDIA/cluster-readiness-engine/pull/6"""
    for retest, burn_in in ((Verdict.UNKNOWN, None), (Verdict.OK, Verdict.UNKNOWN), (None, None)):
        step = next_step(out(disrupted=True, retest=retest, burn_in=burn_in, spare=Spare.NONE_FREE), ACTING)
        assert step.kind not in (StepKind.BACK_IN_SERVICE, StepKind.RETURN_TO_POOL)
