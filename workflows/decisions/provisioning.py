"""How a new spare gets its place: launch beside the bad node while slots allow, or terminate it first; or not at all. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from activities.capacity import CAPACITY_BLOCK, Slot
from activities.message import Message
from workflows.decisions.capacity import ends_too_soon, slot_question, slot_refusal
from workflows.decisions.settings import PolicySettings


class Order(StrEnum):
    """What comes first."""

    LAUNCH = "launch"
    LAUNCH_THEN_TERMINATE = "launch, then terminate"
    TERMINATE_THEN_LAUNCH = "terminate, then launch"
    REFUSED = "refused"


class ProvisionFacts(Message):
    """What is known before a launch. `gives_up` names the node whose place the new one takes; empty: an additional spare.

    `slot` is that node's slot. `approved`: a person has said that a slot which others may take is risked.
    """

    instance_type: str
    gives_up: str = ""
    slot: Slot | None = None
    approved: bool = False
    now: datetime


class LaunchPlan(Message):
    """The order, why, where the launch goes, and how long and how often it is tried."""

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
    )


def _order(facts: ProvisionFacts, policy: PolicySettings) -> tuple[Order, list[str]]:
    slot, name = facts.slot, facts.gives_up
    held = slot.reservation if slot else None
    if held is not None and (late := ends_too_soon(held, facts.now, policy)):
        return Order.REFUSED, [f"nothing is launched there any more: {late}"]
    if not name:
        return Order.LAUNCH, ["one more spare: nothing is given up for it"]
    if slot is None or slot.unknown:
        why = slot.unknown if slot else "it was not looked at"
        return Order.REFUSED, [f"what capacity {name} has is not known ({why}): it is not terminated"]
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
