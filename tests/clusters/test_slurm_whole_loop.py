"""The whole loop on a real Slurm: `hotspare run` hears of a fault by the kernel log, and the job trains again on proven nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.names import FATE_REPLACED, incident_id
from infra.lab.faults import Fault
from infra.lab.slurm.clustermgtd import ClusterManager
from tests.clusters.slurm_lab import SlurmLab, needs_slurm, slurm_lab
from tests.workers.test_run_in_lab import ended, hotspare, running
from workers.connection import connect
from workflows.messages import IncidentReport


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


async def test_on_parallelcluster_a_node_that_nothing_mends_is_drained_last_and_replaced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_slurm()
    async with slurm_lab(tmp_path, monkeypatch, temporal=True, flavour="parallelcluster") as here:
        manager = ClusterManager(here.lab, here.cluster)
        old = here.lab.nodes["node-2"]
        kept: list[list[Path]] = []
        ran_on: list[list[str]] = []

        def before(slurm_name: str) -> None:
            kept.append(sorted((here.lab.folder / "evidence").glob("*.tar.gz")))
            ran_on.append(sorted(here.job.node_names))

        manager.before = before
        try:
            report = await heal(here, "node-2", Fault(xid=64, cure="never"))
            new = await manager.wait_for_replacement("node-2")
            await manager.looked_again()
        finally:
            await manager.close()
        assert (report.outcome, report.fate) == ("resolved", FATE_REPLACED), report.story
        assert (len(kept[0]), ran_on) == (1, [["node-1", "node-3", "spare-1"]])
        assert manager.replaced == ["node-2"]
        assert here.lab.endpoint.count("TerminateInstances", old.instance_id) == 1
        await here.until("node-2", lambda states: states <= {"IDLE"})
        assert await here.call(here.marks.read, await here.node(new.instance_id)) is None
        _, reservations = await here.cluster.daemons.ask("scontrol", "show", "reservation")
        assert "No reservations" in reservations


async def heal(here: SlurmLab, name: str, fault: Fault) -> IncidentReport:
    """Let Hotspare heal a fault to the end of its incident, and the job step past its checkpoint."""
    job = here.job
    init = await hotspare("init", "--yes", "--json")
    out, _ = await init.communicate()
    assert init.returncode == 0, out
    client = await connect()
    async with running():
        await job.wait_for_checkpoint(10)
        await here.lab.inject(name, fault)
        incident = incident_id("lab", here.lab.nodes[name].instance_id)
        async with asyncio.timeout(150):
            assert await ended(client, here.lab, name) is WorkflowExecutionStatus.COMPLETED
        report: IncidentReport = await client.get_workflow_handle(incident, result_type=IncidentReport).result()
    assert report.outcome == "resolved", report.story
    assert all(resume["token"] for resume in job.resumes)
    await job.wait_for_step(job.checkpoint_step + 1)
    return report
