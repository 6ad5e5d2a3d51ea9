"""Is there room for one more disruption? Limits of the cluster, of failure domains, of jobs and of pools, each with its words.

Percentages are of what exists and never below one node, so that a small cluster, domain or pool can heal at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from activities.host_memory import Freeze
from activities.inventory import domains_of
from workflows.cluster_messages import Ask, AskKind, FleetView, Grant
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.windows import outside_windows


def domains(ask: Ask) -> list[str]:
    """The failure domains of the node that asks."""
    return domains_of(ask.zone, ask.placement_group, ask.spine, ask.nvlink_domain)


def scopes(instance_id: str, job: str, places: Iterable[str], pool: str) -> set[str]:
    """Every scope that a freeze or a window of this node may name. "domain:NAME" is any kind of domain of that name."""
    named = {"cluster", f"node:{instance_id}", f"job:{job}", f"pool:{pool}"}
    return named | set(places) | {f"domain:{place.partition(':')[2]}" for place in places}


def frozen(freezes: Iterable[Freeze], within: set[str]) -> str:
    """Return which freeze holds within these scopes, in words; empty when none does."""
    for freeze in freezes:
        if freeze.scope in within:
            until = f"{freeze.until:%Y-%m-%d %H:%M} UTC"
            return f"{freeze.scope} is frozen until {until} by {freeze.who}: {freeze.why or 'no reason given'}"
    return ""


def no_room(ask: Ask, grants: Iterable[Grant], view: FleetView, limits: ClusterSettings, now: datetime) -> str:
    """Return why there is no room for this ask, empty when there is.

    What a held job's recovery needs (an accused node) is bound by the number of repairs only.
    """
    others = [grant for grant in grants if grant.kind is ask.kind and grant.instance_id != ask.instance_id]
    if ask.kind is AskKind.REPAIR_SLOT:
        closed = outside_windows(limits.windows, scopes(ask.instance_id, ask.job, domains(ask), ask.pool), now)
        return _opted_out(ask, view) or closed or _repairs(others, limits)
    if ask.accused:
        return ""
    return (
        _opted_out(ask, view)
        or _cluster(others, view, limits)
        or _domain(ask, others, view, limits)
        or _job(ask, others, limits)
        or _pool(ask, others, view, limits)
    )


def _opted_out(ask: Ask, view: FleetView) -> str:
    why = view.opted_out.get(ask.instance_id)
    return f"{ask.node_name or ask.instance_id} has opted out: {why}" if why is not None else ""


def _repairs(others: list[Grant], limits: ClusterSettings) -> str:
    nodes = len({grant.instance_id for grant in others})
    return "" if nodes < limits.max_repairs else f"{nodes} nodes are under repair, the limit is {limits.max_repairs}"


def _cluster(others: list[Grant], view: FleetView, limits: ClusterSettings) -> str:
    out = len({grant.instance_id for grant in others})
    limit = min(limits.max_nodes_out, share(view.nodes, limits.max_percent_out))
    if out < limit:
        return ""
    return (
        f"{out} nodes are out, the limit is {limit} (at most {limits.max_nodes_out} nodes and {limits.max_percent_out:g} % of "
        f"{view.nodes})"
    )


def _domain(ask: Ask, others: list[Grant], view: FleetView, limits: ClusterSettings) -> str:
    for place in domains(ask):
        out = len({grant.instance_id for grant in others if place in grant.domains})
        nodes = view.domains.get(place, view.nodes)  # not seen yet: no smaller than what was seen
        limit = min(limits.max_nodes_out_per_domain, share(nodes, limits.max_percent_out_per_domain))
        if out >= limit:
            return f"{out} nodes of {place} are out, the limit is {limit} of its {nodes}"
    return ""


def _job(ask: Ask, others: list[Grant], limits: ClusterSettings) -> str:
    if not ask.job:
        return ""
    out = len({grant.instance_id for grant in others if grant.job == ask.job})
    limit = limits.max_nodes_out_per_job
    return "" if out < limit else f"{out} nodes of job {ask.job} are out, the limit is {limit}"


def _pool(ask: Ask, others: list[Grant], view: FleetView, limits: ClusterSettings) -> str:
    fewest = limits.min_usable.get(ask.pool)
    if fewest is None:
        return ""
    out = {grant.instance_id for grant in others if grant.pool == ask.pool}
    out |= {node for node, pool in view.quarantined.items() if pool == ask.pool and node != ask.instance_id}
    usable = view.pools.get(ask.pool, 0) - len(out)
    return "" if usable > fewest else f"pool {ask.pool} has {usable} usable nodes, the fewest allowed are {fewest}"


def share(nodes: int, percent: float) -> int:
    """So many nodes are `percent` of `nodes`, at least one."""
    return max(1, int(nodes * percent / 100))
