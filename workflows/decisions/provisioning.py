"""How a new spare gets its place: launch beside the bad node while slots allow, or terminate it first; or not at all. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from activities.capacity import CAPACITY_BLOCK, Slot
from activities.message import Message
from activities.owners import Owner
from checks.model import Action
from workflows.decisions.capacity import ends_too_soon, slot_question, slot_refusal
from workflows.decisions.gates import mode_of
from workflows.decisions.owners import OWNER_LAUNCHES, OWNERS, GiveUp
from workflows.decisions.settings import Mode, PolicySettings


class Order(StrEnum):
    """What comes first."""

    LAUNCH = "launch"
    LAUNCH_THEN_TERMINATE = "launch, then terminate"
    TERMINATE_THEN_LAUNCH = "terminate, then launch"
    OWNER_LAUNCHES = "its owner launches another"
    REFUSED = "refused"


class ProvisionFacts(Message):
    """What is known before a launch. `gives_up` names the node whose place the new one takes; empty: an additional spare.

    `slot` is that node's slot, `owned_by` its owner, `pool` the one that it is in, `fault_class` why it was retired.
    `approved`: a person has said that a slot which others may take is risked.
    """

    instance_type: str
    gives_up: str = ""
    slot: Slot | None = None
    approved: bool = False
    owned_by: Owner = Owner.EC2
    pool: str = ""
    fault_class: str = ""
    now: datetime


class LaunchPlan(Message):
    """The order, why, where the launch goes, and how long and how often it is tried.

    `decrements`: the number that its owner keeps falls by one.
    """

    order: Order
    because: list[str]
    reservation: str = ""
    capacity_block: bool = False
    wait_s: float = 0.0
    pause_s: float = 0.0
    boot_deadline_s: float = 0.0
    test_deadline_s: float = 0.0
    gone_deadline_s: float = 0.0
    settling_s: float = 0.0
    listed_s: float = 300.0
    listed_try_s: float = 10.0
    successor_page_s: float = 900.0
    decrements: bool = False


def plan_launch(facts: ProvisionFacts, policy: PolicySettings) -> LaunchPlan:
    """Return the order of launch and termination, with the reason."""
    order, because = _order(facts, policy)
    held = facts.slot.reservation if facts.slot else None
    return LaunchPlan(
        order=order,
        because=because,
        reservation=held.reservation_id if held else "",
        capacity_block=held is not None and held.kind == CAPACITY_BLOCK,
        wait_s=policy.capacity_wait_s,
        pause_s=policy.capacity_try_s,
        boot_deadline_s=policy.boot_deadline_s,
        test_deadline_s=policy.retest_deadline_s,
        gone_deadline_s=policy.gone_deadline_s,
        settling_s=policy.settling_s,
        listed_s=policy.listed_deadline_s,
        listed_try_s=policy.listed_try_s,
        successor_page_s=policy.successor_page_s,
        decrements=OWNERS[facts.owned_by].decrements,
    )


def _order(facts: ProvisionFacts, policy: PolicySettings) -> tuple[Order, list[str]]:
    slot, name = facts.slot, facts.gives_up
    held = slot.reservation if slot else None
    if mode_of(Action.REPLACE_NODE, policy, facts.fault_class) is Mode.OBSERVE:
        what = f"another instance in place of {name}" if name else f"one more {facts.instance_type}"
        return Order.REFUSED, [f"{Action.REPLACE_NODE.value} is only observed here (policy.mode): {what} would be launched"]
    if held is not None and (late := ends_too_soon(held, facts.now, policy)):
        return Order.REFUSED, [f"nothing is launched there any more: {late}"]
    if not name:
        return Order.LAUNCH, ["one more spare: nothing is given up for it"]
    if slot is None or slot.unknown:
        why = slot.unknown if slot else "it was not looked at"
        return Order.REFUSED, [f"what capacity {name} has is not known ({why}): it is not terminated"]
    if (way := OWNERS[facts.owned_by].give_up) is not GiveUp.TERMINATE:
        return _by_its_owner(facts, policy, way)
    if held is None:
        return Order.LAUNCH_THEN_TERMINATE, [f"{name} is in no reservation: it is held until the new one has passed"]
    if held.available > 0:
        free = f"{held.reservation_id} has {held.available} free slots"
        return Order.LAUNCH_THEN_TERMINATE, [f"{free}: {name} is held, quarantined, until the new one has passed"]
    if kept := slot_refusal(slot, facts.now, policy):
        return Order.REFUSED, [kept]
    if not facts.approved and (risk := slot_question(slot)):
        return Order.REFUSED, [f"{risk}; a person has not approved that"]
    return Order.TERMINATE_THEN_LAUNCH, [f"{held.reservation_id} is full: {name} is terminated before another can be launched"]


def _by_its_owner(facts: ProvisionFacts, policy: PolicySettings, way: GiveUp) -> tuple[Order, list[str]]:
    """Leave the launch to who keeps the node's number. Its slot is free for a while, as with a termination of ours."""
    slot, name = facts.slot, facts.gives_up
    if way not in OWNER_LAUNCHES:
        return Order.REFUSED, [f"{name} is a node of {facts.owned_by.value}, and is given up otherwise: {way.value}"]
    has_room = slot is not None and slot.reservation is not None and slot.reservation.available > 0
    if not has_room and (kept := slot_refusal(slot, facts.now, policy)):
        return Order.REFUSED, [kept]
    if not (has_room or facts.approved) and (risk := slot_question(slot)):
        return Order.REFUSED, [f"{risk}; a person has not approved that"]
    return Order.OWNER_LAUNCHES, [f"{name} is a node of {facts.owned_by.value}: {way.value}"]
