"""Nodes of a real Slurm: ours are drained and given back, others' are left alone, a node that is down is not given back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.errors import NodeUnreachable, NotOurs, PreconditionFailed
from activities.jobs.protocol import JobState
from activities.quarantine import Mark
from infra.lab.slurm.clustermgtd import ClusterManager
from tests.clusters.slurm_lab import SlurmLab, needs_slurm, slurm_lab

MARK = Mark(
    owner="incident/lab/i-0123456789abcdef0",
    reason="XID 79: GPU 3 'fell off' the bus, reason=x",
    since=datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
)


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmLab]:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch) as running:
        yield running


async def test_a_quarantined_node_is_drained_with_a_reason_that_reads_back_and_its_job_runs_on(here: SlurmLab) -> None:
    node, marks = await here.node("node-2"), here.marks
    await here.call(marks.write, node, MARK)
    assert await here.call(marks.read, node) == MARK
    assert "DRAIN" in (await here.row("node-2"))[0]
    assert await here.call(marks.marked) == {"node-2"}
    assert (await here.call(here.adapter.status, here.job.name)).state is JobState.RUNNING
    second = MARK.model_copy(update={"owner": "incident/lab/i-0fedcba9876543210"})
    await here.call(marks.write, node, second)
    assert await here.call(marks.read, node) == MARK
    await here.call(marks.remove, node)
    await here.call(marks.remove, node)
    assert await here.call(marks.read, node) is None
    assert "DRAIN" not in (await here.row("node-2"))[0]


async def test_what_somebody_else_drained_is_not_ours_and_stays_drained(here: SlurmLab) -> None:
    node, marks = await here.node("node-3"), here.marks
    await here.scontrol("update", "nodename=node-3", "state=drain", "reason=NHC: check_fs failed")
    await here.call(marks.write, node, MARK)
    with pytest.raises(NotOurs, match="check_fs failed"):
        await here.call(marks.read, node)
    with pytest.raises(NotOurs):
        await here.call(marks.remove, node)
    assert await here.call(marks.marked) == {"node-3"}
    states, reason = await here.row("node-3")
    assert ("DRAIN" in states, reason) == (True, "NHC: check_fs failed")


async def test_a_node_that_is_down_is_given_back_only_when_its_slurmd_has_registered(here: SlurmLab) -> None:
    node, marks = await here.node("spare-1"), here.marks
    await here.call(marks.write, node, MARK)
    await here.lab.nodes["spare-1"].stop()
    await here.until("spare-1", lambda states: {"DOWN", "NOT_RESPONDING"} <= states)
    with pytest.raises(NodeUnreachable, match="register"):
        await here.call(marks.remove, node)
    assert await here.call(marks.read, node) == MARK
    await here.lab.nodes["spare-1"].start()
    await here.until("spare-1", lambda states: "NOT_RESPONDING" not in states)
    await here.call(marks.remove, node)
    assert await here.call(marks.read, node) is None
    await here.until("spare-1", lambda states: states == {"IDLE"})


async def test_on_parallelcluster_a_quarantine_replaces_nobody_and_giving_up_replaces_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch, flavour="parallelcluster") as here:
        manager = ClusterManager(here.lab, here.cluster)
        try:
            await play_parallelcluster(here, manager)
        finally:
            await manager.close()


async def play_parallelcluster(here: SlurmLab, manager: ClusterManager) -> None:
    node, marks, old = await here.node("node-2"), here.marks, here.lab.nodes["node-2"]
    with pytest.raises(PreconditionFailed, match="not quarantined"):
        await here.call(marks.replace_by_drain, node, MARK.owner)
    await here.call(marks.write, node, MARK)
    with pytest.raises(PreconditionFailed, match="job is still there"):
        await here.call(marks.replace_by_drain, node, MARK.owner)
    await here.call(here.adapter.hold, here.job.name, "test")
    await here.until("node-2", lambda states: "IDLE" in states)
    await manager.looked_again()
    assert "DRAIN" not in (await here.row("node-2"))[0]
    assert await here.call(marks.read, node) == MARK
    # Work is kept off all the same.
    assert await here.call(marks.marked) == {"node-2"}
    status, said = await here.cluster.daemons.ask("srun", "--immediate=2", "-N1", "-w", "node-2", "--gpus-per-node=8", "true")
    assert status != 0, said
    assert here.lab.endpoint.count("TerminateInstances", old.instance_id) == 0

    await here.call(marks.replace_by_drain, node, MARK.owner)
    new = await manager.wait_for_replacement("node-2")
    await manager.looked_again()
    assert new.instance_id != old.instance_id
    assert here.lab.endpoint.count("TerminateInstances", old.instance_id) == 1
    assert manager.replaced == ["node-2"]
    await here.until("node-2", lambda states: states <= {"IDLE"})
    fresh = await here.node(new.instance_id)
    assert await here.call(marks.read, fresh) is None
