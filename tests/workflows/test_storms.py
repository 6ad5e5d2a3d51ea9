"""One event on many nodes is answered once: a job that crashed is restarted once, people are paged once, no node is touched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import CommandFailed
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind, BreakerState, FreezeRequest
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import StormReport, Word
from workflows.storm import GATHER, QUIET

EVENT = ClusterSettings(storm_nodes=3, alone_wait_s=3600.0)
"""Nobody is taken for alone while the clocks stand: the third report makes it an event."""


async def reported_together(cluster: Healing, xid: int, count: int, *, crash: bool = False) -> WorkflowHandle[Any, StormReport]:
    """Report one fault on many nodes; returns the storm once every incident has handed over to it."""
    names = [f"node-{number}" for number in range(1, count + 1)]
    for name in names:
        cluster.fleet.inject(name, FakeFault(xid=xid, cure=Cure.NEVER))
    if crash:
        cluster.fleet.job.stop()
    handles = await asyncio.gather(*(cluster.report(name, xid=xid) for name in names))
    reports = await asyncio.gather(*(handle.result() for handle in handles))
    assert {report.outcome for report in reports} == {"part of a storm"}
    [storm] = (await cluster.overview()).state.storms
    return cluster.client.get_workflow_handle(storm.storm_id, result_type=StormReport)


async def over(cluster: Healing, storm: WorkflowHandle[Any, StormReport]) -> StormReport:
    """Let the storm act, then be quiet."""
    await cluster.env.fast_forward(storm, GATHER.total_seconds() + 1)
    await cluster.told(storm, "decided")
    await cluster.env.fast_forward(storm, QUIET.total_seconds() + 60)
    return await storm.result()


async def test_a_job_that_crashed_on_all_its_nodes_is_restarted_once_with_one_page(tmp_path: Path) -> None:
    async with healing(tmp_path, nodes=6, spares=0, limits=EVENT) as cluster:
        fleet = cluster.fleet
        storm = await over(cluster, await reported_together(cluster, xid=31, count=6, crash=True))
        assert storm.nodes == [f"node-{number}" for number in range(1, 7)]
        assert (storm.jobs, storm.still_ill) == (["train"], [])
        assert len(fleet.job.resumes) == 1
        assert len(fleet.pages) == 1
        assert [fleet.count(point) for point in ("run.quarantine_write", "reboot", "stop")] == [0, 0, 0]


async def test_a_job_that_trains_on_is_not_stopped_by_a_storm(tmp_path: Path) -> None:
    async with healing(tmp_path, nodes=6, spares=0, limits=EVENT) as cluster:
        storm = await over(cluster, await reported_together(cluster, xid=31, count=6))
        assert any("stops no running job" in line for line in storm.story)
        assert any("stops no running job" in line for line in cluster.fleet.pages[0].why)
        assert (cluster.fleet.count("job.hold"), cluster.fleet.job.resumes) == (0, [])


async def test_a_job_that_cannot_be_seen_to_have_stopped_is_not_restarted_by_a_storm(tmp_path: Path) -> None:
    async with healing(tmp_path, nodes=6, spares=0, limits=EVENT) as cluster:
        storm = await reported_together(cluster, xid=31, count=6, crash=True)
        cluster.fleet.fail_next("job.find", CommandFailed("squeue: cannot connect"), times=10_000)
        report = await over(cluster, storm)
        assert any("could not be seen" in line for line in report.story)
        assert (cluster.fleet.count("job.hold"), cluster.fleet.job.resumes) == (0, [])


async def test_a_lost_gpu_on_every_node_is_for_people_and_no_node_is_touched(tmp_path: Path) -> None:
    async with healing(tmp_path, nodes=6, spares=0, limits=EVENT.model_copy(update={"max_nodes_out": 0})) as cluster:
        fleet = cluster.fleet
        storm = await over(cluster, await reported_together(cluster, xid=79, count=6))
        assert (storm.jobs, len(fleet.pages)) == ([], 1)
        assert [fleet.count(point) for point in ("run.quarantine_write", "reboot", "job.hold")] == [0, 0, 0]


async def test_an_application_fault_of_one_node_restarts_its_job_as_before(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=31))
        report = await (await cluster.report("node-2", xid=31)).result()
        assert report.outcome == "resolved"
        assert len(fleet.job.resumes) == 1
        assert fleet.count("run.quarantine_write") == 0


async def test_a_burst_of_different_faults_opens_the_breaker_with_one_page_and_what_is_out_still_comes_back(
    tmp_path: Path,
) -> None:
    limits = ClusterSettings(breaker_nodes=3, breaker_percent=10, max_percent_out=50)
    async with healing(tmp_path, nodes=6, spares=0, limits=limits) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
        booting = fleet.hold("reboot", "node-1")
        first = await cluster.report("node-1", xid=79)
        await booting.reached()
        for name, xid in (("node-2", 95), ("node-3", 119), ("node-4", 140)):
            fleet.inject(name, FakeFault(xid=xid, cure=Cure.REBOOT))
            await cluster.report(name, xid=xid)
        await cluster.until(lambda: breaker_is(cluster, BreakerState.OPEN))
        booting.release()
        await cluster.told(first, "back in service")
        assert fleet.count("reboot") == 1
        assert [page.title for page in fleet.pages].count("the breaker is open") == 1


async def breaker_is(cluster: Healing, state: BreakerState) -> bool:
    return (await cluster.overview()).state.breaker.state is state


async def test_a_freeze_stops_a_step_whose_slot_was_granted_already(tmp_path: Path) -> None:
    policy = PolicySettings(mode=Mode.ACT)
    async with healing(tmp_path, spares=0, policy=policy) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        holding = fleet.hold("job.hold")
        handle = await cluster.report("node-2", xid=79)
        await holding.reached()
        keeper = cluster.client.get_workflow_handle("cluster/lab")
        await keeper.execute_update("freeze", FreezeRequest(who="ann", why="demo", minutes=60))
        holding.release()
        await cluster.told(handle, "waiting")
        state = (await cluster.overview()).state
        assert [ask.kind for ask in state.queue] == [AskKind.REPAIR_SLOT]
        assert "ann" in state.freezes[0].who
        assert fleet.count("reboot") == 0
        await handle.execute_update("take_over", Word(by="ann"))
