"""Jobs of a real Slurm: found, held, released onto named nodes once a token, and told apart from what cannot come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.errors import CapabilityMissing, PreconditionFailed
from activities.jobs.protocol import JobState
from infra.lab.faults import Fault
from tests.clusters.slurm_lab import SlurmLab, needs_slurm, slurm_lab


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmLab]:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch) as running:
        yield running


async def test_a_running_job_is_held_and_released_onto_named_nodes_once_a_token(here: SlurmLab) -> None:
    job, adapter = here.job, here.adapter
    await job.wait_for_checkpoint(10)
    seen = await here.call(adapter.status, job.name)
    assert (seen.state, seen.nodes, seen.restarted_by) == (JobState.RUNNING, ["node-1", "node-2", "node-3"], "hotspare")
    assert seen.step >= 10
    assert seen.checkpoint_step >= 10

    held = await here.call(adapter.hold, job.name, "GPU 3 of node-2 fell off the bus")
    assert held.state is JobState.HELD
    assert held.nodes == ["node-1", "node-2", "node-3"]
    assert not any(node.gpu_state()["processes"] for node in here.lab.nodes.values())
    assert (await here.call(adapter.hold, job.name, "again")).state is JobState.HELD

    wanted = ["node-1", "spare-1", "node-3"]
    await here.call(adapter.resume, job.name, wanted, "token-1")
    await job.wait_for_state("RUNNING")
    assert sorted(job.node_names) == sorted(wanted)
    await job.wait_for_step(job.checkpoint_step + 1)
    again = await here.call(adapter.status, job.name)
    assert (again.run_token, again.state, sorted(again.nodes)) == ("token-1", JobState.RUNNING, sorted(wanted))
    assert job.resumes == [{"token": "token-1", "nodes": job.node_names}]

    await here.call(adapter.resume, job.name, wanted, "token-1")
    with pytest.raises(PreconditionFailed, match="RUNNING"):
        await here.call(adapter.resume, job.name, wanted, "token-2")
    assert len(job.resumes) == 1


async def test_a_job_whose_rank_died_is_found_on_its_node_and_comes_back_elsewhere(here: SlurmLab) -> None:
    job, adapter = here.job, here.adapter
    await job.wait_for_checkpoint(10)
    await here.lab.inject("node-2", Fault(xid=79, cure="reboot"))
    await job.wait_for_state("STOPPED")
    found = await here.call(adapter.find_on, await here.node("node-2"))
    async with asyncio.timeout(20):
        while found.state is not JobState.STOPPED:
            found = await here.call(adapter.find_on, await here.node("node-2"))
    assert found.job == job.name
    assert await here.call(adapter.find_on, await here.node("spare-1")) is None
    held = await here.call(adapter.hold, job.name, "its node is broken")
    assert held.state is JobState.HELD
    await here.call(adapter.resume, job.name, ["node-1", "node-3", "spare-1"], "token-1")
    await job.wait_for_state("RUNNING")
    assert await here.call(adapter.find_on, await here.node("node-2")) is None


async def test_a_released_job_that_a_person_holds_again_is_not_started_by_an_old_token(here: SlurmLab) -> None:
    job, adapter = here.job, here.adapter
    await here.call(adapter.hold, job.name, "test")
    await here.call(adapter.resume, job.name, ["node-1", "node-2", "node-3"], "token-1")
    await job.wait_for_state("RUNNING")
    await here.scontrol("requeuehold", job.id)
    await job.wait_for_state("HELD")
    await here.call(adapter.resume, job.name, ["node-1", "node-2", "node-3"], "token-1")
    seen = await here.call(adapter.status, job.name)
    assert (seen.state, seen.run_token) == (JobState.HELD, "")


async def test_a_job_that_cannot_be_requeued_is_not_stopped_and_says_what_mends_it(here: SlurmLab) -> None:
    await here.scontrol("update", f"jobid={here.job.id}", "Requeue=0")
    seen = await here.call(here.adapter.status, here.job.name)
    assert any("will not come back by itself" in warning and "Requeue=1" in warning for warning in seen.warnings)
    with pytest.raises(CapabilityMissing, match="Requeue=1"):
        await here.call(here.adapter.hold, here.job.name, "test")
    assert (await here.call(here.adapter.status, here.job.name)).state is JobState.RUNNING


async def test_a_job_that_slurm_has_forgotten_is_said_to_be_gone(here: SlurmLab) -> None:
    with pytest.raises(PreconditionFailed, match="no job 4711"):
        await here.call(here.adapter.status, "4711")


async def test_a_job_whose_node_died_is_stopped_for_good_only_when_slurm_has_given_the_node_up(here: SlurmLab) -> None:
    job, adapter = here.job, here.adapter
    await job.wait_for_checkpoint(10)
    gone = await here.node("node-2")
    assert (await here.call(adapter.find_on, gone)).state is JobState.RUNNING
    await here.lab.nodes["node-2"].stop()
    held = await here.call(adapter.hold, job.name, "node-2 has died")
    assert (held.state, held.nodes) == (JobState.HELD, ["node-1", "node-2", "node-3"])
    assert "DOWN" in (await here.row("node-2"))[0]
    await here.call(adapter.resume, job.name, ["node-1", "spare-1", "node-3"], "token-1")
    await job.wait_for_state("RUNNING")
    await job.wait_for_step(job.checkpoint_step + 1)
    assert [sorted(resume["nodes"]) for resume in job.resumes] == [["node-1", "node-3", "spare-1"]]
    assert await here.call(adapter.find_on, gone) is None


async def test_a_job_that_its_owner_cancels_meanwhile_is_not_brought_back(here: SlurmLab) -> None:
    await here.cluster.daemons.ask("scancel", here.job.id)
    with pytest.raises(PreconditionFailed, match="cancelled"):
        await here.call(here.adapter.hold, here.job.name, "test")
