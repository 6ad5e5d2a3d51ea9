"""The whole loop on a real Slurm: `hotspare run` hears of a fault by the kernel log, and the job trains again on proven nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from infra.lab.faults import Fault
from tests.clusters.slurm_lab import SlurmLab, needs_slurm, slurm_lab
from tests.workers.test_run_in_lab import ended, hotspare, running
from workers.connection import connect


async def test_a_spare_takes_the_place_of_a_broken_node_and_the_job_steps_past_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch, temporal=True) as here:
        await heal(here, "node-2", Fault(xid=79, cure="never"))
        assert [sorted(resume["nodes"]) for resume in here.job.resumes] == [["node-1", "node-3", "spare-1"]]
        assert await here.call(here.marks.marked) <= {"node-2"}


async def test_without_a_spare_the_node_is_rebooted_resumed_in_slurm_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch, temporal=True, spares=0) as here:
        await heal(here, "node-2", Fault(xid=79, cure="reboot"))
        assert here.lab.endpoint.count("RebootInstances", here.lab.nodes["node-2"].instance_id) == 1
        assert [sorted(resume["nodes"]) for resume in here.job.resumes] == [["node-1", "node-2", "node-3"]]
        assert await here.call(here.marks.marked) == set()


async def heal(here: SlurmLab, name: str, fault: Fault) -> None:
    """Let Hotspare heal a fault to the end of its incident, and the job step past its checkpoint."""
    job = here.job
    init = await hotspare("init", "--yes", "--json")
    out, _ = await init.communicate()
    assert init.returncode == 0, out
    client = await connect()
    async with running():
        await job.wait_for_checkpoint(10)
        await here.lab.inject(name, fault)
        async with asyncio.timeout(150):
            assert await ended(client, here.lab, name) is WorkflowExecutionStatus.COMPLETED
    assert all(resume["token"] for resume in job.resumes)
    await job.wait_for_step(job.checkpoint_step + 1)
