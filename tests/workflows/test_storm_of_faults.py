"""Faults of different kinds on half of a cluster at once: the budget holds throughout, the rest waits in order, nothing is lost.

`tests/bench` does the same with two hundred faults on four hundred nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind, BreakerState, ClusterState
from workflows.decisions.settings import ClusterSettings
from workflows.messages import IncidentReport

KINDS = (79, 119, 95, 64, 62, 144, 151, 154)
"""XIDs of eight fault classes; 64 needs a new node, 154 with an unknown action a person, the others a reboot."""

JOB_NODES = 6
LOOK_S = 0.2
"""Between looks at the books: with hundreds of asks each look is a large answer."""

ROOM = ClusterSettings(
    max_nodes_out=6,
    max_percent_out=50,
    max_repairs=3,
    max_nodes_out_per_domain=6,
    max_nodes_out_per_job=6,
    breaker_nodes=10_000,
    breaker_nodes_at_most=10_000,
    breaker_failed_repairs=0,
)
"""The limits that hold; the breaker is out of the way."""


@dataclass
class Watch:
    """Looks at the fleet itself at each call that changes it: how many nodes are out, how many are down."""

    fleet: FakeFleet
    most_out: int = 0
    most_down: int = 0
    resumed_on_quarantined: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Look from now on at each call."""
        points = self.fleet.points
        carry_out = points.carry_out

        def watched(point: str, node: str, effect: Callable[[], Any]) -> Any:
            answer = carry_out(point, node, effect)
            if point in ("set_tags", "reboot", "stop", "start_instance"):
                self._look()
            return answer

        points.carry_out = watched  # type: ignore[method-assign]

    def _look(self) -> None:
        """What is retired is with a person, and out of Hotspare's hands."""
        tags = [dict(of_node) for of_node in list(self.fleet.ec2.tags.values())]
        out = [one for one in tags if names.TAG_QUARANTINE in one and one.get(names.TAG_FATE) != names.FATE_RETIRED]
        self.most_out = max(self.most_out, len(out))
        self.most_down = max(self.most_down, sum(not machine.up for machine in self.fleet.machines.values()))


async def strike(cluster: Healing, count: int) -> list[WorkflowHandle[Any, IncidentReport]]:
    """Break every second node, each with another kind than its neighbours, and report all of them together."""
    fleet = cluster.fleet
    hit = [f"node-{2 * number + 1}" for number in range(count)]
    for position, name in enumerate(hit):
        fleet.inject(name, FakeFault(xid=KINDS[position % len(KINDS)], cure=Cure.REBOOT))
    return list(await asyncio.gather(*(cluster.report(name, xid=fleet.machine(name).faults[0].xid) for name in hit)))


def small_job(cluster: Healing) -> None:
    """Let the job have the first nodes only: whoever else is hit stands idle."""
    fleet = cluster.fleet
    for name in fleet.job.nodes[JOB_NODES:]:
        fleet.machine(name).gpu_processes = 0
    fleet.job.nodes = fleet.job.nodes[:JOB_NODES]


async def books(cluster: Healing) -> ClusterState:
    """The books of Cluster; asked again where a worker with hundreds of incidents is too busy to answer in time."""
    while True:
        try:
            return (await cluster.overview()).state
        except RPCError:
            await asyncio.sleep(LOOK_S)


async def asked_by_all(cluster: Healing, expected: int) -> ClusterState:
    """Wait until everybody who needs leave has asked for it."""

    async def have_asked() -> bool:
        state = await books(cluster)
        await asyncio.sleep(LOOK_S)
        out = {grant.instance_id for grant in state.grants if grant.kind is AskKind.NODE_OUT}
        return len(out | {ask.instance_id for ask in state.queue}) >= expected

    await cluster.until(have_asked)
    return await books(cluster)


