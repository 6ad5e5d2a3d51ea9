"""Which spare a waiting node gets: a fit one, the nearest first, and a farther one only with the reason shown.

Among those of one zone the qualified come first, then those on probation after a repair, then those that have not been proven:
they are tested whole before they join. Spares that are free are lent too, as partners of a burn-in or for a test of their own.
Whoever wants one to stand in for a node waits for it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from activities.inventory import Node
from activities.message import Message
from activities.names import ROLE_SPARE, is_kept_out
from workflows.cluster_messages import Ask, AskKind, Grant
from workflows.decisions.spares_standing import Rank, Standing

OF_THE_POOL = (AskKind.SPARE, AskKind.PARTNER)
"""Kinds of asks that are met from the pool of spares."""

QUARANTINED, LENT = "quarantined", "is lent to a burn-in or a test"
"""Why a spare is not free that may be so again."""


@dataclass(frozen=True)
class Pool:
    """The spares that were seen, and how they stand, by instance id; one of which nothing is known is missing there."""

    spares: list[Node]
    standings: Mapping[str, Standing] = field(default_factory=dict)

    def rank(self, spare: Node) -> Rank:
        """Who is taken first."""
        known = self.standings.get(spare.instance_id)
        return known.rank if known else Rank.UNPROVEN


class SpareChoice(Message):
    """The spare that was chosen, and in words how far it is or why there is none.

    `soon`: a fit one is only lent. `later`: one is in repair that may come back.
    """

    spare: Node | None
    reason: str
    soon: bool = False
    later: bool = False


class Taken(Message):
    """Instance ids of spares that are leased, and of those that are lent to a burn-in or a test."""

    leased: list[str] = []
    lent: list[str] = []


def taken_by(grants: Iterable[Grant]) -> Taken:
    """Return which spares the books have given away."""
    known = list(grants)
    return Taken(
        leased=[grant.spare_id for grant in known if grant.kind is AskKind.SPARE],
        lent=[partner for grant in known for partner in grant.partners],
    )


def choose_spare(ask: Ask, pool: Pool, taken: Taken) -> SpareChoice:
    """Return the nearest spare that may be leased for `ask`."""
    spares = pool.spares
    if not spares:
        return SpareChoice(spare=None, reason="the pool has no spare")
    refusals = {spare.name: _why_not(ask, spare, pool, taken.leased) for spare in spares}
    lent = [spare.name for spare in spares if spare.instance_id in taken.lent and not refusals[spare.name]]
    refusals |= dict.fromkeys(lent, LENT)
    fit = [spare for spare in spares if not refusals[spare.name]]
    if not fit:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(refusals.items()))
        later = any(reason in (QUARANTINED, LENT) for reason in refusals.values())
        return SpareChoice(spare=None, reason=f"no spare is free ({why})", soon=bool(lent), later=later)
    nearest = min(fit, key=lambda spare: _place(ask, spare, pool))
    words = ("on the same network spine", "in the same zone, on another spine", "in another zone")
    where = f"{nearest.name} is the nearest free spare: {words[_distance(ask, nearest)]}"
    return SpareChoice(spare=nearest, reason=f"{where}{_how_it_stands(nearest, pool)}")


class PartnerChoice(Message):
    """The spares that were chosen as partners, or why there are none. `soon`: a fit one is lent to another burn-in."""

    partners: list[Node]
    reason: str
    soon: bool = False


def choose_partners(ask: Ask, pool: Pool, taken: Taken) -> PartnerChoice:
    """Return the nearest free spares to burn a node in with, as many as `ask` wants at most; or the only one that it wants."""
    wanted = [spare for spare in pool.spares if ask.only in ("", spare.instance_id)]
    fit = [spare for spare in wanted if not _why_not(ask, spare, pool, taken.leased)]
    free = sorted((one for one in fit if one.instance_id not in taken.lent), key=lambda spare: _place(ask, spare, pool))
    if free:
        chosen = free[: ask.partners]
        return PartnerChoice(partners=chosen, reason=f"{', '.join(node.name for node in chosen)}: free, and the nearest")
    if fit:
        why = f"{', '.join(sorted(one.name for one in fit))} burns in with another node, or is tested"
        return PartnerChoice(partners=[], reason=why, soon=True)
    return PartnerChoice(partners=[], reason=choose_spare(ask, Pool(wanted, pool.standings), taken).reason)


def _place(ask: Ask, spare: Node, pool: Pool) -> tuple[bool, Rank, int, str]:
    distance = _distance(ask, spare)
    return distance > 1, pool.rank(spare), distance, spare.name


def _how_it_stands(spare: Node, pool: Pool) -> str:
    known = pool.standings.get(spare.instance_id)
    if known is None:
        return ""
    return f"; {known.reason}" if known.counts else f"; not qualified, {known.reason}: it is tested whole before it joins"


def _why_not(ask: Ask, spare: Node, pool: Pool, leased: list[str]) -> str:
    if spare.role != ROLE_SPARE:
        return "not in the pool"
    if spare.instance_id in ask.unwanted:
        return "did not pass for this node before"
    if spare.instance_id in leased or spare.lease:
        return "leased"
    if spare.quarantine:
        return QUARANTINED
    if spare.opt_out:
        return f"has opted out: {spare.opt_out}"
    if is_kept_out(spare.fate):
        return spare.fate
    if spare.state != "running":
        return f"EC2 says {spare.state}; spares run warm"
    if ask.instance_type and spare.instance_type and spare.instance_type != ask.instance_type:
        return f"is a {spare.instance_type}, the node is a {ask.instance_type}"
    if ask.nvlink_domain and spare.nvlink_domain != ask.nvlink_domain:
        where = spare.nvlink_domain or "none that is known"
        return f"is in another NVLink domain ({where}), the node's is {ask.nvlink_domain}"
    known = pool.standings.get(spare.instance_id)
    if known is not None and known.rank is Rank.REFUSED and ask.only != spare.instance_id:
        return known.reason
    return ""


def _distance(ask: Ask, spare: Node) -> int:
    if spare.zone != ask.zone:
        return 2
    return 0 if spare.spine == ask.spine else 1
