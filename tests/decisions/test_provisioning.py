"""What comes first where a new spare takes a place: the launch while slots allow, the termination in a full reservation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.capacity import Reservation, Slot
from activities.owners import Owner
from checks.model import Action
from tests.decisions.situations import ACTING, NOW
from workflows.decisions.owners import OWNERS
from workflows.decisions.provisioning import Order, ProvisionFacts, plan_launch
from workflows.decisions.settings import Mode, PolicySettings

HELD = Reservation(reservation_id="cr-1", account="1", state="active", total=8, available=0)


def slot(usable: int = 6, of_others: int = 0, **changes: object) -> Slot:
    return Slot(reservation=HELD.model_copy(update=changes), usable_elsewhere=usable, of_others=of_others)


def facts(held: Slot | None = None, *, approved: bool = False, gives_up: str = "node-2") -> ProvisionFacts:
    return ProvisionFacts(instance_type="p5.48xlarge", gives_up=gives_up, slot=held, approved=approved, now=NOW)


@pytest.mark.parametrize(
    ("asked", "order", "words"),
    [
        (facts(gives_up=""), Order.LAUNCH, "nothing is given up for it"),
        (facts(Slot()), Order.LAUNCH_THEN_TERMINATE, "node-2 is in no reservation"),
        (facts(slot(available=1)), Order.LAUNCH_THEN_TERMINATE, "cr-1 has 1 free slots"),
        (facts(slot()), Order.TERMINATE_THEN_LAUNCH, "cr-1 is full: node-2 is terminated before"),
        (facts(slot(usable=0)), Order.REFUSED, "the last usable slot of cr-1"),
        (facts(slot(usable=0), approved=True), Order.REFUSED, "the last usable slot of cr-1"),
        (facts(slot(match="open")), Order.REFUSED, "a person has not approved that"),
        (facts(slot(match="open"), approved=True), Order.TERMINATE_THEN_LAUNCH, "cr-1 is full"),
        (facts(slot(of_others=2)), Order.REFUSED, "are not of this cluster"),
        (facts(None), Order.REFUSED, "not known"),
        (facts(Slot(unknown="AccessRefused")), Order.REFUSED, "not known (AccessRefused)"),
        (facts(slot(available=1, ends_at=NOW + timedelta(minutes=10))), Order.REFUSED, "nothing is launched there any more"),
    ],
)
def test_the_order_and_its_reason(asked: ProvisionFacts, order: Order, words: str) -> None:
    plan = plan_launch(asked, ACTING)
    assert plan.order is order
    assert words in plan.because[0]


def given_back(held: Slot | None = None, owner: Owner = Owner.GROUP, **more: object) -> ProvisionFacts:
    return facts(held or Slot()).model_copy(update={"owned_by": owner, **more})


@pytest.mark.parametrize(
    ("asked", "order", "words"),
    [
        (given_back(), Order.OWNER_LAUNCHES, "whose desired capacity stays: the group launches another"),
        (given_back(owner=Owner.NODE_GROUP), Order.OWNER_LAUNCHES, "whose desired capacity stays: the group launches another"),
        (given_back(owner=Owner.KARPENTER), Order.OWNER_LAUNCHES, "delete its NodeClaim"),
        (given_back(slot()), Order.OWNER_LAUNCHES, "the group launches another"),
        (given_back(slot(available=1, usable=1, match="open")), Order.OWNER_LAUNCHES, "the group launches another"),
        (given_back(slot(usable=0)), Order.REFUSED, "the last usable slot of cr-1"),
        (given_back(slot(match="open")), Order.REFUSED, "a person has not approved that"),
        (given_back(slot(match="open"), approved=True), Order.OWNER_LAUNCHES, "the group launches another"),
        (given_back(Slot(unknown="AccessRefused")), Order.REFUSED, "not known (AccessRefused)"),
        (given_back(slot(ends_at=NOW + timedelta(minutes=10))), Order.REFUSED, "nothing is launched there any more"),
        (given_back(owner=Owner.AUTO_MODE), Order.REFUSED, "only its owner replaces it"),
        (given_back(owner=Owner.PARALLEL_CLUSTER), Order.REFUSED, "drain it in Slurm"),
    ],
)
def test_a_node_whose_owner_keeps_its_number_goes_back_to_that_owner(asked: ProvisionFacts, order: Order, words: str) -> None:
    plan = plan_launch(asked, ACTING)
    assert plan.order is order
    assert words in plan.because[0]
    assert plan.decrements is OWNERS[asked.owned_by].decrements is False


@pytest.mark.parametrize("asked", [facts(gives_up=""), facts(Slot()), facts(slot()), given_back()])
def test_what_is_only_observed_is_said_and_not_launched(asked: ProvisionFacts) -> None:
    plan = plan_launch(asked, PolicySettings())
    assert plan.order is Order.REFUSED
    assert "REPLACE_NODE is only observed here" in plan.because[0]


def test_a_class_of_faults_that_was_promoted_is_launched_for_and_no_other() -> None:
    policy = PolicySettings(mode=Mode.OBSERVE, mode_by_class={"gpu_lost": {Action.REPLACE_NODE: Mode.ACT}})
    lost = facts(Slot()).model_copy(update={"fault_class": "gpu_lost"})
    assert plan_launch(lost, policy).order is Order.LAUNCH_THEN_TERMINATE
    assert plan_launch(lost.model_copy(update={"fault_class": "fabric"}), policy).order is Order.REFUSED


def test_the_launch_goes_into_the_reservation_of_the_node_that_is_given_up() -> None:
    plan = plan_launch(facts(slot(kind="capacity-block", ends_at=NOW + timedelta(days=1))), ACTING)
    assert (plan.reservation, plan.capacity_block) == ("cr-1", True)
    assert (plan.wait_s, plan.pause_s) == (ACTING.capacity_wait_s, ACTING.capacity_try_s)
    assert plan_launch(facts(gives_up=""), ACTING).reservation == ""
