"""Which spares are tested now: those that were never tested first, then those whose last test is longest ago; few at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.host_records import SpareRecord
from activities.inventory import Node
from activities.message import Message
from activities.names import ROLE_SPARE, is_kept_out
from workflows.decisions.settings import Mode, PolicySettings
from workflows.decisions.spares_settings import SpareSettings


class PoolSeen(Message):
    """The nodes, and what is known of the spares among them."""

    nodes: list[Node]
    records: list[SpareRecord]
    now: datetime


class SpareTests(Message):
    """The spares to test now, each with its reason by instance id, and why the others are not tested."""

    due: list[Node] = []
    because: dict[str, str] = {}
    left_alone: dict[str, str] = {}


def plan_spare_tests(seen: PoolSeen, rules: SpareSettings, policy: PolicySettings) -> SpareTests:
    """Return which spares to test now. Tests put load on nodes, so none runs where nothing may be done to any."""
    spares = [node for node in seen.nodes if node.role == ROLE_SPARE]
    if rules.tests_at_once == 0 or not acts(policy):
        why = "tests of spares are switched off" if rules.tests_at_once == 0 else "the cluster is only observed"
        return SpareTests(left_alone=dict.fromkeys((node.name for node in spares), why))
    records = {record.instance_id: record for record in seen.records}
    alone: dict[str, str] = {}
    due: list[tuple[datetime | None, Node, str]] = []
    for node in spares:
        tested_at = _tested_at(records.get(node.instance_id))
        if why := _not_now(node, tested_at, rules, seen.now):
            alone[node.name] = why
        else:
            because = "it was never tested" if tested_at is None else f"its last test was at {tested_at:%Y-%m-%d %H:%M} UTC"
            due.append((tested_at, node, because))
    due.sort(key=lambda one: (one[0] is not None, one[0] or seen.now, one[1].name))
    chosen = due[: rules.tests_at_once]
    alone |= {node.name: "others come first" for _, node, _ in due[rules.tests_at_once :]}
    return SpareTests(
        due=[node for _, node, _ in chosen],
        because={node.instance_id: because for _, node, because in chosen},
        left_alone=alone,
    )


def acts(policy: PolicySettings) -> bool:
    """Whether anything at all may be done to nodes, of any pool."""
    modes = [policy.mode, *policy.mode_by_rung.values()]
    modes += [mode for by_rung in policy.mode_by_class.values() for mode in by_rung.values()]
    if any(mode is not Mode.OBSERVE for mode in modes):
        return True
    return any(acts(policy.for_pool(pool).model_copy(update={"pools": {}})) for pool in policy.pools)


def _tested_at(record: SpareRecord | None) -> datetime | None:
    """When the last look with a result, or without one, was: a test that cannot run is not tried again at every sweep."""
    if record is None:
        return None
    times = [at for at in (record.qualified_at, record.test.at if record.test else None) if at is not None]
    return max(times, default=None)


def _not_now(node: Node, tested_at: datetime | None, rules: SpareSettings, now: datetime) -> str:
    if node.state != "running":
        return f"EC2 says {node.state}"
    if node.quarantine or node.lease:
        return "an incident has it" if node.quarantine else "leased"
    if node.opt_out:
        return f"has opted out: {node.opt_out}"
    if is_kept_out(node.fate):
        return node.fate
    if tested_at is not None and now - tested_at < timedelta(hours=rules.test_every_h):
        return "tested not long ago"
    return ""