async def all_heal(folder: Path, nodes: int, faults: int) -> None:
    """With the breaker out of the way: six at a time, the job's nodes first, until everybody is well or with a person."""
    async with healing(folder, nodes=nodes, spares=0, limits=ROOM) as cluster:
        fleet = cluster.fleet
        small_job(cluster)
        watch = Watch(fleet)
        watch.begin()
        first = fleet.hold("reboot")
        handles = await strike(cluster, faults)
        for_people = len(range(KINDS.index(154), faults, len(KINDS)))
        without_rung = len(range(KINDS.index(64), faults, len(KINDS)))
        state = await asked_by_all(cluster, faults - for_people - without_rung)
        impacts = [ask.impact for ask in state.queue if ask.kind is AskKind.NODE_OUT]
        assert impacts == sorted(impacts, reverse=True)
        assert all(ask.waits_for for ask in state.queue)
        assert state.breaker.state is BreakerState.CLOSED
        first.release()
        reports = await asyncio.gather(*(handle.result() for handle in handles))
        assert Counter(report.outcome for report in reports)["escalated"] >= for_people
        assert Counter(report.outcome for report in reports).keys() <= {"resolved", "escalated"}
        assert watch.most_out == ROOM.max_nodes_out
        assert watch.most_down <= ROOM.max_repairs
        await nothing_is_left(cluster)


async def nothing_is_left(cluster: Healing) -> None:
    """No grant, no queue, no lease; a quarantine only where a person was told."""

    async def quiet() -> bool:
        await asyncio.sleep(LOOK_S)
        state = await books(cluster)
        return not (state.grants or state.queue)

    await cluster.until(quiet)
    fleet = cluster.fleet
    told = {page.node for page in fleet.pages}
    for instance_id, tags in fleet.ec2.tags.items():
        if names.TAG_QUARANTINE in tags:
            assert tags[names.TAG_FATE] == names.FATE_RETIRED
            assert fleet.node(instance_id).name in told
        assert names.TAG_LEASE not in tags


async def test_different_faults_on_half_of_a_cluster_heal_in_order_within_the_budget_and_nothing_is_lost(tmp_path: Path) -> None:
    await all_heal(tmp_path, nodes=48, faults=24)


async def test_a_burst_of_faults_opens_the_breaker_one_node_is_tried_and_then_the_others_heal(tmp_path: Path) -> None:
    limits = ROOM.model_copy(update={"breaker_nodes": 8, "breaker_percent": 10.0})
    async with healing(tmp_path, nodes=32, spares=0, limits=limits) as cluster:
        fleet = cluster.fleet
        small_job(cluster)
        watch = Watch(fleet)
        watch.begin()
        early = fleet.hold("reboot")
        handles = await strike(cluster, 16)
        await asked_by_all(cluster, 16 - 2 * 2)  # 64 and 154 may be with a person already
        await cluster.until(lambda: breaker_is(cluster, BreakerState.OPEN))
        early.release()
        await cluster.until(lambda: nobody_repairs(cluster))
        before, state = fleet.count("reboot"), (await books(cluster))
        assert before <= limits.max_repairs
        assert len([ask for ask in state.queue if "the breaker is open: " in ask.waits_for]) >= 6
        trial = fleet.hold("reboot")
        keeper = cluster.client.get_workflow_handle(names.cluster_id(fleet.cluster))
        await cluster.env.fast_forward(keeper, limits.breaker_open_s + 1)
        await trial.reached()
        state = await books(cluster)
        assert state.breaker.state is BreakerState.HALF_OPEN
        assert [grant.instance_id for grant in state.grants if grant.kind is AskKind.REPAIR_SLOT] == [state.breaker.trial]
        assert all(ask.waits_for for ask in state.queue)
        assert fleet.count("reboot") == before
        trial.release()
        await asyncio.gather(*(handle.result() for handle in handles))
        assert [page.title for page in fleet.pages].count("the breaker is open") == 1
        assert watch.most_out <= limits.max_nodes_out
        assert watch.most_down <= limits.max_repairs
        await nothing_is_left(cluster)


async def breaker_is(cluster: Healing, state: BreakerState) -> bool:
    return (await books(cluster)).breaker.state is state


async def nobody_repairs(cluster: Healing) -> bool:
    state = await books(cluster)
    return not any(grant.kind is AskKind.REPAIR_SLOT for grant in state.grants)
