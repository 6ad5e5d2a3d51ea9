"""Which spare a waiting node gets: a fit one, the nearest first, and a farther one only with the reason shown."""

from __future__ import annotations

from activities.inventory import Node
from activities.message import Message
from activities.names import FATE_RETIRED, ROLE_SPARE
from workflows.cluster_messages import Ask


class SpareChoice(Message):
    """The spare that was chosen, and in words how far it is or why there is none."""

    spare: Node | None
    reason: str


def choose_spare(ask: Ask, spares: list[Node], leased: set[str]) -> SpareChoice:
    """Return the nearest spare that may be leased for `ask`."""
    if not spares:
        return SpareChoice(spare=None, reason="the pool has no spare")
    refusals = {spare.name: _why_not(ask, spare, leased) for spare in spares}
    fit = [spare for spare in spares if not refusals[spare.name]]
    if not fit:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(refusals.items()))
        return SpareChoice(spare=None, reason=f"no spare is free ({why})")
    nearest = min(fit, key=lambda spare: (_distance(ask, spare), spare.name))
    words = ("on the same network spine", "in the same zone, on another spine", "in another zone")
    return SpareChoice(spare=nearest, reason=f"{nearest.name} is the nearest free spare: {words[_distance(ask, nearest)]}")


def _why_not(ask: Ask, spare: Node, leased: set[str]) -> str:
    if spare.role != ROLE_SPARE:
        return "not in the pool"
    if spare.instance_id in leased or spare.lease:
        return "leased"
    if spare.quarantine:
        return "quarantined"
    if spare.opt_out:
        return f"has opted out: {spare.opt_out}"
    if spare.fate == FATE_RETIRED:
        return "retired"
    if spare.state != "running":
        return f"EC2 says {spare.state}; spares run warm"
    if spare.instance_id in ask.unwanted:
        return "did not pass for this node before"
    if ask.instance_type and spare.instance_type and spare.instance_type != ask.instance_type:
        return f"is a {spare.instance_type}, the node is a {ask.instance_type}"
    return ""


def _distance(ask: Ask, spare: Node) -> int:
    if spare.zone != ask.zone:
        return 2
    return 0 if spare.spine == ask.spine else 1
