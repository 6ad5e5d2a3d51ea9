"""A node that somebody else repairs too is restarted only when they stand back; what does not restart it waits for nobody."""

from __future__ import annotations

import pytest

from checks.model import Action, Verdict
from tests.decisions.situations import ACTING, opinion, out
from workflows.decisions.facts import OtherHealers, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

FOUND = OtherHealers(found=["Auto Scaling group gpus"])
REFUSED = FOUND.model_copy(update={"asked": True, "refused": "gpus has MinSize 4"})


def test_others_stand_back_before_the_first_restart_and_it_is_said_why() -> None:
    step = next_step(out(others=FOUND), ACTING)
    assert step.kind is StepKind.STAND_BACK
    assert "Auto Scaling group gpus would replace a node that restarts" in step.because[0]
    told = FOUND.model_copy(update={"asked": True, "told": True})
    assert next_step(out(others=told), ACTING).kind is StepKind.DISRUPT


def test_one_of_whom_it_is_not_known_whether_he_is_there_stands_back_too_and_the_doubt_is_said() -> None:
    doubt = "cannot tell whether NVSentinel is installed: may not list rebootnodes"
    step = next_step(out(others=OtherHealers(found=["NVSentinel (if it is there)"], doubts=[doubt])), ACTING)
    assert step.kind is StepKind.STAND_BACK
    assert step.because[-1] == doubt


def test_a_record_of_an_earlier_run_is_no_proof_that_they_stand_back_now() -> None:
    asked = FOUND.model_copy(update={"asked": True})
    assert next_step(out(others=asked), ACTING).kind is StepKind.STAND_BACK


def test_a_person_is_asked_before_others_are_told() -> None:
    asks = PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REBOOT_NODE: Mode.APPROVE})
    assert next_step(out(others=FOUND), asks).kind is StepKind.ASK_PERSON
    assert next_step(out(others=FOUND, approved=[Action.REBOOT_NODE]), asks).kind is StepKind.STAND_BACK


def test_a_reset_restarts_nothing_and_needs_nobody_to_stand_back() -> None:
    resets = PolicySettings(mode=Mode.ACT, reset_capable_types=["p5.48xlarge"])
    for others in (FOUND, REFUSED):
        step = next_step(out(opinion("reset_needed", Action.RESET_GPU), others=others), resets)
        assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.RESET_GPU)


@pytest.mark.parametrize("soft", [False, True])
def test_who_cannot_be_told_leaves_no_rung_that_restarts_and_the_reason_is_said(soft: bool) -> None:
    step = next_step(out(others=REFUSED), PolicySettings(mode=Mode.ACT, soft_reboot=soft))
    assert step.kind is StepKind.RETIRE
    refused = [line for line in step.because if "gpus has MinSize 4" in line]
    rungs = [Action.REBOOT_NODE, Action.POWER_CYCLE, *([Action.SOFT_REBOOT] if soft else [])]
    assert {line.split(":")[0] for line in refused} == {rung.value for rung in rungs}


def test_a_replacement_does_not_restart_the_node_and_is_left_to_a_waiting_job() -> None:
    step = next_step(out(others=REFUSED, job="train", job_told=True), ACTING)
    assert step.kind is StepKind.REPLACE


def test_a_node_that_passed_its_test_goes_back_whoever_stands_back() -> None:
    step = next_step(out(others=REFUSED, retest=Verdict.OK, burn_in=Verdict.OK), ACTING)
    assert step.kind is StepKind.BACK_IN_SERVICE
