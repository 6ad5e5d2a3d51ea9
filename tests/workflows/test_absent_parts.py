"""Parts taken away or stuck in mid-work: Cluster terminated in a storm, incidents terminated, reset or wedged by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing, healing
from tests.workflows.test_trials import APPROVE_REBOOT, reset_to_the_start
from workers.wedged import Wedged, carry_out, look_for_wedge, plan_for
from workflows import incident_steps
from workflows.cluster_messages import AskKind, BreakerState, Grant
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings

TWO_OUT = ClusterSettings(max_nodes_out=2, max_percent_out=50, storm_nodes=50, breaker_nodes=50)
SOUND_EVIDENCE = incident_steps.collect_evidence

Booked = set[tuple[str, str, AskKind, str, str]]


@pytest.fixture
async def no_spares(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four nodes with a job and no spare. A node that is looked at again is so at once: clocks stand here."""
    async with healing(tmp_path, spares=0, policy=PolicySettings(mode=Mode.ACT, look_again_s=0.05)) as one:
        yield one


def booked(grants: list[Grant]) -> Booked:
    """What the books say is handed out, to whom, under which request."""
    return {(one.request_id, one.asker, one.kind, one.instance_id, one.spare_id) for one in grants}


def keeper(cluster: Healing) -> WorkflowHandle[Any, Any]:
    return cluster.client.get_workflow_handle(names.cluster_id(cluster.fleet.cluster))


async def granted(cluster: Healing, *kinds: AskKind) -> None:
    """Wait until exactly so many things of these kinds are handed out."""

    async def so_many() -> bool:
        return sorted(one.kind for one in (await cluster.overview()).state.grants) == sorted(kinds)

    await cluster.until(so_many)


async def queued(cluster: Healing, *nodes: str) -> None:
    """Wait until these nodes wait for room."""

    async def waiting() -> bool:
        return {ask.node_name for ask in (await cluster.overview()).state.queue} == set(nodes)

    await cluster.until(waiting)


async def recovered(cluster: Healing) -> None:
    async def done() -> bool:
        return not (await cluster.overview()).recovering

    await cluster.until(done)


async def nothing_left(cluster: Healing, *aliases: str) -> None:
    """No grant, no lease, no quarantine of ours: neither in the books nor in the tags."""

    async def books_empty() -> bool:
        return not (await cluster.overview()).state.grants

    await cluster.until(books_empty)
    for alias in aliases:
        left = {names.TAG_QUARANTINE, names.TAG_LEASE} & set(cluster.tags(alias))
        assert not left, (alias, cluster.tags(alias))
        assert not cluster.fleet.quarantined_at_head(alias)


async def test_cluster_terminated_in_a_storm_comes_back_with_the_same_books_and_grants_nothing_beyond(tmp_path: Path) -> None:
    async with healing(tmp_path, nodes=6, spares=1, limits=TWO_OUT) as cluster:
        fleet = cluster.fleet
        testing_the_spare, rebooting = fleet.hold("start", "spare-1"), fleet.hold("reboot")
        for alias in ("node-1", "node-2", "node-3", "node-4"):
            fleet.inject(alias, FakeFault(xid=79, cure=Cure.REBOOT))
        first = await cluster.report("node-1", xid=79)
        await testing_the_spare.reached()
        second = await cluster.report("node-2", xid=79)
        await rebooting.reached()
        third = await cluster.report("node-3", xid=79)
        await queued(cluster, "node-3")
        asked = {"scope": "zone:us-east-1z", "minutes": 60, "who": "ann", "why": "cooling"}
        await keeper(cluster).execute_update("freeze", asked)
        await granted(cluster, AskKind.NODE_OUT, AskKind.NODE_OUT, AskKind.REPAIR_SLOT, AskKind.REPAIR_SLOT, AskKind.SPARE)
        before = await cluster.overview()

        reading_back = fleet.hold("memory.freezes")
        await keeper(cluster).terminate("by mistake, in a storm")
        fourth = await cluster.report("node-4", xid=79)  # its ask starts Cluster
        await reading_back.reached()
        during = await cluster.overview()
        assert (during.recovering, during.state.grants) == (True, [])
        reading_back.release()
        await recovered(cluster)

        after = await cluster.overview()
        assert booked(after.state.grants) == booked(before.state.grants)
        assert [one.scope for one in after.state.freezes] == ["zone:us-east-1z"]
        await cluster.told(fourth, "waiting")
        await queued(cluster, "node-3", "node-4")
        assert booked((await cluster.overview()).state.grants) == booked(before.state.grants)
        assert names.TAG_QUARANTINE not in cluster.tags("node-4")

        testing_the_spare.release()
        rebooting.release()
        reports = [await handle.result() for handle in (first, second, third, fourth)]
        assert {report.outcome for report in reports} == {"resolved"}
        assert len(set(fleet.job.status("train").nodes)) == 6
        for alias in ("node-1", "node-2", "node-3", "node-4"):
            assert fleet.count("reboot", alias) <= 1
        await nothing_left(cluster, "node-2", "node-3", "node-4", "spare-1")


