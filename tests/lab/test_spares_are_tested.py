"""Spares of a lab cluster are tested while they wait, over SSH and with the real all-reduce; who is told what of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities import names
from infra.lab.faults import Cure, Fault
from workers.demo.screen import Screen
from workers.demo.stage import Stage, set_stage
from workers.demo.stories import Injection
from workers.demo.worker_process import hotspare
from workflows.messages import IncidentReport, Qualification, StartSweep


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Four nodes that train, two spares in the pool, and a worker process that acts."""
    async with set_stage(tmp_path / "lab", Screen()) as ready:
        for spare in ("spare-1", "spare-2"):
            await ready.put_in_pool(spare)
        yield ready


async def swept(stage: Stage, name: str) -> list[str]:
    """Sweep once; returns the spares whose test it began."""
    cluster = stage.desk.settings.name
    done: dict[str, Any] = await stage.desk.client.execute_workflow(
        names.WORKFLOW_SWEEP, StartSweep(cluster=cluster), id=f"sweep-{name}", task_queue=names.QUEUE_WORKFLOWS
    )
    return list(done["testing"])


async def trial(stage: Stage, spare: str) -> Qualification:
    """Wait for the end of a spare's test."""
    workflow_id = names.qualify_id(stage.desk.settings.name, stage.lab.nodes[spare].instance_id)
    handle = stage.desk.client.get_workflow_handle(workflow_id, result_type=Qualification)
    result: Qualification = await handle.result()
    return result


async def test_a_good_spare_counts_after_its_test_and_a_slow_one_is_found_out_before_any_job_needs_it(stage: Stage) -> None:
    await stage.inject(Injection("spare-2", Fault(slow=0.5, slow_kind="intra", cure=Cure.NEVER)))
    begun = [*await swept(stage, "first")]
    good = await trial(stage, "spare-1")
    begun += await swept(stage, "second")
    slow = await trial(stage, "spare-2")
    assert begun == ["spare-1", "spare-2"]
    assert (good.verdict.value, slow.verdict.value) == ("OK", "CRITICAL")
    assert any("busbw" in reason or "GB/s" in reason for reason in slow.because)

    workflow_id = names.incident_id(stage.desk.settings.name, stage.lab.nodes["spare-2"].instance_id)
    incident = stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)
    assert (await incident.result()).fate == names.FATE_RETIRED
    assert await stage.quarantined() == {"spare-2"}

    await hotspare(stage.lab.folder / "drained.log", "spares", "drain", "spare-1", "-r", "for the test", "--json")
    said = json.loads((stage.lab.folder / "drained.log").read_text())
    assert said["use"] == ""
    await hotspare(stage.lab.folder / "restored.log", "spares", "restore", "spare-1")
    assert not any(stage.calls("RebootInstances").values())
