"""The pool as a person sees it: each spare with its use, how it stands and whether it counts; and whether it may be taken out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from activities.host_records import SpareRecord
from activities.inventory import Node
from activities.message import Message
from activities.names import ROLE_SPARE, is_kept_out
from checks.model import Verdict
from workflows.cluster_messages import AskKind, Grant
from workflows.decisions.spares_settings import SpareSettings
from workflows.decisions.spares_standing import Standing, standing_of


class Listed(Message):
    """One spare. `use` is free, or what keeps it from being leased now; `counts`: free, and known to be well."""

    name: str
    instance_id: str
    instance_type: str
    zone: str
    spine: str
    use: str
    standing: str
    counts: bool
    cost_per_hour: float | None = None


def list_pool(
    nodes: Sequence[Node],
    records: Sequence[SpareRecord],
    grants: Sequence[Grant],
    rules: SpareSettings,
    probation_h: float,
    now: datetime,
) -> list[Listed]:
    """Return every spare of the cluster, those that count first."""
    known = {record.instance_id: standing_of(record, rules, probation_h, now) for record in records}
    listed = [_listed(node, known.get(node.instance_id), grants, rules) for node in nodes if node.role == ROLE_SPARE]
    return sorted(listed, key=lambda one: (not one.counts, one.name))


def verdict_on(pool: Sequence[Listed]) -> Verdict:
    """OK where every spare that is not in use counts, CRITICAL where none does, WARN between."""
    counting = sum(1 for one in pool if one.counts)
    if not counting:
        return Verdict.CRITICAL
    return Verdict.OK if counting == len(pool) else Verdict.WARN


def use_of(node: Node, grants: Sequence[Grant]) -> str:
    """Say what has the spare now; empty where nothing has."""
    for grant in grants:
        if grant.kind is AskKind.SPARE and grant.spare_id == node.instance_id:
            return f"leased to {grant.asker}"
        if node.instance_id in grant.partners:
            return f"lent to {grant.asker}"
    if node.lease:
        return f"leased to {node.lease}"
    return f"quarantined by {node.quarantine}" if node.quarantine else ""


def _listed(node: Node, standing: Standing | None, grants: Sequence[Grant], rules: SpareSettings) -> Listed:
    use = use_of(node, grants) or _kept_out(node) or "free"
    return Listed(
        name=node.name,
        instance_id=node.instance_id,
        instance_type=node.instance_type,
        zone=node.zone,
        spine=node.spine,
        use=use,
        standing=standing.reason if standing else "nothing is known of it",
        counts=use == "free" and standing is not None and standing.counts,
        cost_per_hour=rules.cost_per_hour.get(node.instance_type),
    )


def _kept_out(node: Node) -> str:
    if is_kept_out(node.fate):
        return node.fate
    if node.opt_out:
        return f"has opted out: {node.opt_out}"
    return "" if node.state == "running" else f"EC2 says {node.state}"