async def test_cluster_terminated_with_an_open_breaker_comes_back_with_it_open(tmp_path: Path) -> None:
    limits = ClusterSettings(max_nodes_out=4, max_percent_out=90, breaker_nodes=3, breaker_percent=10, storm_nodes=50)
    async with healing(tmp_path, nodes=6, spares=0, limits=limits) as cluster:
        fleet = cluster.fleet
        rebooting = fleet.hold("reboot")
        for alias in ("node-1", "node-2", "node-3"):
            fleet.inject(alias, FakeFault(xid=79, cure=Cure.REBOOT))
            await cluster.report(alias, xid=79)

        async def stored_open() -> bool:
            kept = [one.scope for one in fleet.memory.freezes(fleet.cluster)]
            return (await cluster.overview()).state.breaker.state is BreakerState.OPEN and "breaker" in kept

        await cluster.until(stored_open)
        await keeper(cluster).terminate("by mistake")
        fleet.inject("node-5", FakeFault(xid=79, cure=Cure.REBOOT))
        late = await cluster.report("node-5", xid=79)
        await recovered(cluster)
        await cluster.told(late, "waiting")
        after = await cluster.overview()
        assert after.state.breaker.state is BreakerState.OPEN
        assert fleet.node("node-5").instance_id not in {one.instance_id for one in after.state.grants}
        assert names.TAG_QUARANTINE not in cluster.tags("node-5")
        rebooting.release()


POINTS = [
    ("boot_id", "node-2"),
    ("set_tags", "node-2"),
    ("run.quarantine_write", ""),
    ("job.hold", ""),
    ("reboot", "node-2"),
    ("start", "node-2"),
    ("remove_tags", "node-2"),
    ("job.resume", ""),
    ("memory.incident", ""),
]
"""Where an incident is when it is interrupted: each is a call that has been made and has not answered yet."""


@pytest.mark.parametrize(("point", "node"), POINTS)
async def test_an_incident_terminated_by_hand_is_taken_up_by_the_next_report_and_nothing_is_done_twice(
    no_spares: Healing, point: str, node: str
) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    holding = fleet.hold(point, node)
    handle = await no_spares.report("node-2", xid=79)
    await holding.reached()
    await handle.terminate("by hand")
    holding.release()
    await no_spares.until(lambda: made(no_spares, point, node))
    again = await no_spares.report("node-2", xid=79, key="seen again")
    if point == "remove_tags":  # ended between the node's return and the word to the job: nothing is found any more
        assert (await again.result()).outcome == "nothing found"
        await job_looks_after_its_nodes(no_spares)
    await again.result()
    await settled(no_spares)
    assert fleet.count("reboot", "node-2") == 1
    assert len(fleet.job.resumes) == 1
    assert sorted(fleet.job.status("train").nodes) == ["node-1", "node-2", "node-3", "node-4"]
    await no_spares.env.fast_forward(keeper(no_spares), 1300)
    await nothing_left(no_spares, "node-1", "node-2", "node-3", "node-4")


@pytest.mark.parametrize(("point", "node"), POINTS)
async def test_an_incident_reset_to_its_start_does_nothing_twice_and_leaves_nothing(
    no_spares: Healing, point: str, node: str
) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    holding = fleet.hold(point, node)
    handle = await no_spares.report("node-2", xid=79)
    await holding.reached()
    await reset_to_the_start(no_spares, handle)
    holding.release()
    report = await no_spares.incident_of("node-2").result()
    if point == "remove_tags":
        await job_looks_after_its_nodes(no_spares)
    await settled(no_spares)
    assert report.outcome in ("resolved", "nothing found")
    assert fleet.count("reboot", "node-2") == 1
    assert len(fleet.job.resumes) == 1
    await no_spares.env.fast_forward(keeper(no_spares), 1300)
    await nothing_left(no_spares, "node-1", "node-2", "node-3", "node-4")


async def job_looks_after_its_nodes(cluster: Healing) -> None:
    """Turn the clock of the job's recovery to its next look at the incidents that owe it an answer, if it waits for one."""
    job = cluster.client.get_workflow_handle(names.job_id(cluster.fleet.cluster, "train"))
    await cluster.env.fast_forward(job, 301)


