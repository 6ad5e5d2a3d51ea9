"""Which spare a waiting node gets: a fit one, the nearest first, and a farther one only with the reason shown.

Spares that are free are lent as partners of a burn-in too. Whoever wants one to stand in for a node waits for it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from activities.inventory import Node
from activities.message import Message
from activities.names import FATE_RETIRED, ROLE_SPARE
from workflows.cluster_messages import Ask, AskKind, Grant

OF_THE_POOL = (AskKind.SPARE, AskKind.PARTNER)
"""Kinds of asks that are met from the pool of spares."""


class SpareChoice(Message):
    """The spare that was chosen, and in words how far it is or why there is none. `soon`: a fit one is only lent."""

    spare: Node | None
    reason: str
    soon: bool = False


class Taken(Message):
    """Instance ids of spares that are leased, and of those that are lent to a burn-in."""

    leased: list[str] = []
    lent: list[str] = []


def taken_by(grants: Iterable[Grant]) -> Taken:
    """Return which spares the books have given away."""
    known = list(grants)
    return Taken(
        leased=[grant.spare_id for grant in known if grant.kind is AskKind.SPARE],
        lent=[partner for grant in known for partner in grant.partners],
    )


def choose_spare(ask: Ask, spares: list[Node], taken: Taken) -> SpareChoice:
    """Return the nearest spare that may be leased for `ask`."""
    if not spares:
        return SpareChoice(spare=None, reason="the pool has no spare")
    refusals = {spare.name: _why_not(ask, spare, taken.leased) for spare in spares}
    lent = [spare.name for spare in spares if spare.instance_id in taken.lent and not refusals[spare.name]]
    refusals |= dict.fromkeys(lent, "is lent to a burn-in")
    fit = [spare for spare in spares if not refusals[spare.name]]
    if not fit:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(refusals.items()))
        return SpareChoice(spare=None, reason=f"no spare is free ({why})", soon=bool(lent))
    nearest = min(fit, key=lambda spare: _place(ask, spare))
    words = ("on the same network spine", "in the same zone, on another spine", "in another zone")
    return SpareChoice(spare=nearest, reason=f"{nearest.name} is the nearest free spare: {words[_distance(ask, nearest)]}")


class PartnerChoice(Message):
    """The spares that were chosen as partners, or why there are none. `soon`: a fit one is lent to another burn-in."""

    partners: list[Node]
    reason: str
    soon: bool = False


def choose_partners(ask: Ask, spares: list[Node], taken: Taken) -> PartnerChoice:
    """Return the nearest free spares to burn a node in with, as many as `ask` wants at most."""
    fit = [spare for spare in spares if not _why_not(ask, spare, taken.leased)]
    free = sorted((one for one in fit if one.instance_id not in taken.lent), key=lambda spare: _place(ask, spare))
    if free:
        chosen = free[: ask.partners]
        return PartnerChoice(partners=chosen, reason=f"{', '.join(node.name for node in chosen)}: free, and the nearest")
    if fit:
        why = f"{', '.join(sorted(one.name for one in fit))} burns in with another node"
        return PartnerChoice(partners=[], reason=why, soon=True)
    return PartnerChoice(partners=[], reason=choose_spare(ask, spares, taken).reason)


def _place(ask: Ask, spare: Node) -> tuple[int, str]:
    return _distance(ask, spare), spare.name


def _why_not(ask: Ask, spare: Node, leased: list[str]) -> str:
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
