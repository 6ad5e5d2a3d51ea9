"""Whether the slot of a node may be given up: what a stop risks, when a person is asked, when it is refused.

A stop and a terminate are one thing to EC2's capacity: the slot is given up, and comes back after minutes of cleaning, or never.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.capacity import ACTIVE, CAPACITY_BLOCK, Reservation, Slot
from checks.model import Action
from workflows.decisions.facts import Facts
from workflows.decisions.settings import PolicySettings

GIVES_UP_SLOT = (Action.POWER_CYCLE,)
"""Rungs that work on the node in place and give its slot up meanwhile."""

SPOT = "spot"
"""InstanceLifecycle of a Spot instance. Source: botocore, InstanceLifecycleType."""


def slot_refusal(slot: Slot | None, now: datetime, policy: PolicySettings) -> str:
    """Return why the slot must not be given up, whoever asks; empty where it may be, or where a person may answer for it."""
    if slot is None or slot.unknown:
        return ""
    if slot.lifecycle == SPOT:
        return "a Spot instance that stops is EC2's to start again, not ours"
    held = slot.reservation
    if held is None:
        return ""
    if held.state and held.state != ACTIVE:
        return f"{held.reservation_id} is {held.state}: what leaves it does not come back"
    if too_late := ends_too_soon(held, now, policy):
        return too_late
    if slot.usable_elsewhere < 1:
        return (
            f"it is the last usable slot of {held.reservation_id} ({held.total} in all): it is not given up before another "
            "instance there is confirmed"
        )
    return ""


def ends_too_soon(held: Reservation, now: datetime, policy: PolicySettings) -> str:
    """Return why nothing is stopped or launched any more in a reservation that nears its end, empty while there is time."""
    if held.ends_at is None:
        return ""
    needed = timedelta(seconds=policy.slot_back_p90_s + policy.block_end_margin_s)
    if now + needed <= held.ends_at:
        return ""
    what = "Capacity Block" if held.kind == CAPACITY_BLOCK else "reservation"
    left = max(0.0, (held.ends_at - now).total_seconds() / 60)
    return (
        f"{what} {held.reservation_id} ends at {held.ends_at:%Y-%m-%d %H:%M} UTC, in {left:.0f} minutes: less than the "
        f"{policy.slot_back_p90_s / 60:.0f} minutes until the node serves again and {policy.block_end_margin_s / 60:.0f} more"
    )


def slot_question(slot: Slot | None) -> str:
    """Return why a person is to say whether the slot may be given up, empty where nobody else can take it meanwhile."""
    if slot is None:
        return ""
    if slot.unknown:
        return f"what capacity the node has is not known ({slot.unknown}): a stop gives its slot up"
    held = slot.reservation
    if held is None:
        return ""
    if held.match == "open" and held.kind != CAPACITY_BLOCK:
        return f"{held.reservation_id} is open: any matching instance that is launched meanwhile takes the slot"
    if slot.foreign:
        return f"{held.reservation_id} belongs to account {held.account}, which shares it: others may take the slot meanwhile"
    if slot.of_others:
        return f"{slot.of_others} instances in {held.reservation_id} are not of this cluster: others may take the slot meanwhile"
    return ""


def slot_in_words(slot: Slot) -> str:
    """Say in one line what a node's instance runs in."""
    if slot.unknown:
        return f"not known: {slot.unknown}"
    held = slot.reservation
    if held is None:
        return slot.lifecycle or "on-demand, in no reservation: a stopped instance may find no capacity to start again"
    until = f", until {held.ends_at:%Y-%m-%d %H:%M} UTC" if held.ends_at else ""
    kind = "Capacity Block" if held.kind == CAPACITY_BLOCK else f"{held.match} reservation"
    return (
        f"{kind} {held.reservation_id}: {held.total} slots, {held.available} free{until}; usable ones besides this: "
        f"{slot.usable_elsewhere}"
    )


def what_a_stop_loses(facts: Facts) -> str:
    """Say what goes with the instance store, and which checkpoint has to be somewhere else."""
    lost = f"a stop empties the instance store of {facts.node.name}"
    if facts.job_checkpoint_step is None:
        return lost
    return f"{lost}: the last checkpoint known of {facts.job}, of step {facts.job_checkpoint_step}, has to be readable elsewhere"
