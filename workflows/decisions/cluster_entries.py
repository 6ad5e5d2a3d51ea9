"""Entries in the books of Cluster that are never judged: what came back, what holders say they hold, freezes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from activities.host_memory import Freeze
from activities.inventory import Node
from workflows.cluster_messages import Answer, AskKind, Breaker, BreakerState, ClusterState, Grant, Holding, RepairEnd
from workflows.decisions import room

SILENT = "silent/"
"""Begins the request id of a grant that was booked for a holder which did not say what it holds."""

BREAKER = "breaker"
"""Scope under which an open breaker is kept in host memory, among the freezes."""

STORMS = "storms"
"""Scope under which a person ends the storms that Cluster remembers."""

BREAKER_KEPT = timedelta(days=30)
"""How long a stored breaker counts. Hotspare default: as long as the longest freeze."""


def give_back(state: ClusterState, request_ids: list[str], healed: bool | None = None) -> ClusterState:
    """Book capacity that came back, and forget asks that are no longer wanted. Unknown ids change nothing."""
    gone = set(request_ids)
    ended = [grant for grant in state.grants if grant.request_id in gone]
    out = [grant.instance_id for grant in ended if grant.kind is AskKind.NODE_OUT]
    still = {grant.instance_id for grant in state.grants if grant.kind is AskKind.NODE_OUT}
    # A slot without leave to be out, as for the stop of a job: when it is back, nothing more will be heard of that node.
    slots = [grant.instance_id for grant in ended if grant.kind is AskKind.REPAIR_SLOT and grant.instance_id not in still]
    ends = [*(RepairEnd(instance_id=node, healed=healed) for node in out), *(RepairEnd(instance_id=node) for node in slots)]
    return state.model_copy(
        update={
            "grants": [grant for grant in state.grants if grant.request_id not in gone],
            "queue": [ask for ask in state.queue if ask.request_id not in gone],
            "ended": [*state.ended, *ends],
        }
    )


def book_holding(state: ClusterState, holding: Holding) -> ClusterState:
    """Book what a holder says it holds. Its word stands: it is the one who knows."""
    mine = [grant for grant in state.grants if not (grant.asker == holding.asker and grant.request_id.startswith(SILENT))]
    known = {grant.request_id for grant in mine}
    return state.model_copy(update={"grants": [*mine, *(grant for grant in holding.grants if grant.request_id not in known)]})


def book_silent(state: ClusterState, holders: list[str], now: datetime, nodes: Sequence[Node] = ()) -> ClusterState:
    """Count the node of a holder that is there but does not answer as out and under repair: too careful rather than too many.

    Where the node is known its domains and its pool count too.
    """
    known = {node.instance_id: node for node in nodes}
    grants = [
        Grant(
            request_id=f"{SILENT}{kind.value}/{holder}",
            asker=holder,
            kind=kind,
            instance_id=holder.rpartition("/")[2],
            granted_at=now,
            **_place(known.get(holder.rpartition("/")[2])),
        )
        for holder in holders
        for kind in (AskKind.NODE_OUT, AskKind.REPAIR_SLOT)
    ]
    return state.model_copy(update={"grants": [*state.grants, *grants]})


def _place(node: Node | None) -> dict[str, Any]:
    if node is None:
        return {}
    return {"domains": node.domains(), "pool": node.pool_name()}


def release_gone(state: ClusterState, gone: list[Grant], leased: set[str]) -> ClusterState:
    """Book off what holders that have ended held. A spare that still carries a lease tag is suspect: it stays booked."""
    free = [grant.request_id for grant in gone if grant.kind is not AskKind.SPARE or grant.spare_id not in leased]
    return give_back(state, free)


def freeze(state: ClusterState, asked: Freeze) -> ClusterState:
    """Book a freeze; a second one of the same scope replaces the first."""
    return state.model_copy(update={"freezes": [*(one for one in state.freezes if one.scope != asked.scope), asked]})


def thaw(state: ClusterState, scope: str) -> ClusterState:
    """End a freeze, close the breaker, or forget the storms: what is reported of their nodes from now on is looked at anew."""
    if scope == STORMS:
        return state.model_copy(update={"storms": [], "recent": []})
    if scope == BREAKER:
        return state.model_copy(update={"breaker": Breaker()})
    return state.model_copy(update={"freezes": [one for one in state.freezes if one.scope != scope]})


def take_back_frozen(state: ClusterState) -> ClusterState:
    """Take repair slots back that were given before a freeze of their scope: holders stop before their next disruptive step.

    Leave to be out is not taken back: the node is out already, and bringing it back is recovery.
    """
    taken: list[Grant] = []
    why: dict[str, str] = {}
    for grant in state.grants:
        if grant.kind is AskKind.REPAIR_SLOT:
            frozen = room.frozen(state.freezes, room.scopes(grant.instance_id, grant.job, grant.domains, grant.pool))
            if frozen:
                taken.append(grant)
                why[grant.request_id] = frozen
    if not taken:
        return state
    answers = [
        (grant.asker, Answer(request_id=grant.request_id, kind=grant.kind, granted=False, reason=why[grant.request_id]))
        for grant in taken
    ]
    return state.model_copy(
        update={
            "grants": [grant for grant in state.grants if grant.request_id not in why],
            "outbox": [*(one for one in state.outbox if one[1].request_id not in why), *answers],
        }
    )


def with_stored(state: ClusterState, stored: list[Freeze], thawed: list[str]) -> ClusterState:
    """Book what host memory kept: freezes, and a breaker that was open, which then is open anew.

    A freeze that was given meanwhile replaces the kept one of its scope.
    """
    given = {one.scope for one in state.freezes}
    kept = [one for one in stored if one.scope not in thawed and one.scope not in given]
    opened = next((one for one in kept if one.scope == BREAKER), None)
    freezes = [*(one for one in kept if one.scope != BREAKER), *state.freezes]
    if opened is None:
        return state.model_copy(update={"freezes": freezes})
    since = opened.until - BREAKER_KEPT
    return state.model_copy(
        update={"freezes": freezes, "breaker": Breaker(state=BreakerState.OPEN, since=since, reason=opened.why, told=True)}
    )


def to_store(state: ClusterState) -> list[Freeze]:
    """Return the records that must outlive Cluster: the freezes, and the breaker while it is not closed."""
    breaker = state.breaker
    if breaker.state is BreakerState.CLOSED or breaker.since is None:
        return state.freezes
    return [*state.freezes, Freeze(scope=BREAKER, until=breaker.since + BREAKER_KEPT, who=BREAKER, why=breaker.reason)]
