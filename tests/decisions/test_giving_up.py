"""A node that nothing mends is drained only where that has it replaced, last of all, and with its evidence kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.capacity import Reservation, Slot
from checks.model import Action, Verdict
from tests.decisions.situations import ACTING, NOW, opinion, out
from workflows.decisions.facts import Facts, Spare, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

EXHAUSTED = opinion("memory_exhausted", Action.REPLACE_NODE, 64)
KEPT = "s3://evidence/incident_lab_i-1-abc.tar.gz"


def given_up(**changes: Any) -> Facts:
    """A node with a fault that nothing mends, where a drain has it replaced."""
    return out(EXHAUSTED, **{"drain_replaces": True, "evidence_uri": KEPT, **changes})


def test_a_node_that_nothing_mends_is_drained_where_that_replaces_it_and_retired_elsewhere() -> None:
    step = next_step(given_up(), ACTING)
    assert (step.kind, step.deadline_s) == (StepKind.REPLACE_BY_DRAIN, ACTING.gone_deadline_s)
    assert any(KEPT in line for line in step.because)
    assert next_step(given_up(drain_replaces=False), ACTING).kind is StepKind.RETIRE


def test_the_job_comes_first() -> None:
    waiting = {"job": "train", "job_told": True}
    assert next_step(given_up(**waiting), ACTING).kind is StepKind.REPLACE
    assert next_step(given_up(**waiting, spare=Spare.NONE_FREE), ACTING).kind is StepKind.GIVE_UP_NODE
    swapped = {**waiting, "spare": Spare.READY, "job_answered": True}
    assert next_step(given_up(**swapped), ACTING).kind is StepKind.AWAIT_JOB
    assert (
        next_step(given_up(**swapped, job_done=True, job_outcome="resumed at step 7"), ACTING).kind is StepKind.REPLACE_BY_DRAIN
    )


@pytest.mark.parametrize("missing", ["quarantined", "evidence_taken"])
def test_nothing_is_drained_before_quarantine_and_evidence(missing: str) -> None:
    room = {"quarantine_room": False} if missing == "quarantined" else {}
    assert next_step(given_up(**{missing: False}, **room), ACTING).kind in (StepKind.ASK_LEAVE, StepKind.COLLECT_EVIDENCE)


@pytest.mark.parametrize(
    ("changes", "policy", "why"),
    [
        ({"evidence_uri": ""}, ACTING, "evidence is not saved"),
        ({"not_drained": "the drain was refused: a job is still there"}, ACTING, "a job is still there"),
        ({"skipped_steps": ["REPLACE_NODE"]}, ACTING, "a person said to skip it"),
        ({}, PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REPLACE_NODE: Mode.OBSERVE}), "its mode is observe"),
        ({}, PolicySettings(mode=Mode.ACT, ladders={"memory_exhausted": []}), "not on the ladder"),
    ],
)
def test_what_holds_for_a_replacement_holds_for_the_drain_and_the_reason_is_told(
    changes: dict[str, Any], policy: PolicySettings, why: str
) -> None:
    step = next_step(given_up(**changes), policy)
    assert step.kind is StepKind.RETIRE
    assert any(why in line for line in step.because)


def test_in_approve_mode_a_person_is_asked_and_told_what_the_drain_does() -> None:
    policy = PolicySettings(mode=Mode.APPROVE)
    asked = next_step(given_up(), policy)
    assert (asked.kind, asked.rung) == (StepKind.ASK_PERSON, Action.REPLACE_NODE)
    assert any("terminated by its cluster" in line for line in asked.because)
    assert next_step(given_up(approved=[Action.REPLACE_NODE]), policy).kind is StepKind.REPLACE_BY_DRAIN


def test_who_approves_the_swap_hears_of_the_drain_that_may_follow() -> None:
    asked = next_step(given_up(job="train", job_told=True), PolicySettings(mode=Mode.APPROVE))
    assert asked.kind is StepKind.ASK_PERSON
    assert any("drained afterwards" in line for line in asked.because)


def test_a_node_that_can_be_mended_or_has_been_is_not_drained() -> None:
    broken = out(drain_replaces=True, evidence_uri=KEPT)
    assert next_step(broken, ACTING).kind is StepKind.DISRUPT
    mended = {"disrupted": True, "retest": Verdict.OK, "burn_in": Verdict.OK}
    assert next_step(given_up(**mended), ACTING).kind is StepKind.BACK_IN_SERVICE
    assert next_step(given_up(**mended, back_in_service=True), ACTING).kind is StepKind.CLOSE


def test_what_capacity_it_runs_in_is_seen_anew_before_the_slot_is_given_up() -> None:
    long_ago = NOW - timedelta(seconds=ACTING.slot_age_s + 1)
    assert next_step(given_up(slot=None, slot_at=None), ACTING).kind is StepKind.LOOK_AT_SLOT
    assert next_step(given_up(slot_at=long_ago), ACTING).kind is StepKind.LOOK_AT_SLOT


def test_the_last_usable_slot_of_a_reservation_is_not_given_up_and_an_open_one_is_a_persons_to_risk() -> None:
    held = Reservation(reservation_id="cr-1", state="active", match="targeted", total=4, available=0)
    kept = next_step(given_up(slot=Slot(reservation=held, usable_elsewhere=0)), ACTING)
    assert kept.kind is StepKind.RETIRE
    assert any("last usable slot of cr-1" in line for line in kept.because)
    assert next_step(given_up(slot=Slot(reservation=held, usable_elsewhere=3)), ACTING).kind is StepKind.REPLACE_BY_DRAIN
    risky = {"slot": Slot(reservation=held.model_copy(update={"match": "open"}), usable_elsewhere=3)}
    asked = next_step(given_up(**risky), ACTING)
    assert (asked.kind, asked.rung) == (StepKind.ASK_PERSON, Action.REPLACE_NODE)
    assert next_step(given_up(**risky, approved=[Action.REPLACE_NODE]), ACTING).kind is StepKind.REPLACE_BY_DRAIN
