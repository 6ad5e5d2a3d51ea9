"""The worker is killed at the worst moments, in the lab, with the real protocols: each effect still happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from activities import names
from infra.lab.faults import Cure, Fault
from infra.lab.holds import Hold
from workers.demo.screen import Screen
from workers.demo.stage import Stage, set_stage
from workers.demo.stories import Injection
from workers.demo.worker_process import WorkerProcess
from workflows.messages import IncidentReport


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Four nodes that train, and a worker process to kill."""
    async with set_stage(tmp_path / "lab", Screen()) as ready:
        yield ready


def incident(stage: Stage, node: str) -> WorkflowHandle[Any, IncidentReport]:
    """The incident of a node."""
    workflow_id = names.incident_id(stage.desk.settings.name, stage.lab.nodes[node].instance_id)
    return stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)


async def second_attempt(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait until the server has given the interrupted activity to another worker."""
    while True:
        seen = await handle.describe()
        if any(pending.attempt > 1 for pending in seen.raw_description.pending_activities):
            return
        await asyncio.sleep(0.05)


async def kill_while_held(stage: Stage, hold: Hold, handle: WorkflowHandle[Any, Any], log: Path) -> IncidentReport:
    """SIGKILL the worker while the endpoint holds its call; let the call through once another worker has taken over."""
    await hold.reached()
    await stage.worker.kill()
    async with WorkerProcess(log):
        await second_attempt(handle)
        hold.release()
        report: IncidentReport = await incident_result(stage, handle)
        return report


async def incident_result(stage: Stage, handle: WorkflowHandle[Any, Any]) -> IncidentReport:
    """The result of the incident, whichever workflow was interrupted."""
    if handle.id.startswith("incident/"):
        report: IncidentReport = await handle.result()
        return report
    return await incident(stage, "node-3").result()


async def test_a_worker_killed_while_the_reboot_call_is_held_reboots_once_and_the_job_resumes_once(
    stage: Stage, tmp_path: Path
) -> None:
    reboot = stage.lab.endpoint.hold("RebootInstances", instance_id=stage.lab.nodes["node-2"].instance_id)
    await stage.inject(Injection("node-2", Fault(xid=79, cure=Cure.REBOOT.value)))
    report = await kill_while_held(stage, reboot, incident(stage, "node-2"), tmp_path / "second.log")
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert stage.calls("RebootInstances")["node-2"] == 1
    assert stage.job().resumes == 1


async def test_a_worker_killed_while_the_attach_is_held_attaches_one_spare_once(stage: Stage, tmp_path: Path) -> None:
    spare, bad = stage.lab.nodes["spare-1"].instance_id, stage.lab.nodes["node-3"].instance_id
    await stage.put_in_pool("spare-1")
    tagged_before = stage.lab.endpoint.count("CreateTags", spare)
    attach = stage.lab.endpoint.hold("CreateTags", instance_id=spare)
    await stage.inject(Injection("node-3", Fault(xid=64, cure=Cure.NEVER.value)))
    replacing = stage.desk.client.get_workflow_handle(names.replace_id(stage.desk.settings.name, bad))
    report = await kill_while_held(stage, attach, replacing, tmp_path / "second.log")
    assert (report.outcome, report.fate) == ("resolved", "retired")
    assert stage.lab.endpoint.count("CreateTags", spare) == tagged_before + 1
    assert stage.lab.job.status()["nodes"] == ["node-1", "node-2", "spare-1", "node-4"]
    assert stage.job().resumes == 1
