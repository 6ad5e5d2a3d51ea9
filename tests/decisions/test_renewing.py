"""Another instance in the place of a retired node: only where settings want it, its owner leaves it to us, its slot allows it."""

from __future__ import annotations

import pytest

from activities.capacity import Reservation, Slot
from activities.owners import Owner
from checks.model import Action
from tests.decisions.situations import NOW, out
from workflows.decisions.facts import Facts, StepKind
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

RENEWS = PolicySettings(mode=Mode.ACT, renew_retired=True)
FULL = Reservation(reservation_id="cr-1", account="1", state="active", total=8)
ROOM = FULL.model_copy(update={"available": 1})


def retired(**changes: object) -> Facts:
    """A node that its incident has retired."""
    start: dict[str, object] = {"retired": True, "settled": True, "evidence_uri": "file:///e", "disrupted": True}
    return out(**{**start, **changes})  # type: ignore[arg-type]


def test_a_retired_node_is_renewed_and_then_the_incident_ends() -> None:
    step = next_step(retired(), RENEWS)
    assert step.kind is StepKind.RENEW
    assert "another is launched in its place, and it is terminated for that" in step.because[0]
    assert next_step(retired(renewed="spare/lab/i-1"), RENEWS).kind is StepKind.CLOSE


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({}, PolicySettings(mode=Mode.ACT)),
        ({}, PolicySettings(mode=Mode.OBSERVE, renew_retired=True)),
        ({"retired": False}, RENEWS),
        ({"evidence_uri": ""}, RENEWS),
        ({"skipped_steps": [Action.REPLACE_NODE.value]}, RENEWS),
        ({"slot": Slot(reservation=FULL, usable_elsewhere=0)}, RENEWS),
        *(({"owned_by": owner}, RENEWS) for owner in (Owner.AUTO_MODE, Owner.HYPERPOD, Owner.PARALLEL_CLUSTER, Owner.PCS)),
    ],
)
def test_otherwise_it_stays_with_a_person(changes: dict[str, object], policy: PolicySettings) -> None:
    assert next_step(retired(**changes), policy).kind is StepKind.CLOSE


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (Owner.GROUP, "terminate it in its Auto Scaling group, whose desired capacity stays"),
        (Owner.NODE_GROUP, "terminate it in its Auto Scaling group, whose desired capacity stays"),
        (Owner.KARPENTER, "delete its NodeClaim"),
    ],
)
def test_a_node_whose_owner_launches_another_goes_back_to_that_owner(owner: Owner, words: str) -> None:
    step = next_step(retired(owned_by=owner), RENEWS)
    assert step.kind is StepKind.RENEW
    assert words in step.because[0]


def test_its_slot_is_looked_at_first() -> None:
    assert next_step(retired(slot=None, slot_at=None), RENEWS).kind is StepKind.LOOK_AT_SLOT
    assert next_step(retired(now=NOW, slot=Slot(), slot_at=NOW), RENEWS).kind is StepKind.RENEW


def test_a_slot_that_others_may_take_is_a_persons_to_risk_unless_there_is_room() -> None:
    shared = FULL.model_copy(update={"match": "open"})
    step = next_step(retired(slot=Slot(reservation=shared, usable_elsewhere=3)), RENEWS)
    assert (step.kind, step.rung) == (StepKind.ASK_PERSON, Action.REPLACE_NODE)
    approved = retired(slot=Slot(reservation=shared, usable_elsewhere=3), approved=[Action.REPLACE_NODE])
    assert next_step(approved, RENEWS).kind is StepKind.RENEW
    room = retired(slot=Slot(reservation=ROOM.model_copy(update={"match": "open"}), usable_elsewhere=3))
    assert next_step(room, RENEWS).kind is StepKind.RENEW


def test_a_mode_that_asks_asks() -> None:
    asks = PolicySettings(mode=Mode.APPROVE, renew_retired=True)
    assert next_step(retired(), asks).kind is StepKind.ASK_PERSON