async def made(cluster: Healing, point: str, node: str) -> bool:
    return cluster.fleet.count(point, node) > 0


async def settled(cluster: Healing) -> None:
    """Wait until the job's recovery has ended."""
    job = cluster.client.get_workflow_handle(names.job_id(cluster.fleet.cluster, "train"))

    async def ended() -> bool:
        return (await job.describe()).status is not WorkflowExecutionStatus.RUNNING

    await cluster.until(ended)


async def test_an_incident_terminated_while_its_spare_is_tested_adopts_the_replacement_and_loses_no_spare(
    cluster: Healing,
) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    testing = fleet.hold("start", "spare-1")
    handle = await cluster.report("node-3", xid=64)
    await testing.reached()
    await handle.terminate("by hand")
    again = await cluster.report("node-3", xid=64, key="seen again")
    await cluster.told(again, "diagnosed")
    testing.release()
    await again.result()
    await settled(cluster)
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-1", "node-4"]
    assert len(fleet.job.resumes) == 1
    await cluster.env.fast_forward(keeper(cluster), 1300)
    await nothing_left(cluster, "spare-1")


async def test_a_job_s_recovery_terminated_by_hand_is_a_person_s_to_end_and_the_node_comes_back(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    rebooting = fleet.hold("reboot")
    handle = await no_spares.report("node-2", xid=79)
    await rebooting.reached()
    await no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train")).terminate("by hand")
    rebooting.release()
    report = await handle.result()
    assert report.fate == "back in service"
    assert "resume it by hand" in report.job
    assert any("resume it by hand" in str(page) for page in fleet.pages)
    assert (fleet.count("reboot"), len(fleet.job.resumes)) == (1, 0)
    await no_spares.env.fast_forward(keeper(no_spares), 1300)
    await nothing_left(no_spares, "node-2")


async def stuck_after_the_reboot(cluster: Healing, monkeypatch: pytest.MonkeyPatch) -> WorkflowHandle[Any, Any]:
    """An incident whose reboot is made, under a new release in which an earlier step has changed."""
    fleet = cluster.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    after_the_reboot = fleet.hold("start", "node-2")
    handle = await cluster.report("node-2", xid=79)
    await after_the_reboot.reached()

    async def changed(incident: Any, step: Any) -> None:
        from temporalio import workflow

        await workflow.sleep(1)
        await SOUND_EVIDENCE(incident, step)

    await cluster.stop_worker()
    monkeypatch.setattr(incident_steps, "collect_evidence", changed)
    await cluster.start_worker()
    await handle.signal("report_fault", {"source": "watcher", "key": "wakes it", "what": "something"})
    after_the_reboot.release()

    async def stuck() -> bool:
        return await look_for_wedge(cluster.client, handle.id, 2) is not None

    await cluster.until(stuck)
    return handle


@pytest.mark.parametrize("from_start", [False, True])
async def test_a_change_that_breaks_an_open_incident_is_mended_by_unwedge_and_nothing_is_done_twice(
    no_spares: Healing, monkeypatch: pytest.MonkeyPatch, from_start: bool
) -> None:
    fleet = no_spares.fleet
    handle = await stuck_after_the_reboot(no_spares, monkeypatch)
    await no_spares.stop_worker()
    if not from_start:
        monkeypatch.setattr(incident_steps, "collect_evidence", SOUND_EVIDENCE)
    wedged = await look_for_wedge(no_spares.client, handle.id, 2)
    assert wedged is not None
    assert (wedged.cause, wedged.other_code) == ("NON_DETERMINISTIC_ERROR", True)
    await carry_out(no_spares.client, await plan_for(no_spares.client, wedged, from_start=from_start), "the mend is in")
    await no_spares.start_worker()
    if from_start:
        await no_spares.env.fast_forward(no_spares.incident_of("node-2"), 2)
    report = await no_spares.incident_of("node-2").result()
    await settled(no_spares)
    assert report.outcome in ("resolved", "nothing found")
    assert fleet.count("reboot", "node-2") == 1
    assert len(fleet.job.resumes) == 1
    await nothing_left(no_spares, "node-2")


async def test_a_stuck_cluster_that_does_not_fit_its_code_recovers_with_the_same_grants(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    before = booked((await no_spares.overview()).state.grants)
    described = await keeper(no_spares).describe()
    stuck = Wedged(described.id, described.run_id, "Cluster", 3, None, "NON_DETERMINISTIC_ERROR", "", other_code=True)
    await carry_out(no_spares.client, await plan_for(no_spares.client, stuck), "the mend is in")
    await no_spares.gateway.ensure_cluster(fleet.cluster)
    await recovered(no_spares)
    assert booked((await no_spares.overview()).state.grants) == before
