"""A stop gives the slot up: when it is refused, when a person is asked, and how long a node that finds no capacity waits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.capacity import Reservation, Slot
from activities.node import Opinion
from checks.model import Action
from tests.decisions.situations import ACTING, NOW, opinion, out
from workflows.decisions.facts import Facts, RungOutcome, RungTaken, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

HELD = Reservation(reservation_id="cr-1", account="1", state="active", total=8, available=1)
REBOOTED = [RungTaken(rung=Action.REBOOT_NODE, outcome=RungOutcome.DID_NOT_HELP)]
LIMIT = timedelta(seconds=ACTING.slot_back_p90_s + ACTING.block_end_margin_s)


def stops(slot: Slot | None = None, age_s: float = 0.0, **changes: object) -> Facts:
    """A node whose next rung is the stop and start."""
    start: dict[str, object] = {"taken": REBOOTED, "slot": slot, "slot_at": NOW - timedelta(seconds=age_s) if slot else None}
    return out(**{**start, **changes})  # type: ignore[arg-type]


def held(**changes: object) -> Slot:
    """A slot of a reservation that has others of ours."""
    slot = {key: changes.pop(key) for key in ("usable_elsewhere", "of_others", "foreign") if key in changes}
    return Slot(reservation=HELD.model_copy(update=changes), **{"usable_elsewhere": 6, **slot})  # type: ignore[arg-type]


def test_what_a_stop_gives_up_is_looked_at_before_it_and_again_when_that_is_long_ago() -> None:
    for facts in (stops(), stops(held(), age_s=ACTING.slot_age_s + 1)):
        step = next_step(facts, ACTING)
        assert step.kind is StepKind.LOOK_AT_SLOT
        assert "POWER_CYCLE gives the slot of node-1 up" in step.because[0]
    step = next_step(stops(held()), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.POWER_CYCLE)


def test_a_reboot_keeps_the_slot_and_asks_for_no_look() -> None:
    assert next_step(out(), ACTING).kind is StepKind.DISRUPT


def test_on_demand_capacity_without_a_reservation_may_be_stopped() -> None:
    step = next_step(stops(Slot()), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.POWER_CYCLE)


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (held(usable_elsewhere=0, total=1, available=0), "the last usable slot of cr-1 (1 in all)"),
        (held(usable_elsewhere=0), "the last usable slot of cr-1 (8 in all)"),
        (held(ends_at=NOW + timedelta(minutes=10), kind="capacity-block"), "Capacity Block cr-1 ends at 2026-11-01 03:10 UTC"),
        (held(ends_at=NOW + LIMIT - timedelta(seconds=1)), "reservation cr-1 ends at"),
        (held(ends_at=NOW - timedelta(minutes=1)), "in 0 minutes"),
        (held(state="expired"), "cr-1 is expired"),
        (Slot(lifecycle="spot"), "a Spot instance that stops"),
    ],
)
def test_a_slot_that_would_not_come_back_is_never_given_up_whoever_approves(slot: Slot, words: str) -> None:
    for approved in ([], [Action.POWER_CYCLE]):
        step = next_step(stops(slot, approved=approved), ACTING)
        assert step.kind is StepKind.RETIRE
        assert any(line.startswith("POWER_CYCLE: ") and words in line for line in step.because), step.because


def test_there_is_time_left_until_exactly_the_repair_and_forty_minutes_before_the_end() -> None:
    assert next_step(stops(held(ends_at=NOW + LIMIT)), ACTING).kind is StepKind.DISRUPT


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (held(match="open"), "cr-1 is open: any matching instance"),
        (held(foreign=True, account="2"), "belongs to account 2"),
        (held(of_others=3), "3 instances in cr-1 are not of this cluster"),
        (Slot(unknown="AccessRefused"), "is not known (AccessRefused)"),
    ],
)
def test_a_slot_that_others_may_take_meanwhile_is_a_persons_to_risk(slot: Slot, words: str) -> None:
    step = next_step(stops(slot), ACTING)
    assert (step.kind, step.rung) == (StepKind.ASK_PERSON, Action.POWER_CYCLE)
    assert words in step.because[0]
    step = next_step(stops(slot, approved=[Action.POWER_CYCLE]), ACTING)
    assert (step.kind, step.rung) == (StepKind.DISRUPT, Action.POWER_CYCLE)


def test_a_capacity_block_is_nobody_elses_though_ec2_calls_it_open() -> None:
    step = next_step(stops(held(match="open", kind="capacity-block", ends_at=NOW + timedelta(days=2))), ACTING)
    assert step.kind is StepKind.DISRUPT


def test_the_slot_is_looked_at_before_a_running_job_is_stopped_for_the_stop_of_its_node() -> None:
    what = Opinion(fault_class="gpu_lost", action=Action.REBOOT_NODE, because=["XID 79"])
    facts = stops(opinion=what, job="train", job_running=True)
    assert next_step(facts, ACTING).kind is StepKind.LOOK_AT_SLOT
    known = facts.model_copy(update={"slot": held(match="open"), "slot_at": NOW})
    assert next_step(known, ACTING).kind is StepKind.ASK_PERSON


def test_the_checkpoint_that_must_be_elsewhere_is_named_before_the_instance_store_is_lost() -> None:
    facts = stops(Slot(), job="train", job_told=True, job_answered=True, job_done=True, job_checkpoint_step=1200)
    for step in (next_step(facts, ACTING), next_step(facts, PolicySettings(mode=Mode.APPROVE))):
        assert step.rung is Action.POWER_CYCLE
        assert any("instance store of node-1: the last checkpoint known of train, of step 1200" in line for line in step.because)
    assert not any("instance store" in line for line in next_step(out(), ACTING).because)


def waits(minutes: float, **changes: object) -> Facts:
    """A node that was stopped and has waited for so long."""
    start: dict[str, object] = {
        "no_capacity": "InsufficientInstanceCapacity",
        "no_capacity_since": NOW - timedelta(minutes=minutes),
        "disrupted": True,
    }
    return stops(**{"slot": held(), **start, **changes})  # type: ignore[arg-type]


def test_a_node_that_finds_no_capacity_waits_with_the_reason() -> None:
    step = next_step(waits(61), ACTING)
    assert (step.kind, step.pause_s, step.deadline_s) == (
        StepKind.AWAIT_CAPACITY,
        ACTING.capacity_try_s,
        ACTING.boot_deadline_s,
    )
    assert "EC2 has no capacity to start it: InsufficientInstanceCapacity" in step.because[0]
    assert "61 of 240 minutes waited" in step.because[1]


def test_a_spare_is_swapped_in_while_the_node_waits() -> None:
    assert next_step(waits(1, job="train", job_told=True), ACTING).kind is StepKind.REPLACE


@pytest.mark.parametrize(
    "changes",
    [
        {"no_capacity_since": NOW - timedelta(hours=5)},
        {"skipped_steps": [Action.POWER_CYCLE.value]},
        {"slot": held(ends_at=NOW + timedelta(minutes=50))},
    ],
)
def test_the_wait_ends_with_a_person_and_no_other_rung_is_tried_on_a_stopped_node(changes: dict[str, object]) -> None:
    step = next_step(waits(1, opinion=opinion(), taken=[], **changes), ACTING)
    assert step.kind is StepKind.RETIRE
    assert any("REBOOT_NODE: the instance is stopped, and EC2 has no capacity" in line for line in step.because)
