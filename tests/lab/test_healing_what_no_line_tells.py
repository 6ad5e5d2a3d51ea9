"""Faults that print nothing are healed too: a person tells of them, NVML, the kernel's counters or the set-up show them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from activities import names
from infra.lab.faults import Fault
from workers.demo.screen import Screen
from workers.demo.stage import Stage, set_stage
from workers.demo.stories import Injection
from workers.demo.worker_process import hotspare
from workflows.messages import IncidentReport


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Four nodes that train, two in reserve, and a worker process."""
    async with set_stage(tmp_path / "lab", Screen()) as ready:
        yield ready


async def break_and_report(stage: Stage, node: str, fault: str) -> WorkflowHandle[Any, IncidentReport]:
    """Give a node a named fault that prints nothing, and let a person say that something is wrong; returns the incident."""
    assert await stage.inject(Injection(node, Fault.named(fault))) == []
    await hotspare(stage.lab.folder / f"report-{node}.log", "report", node, "--what", "jobs fail here")
    workflow_id = names.incident_id(stage.desk.settings.name, stage.lab.nodes[node].instance_id)
    return stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)


async def page_about(stage: Stage, word: str) -> dict[str, Any]:
    """Wait for a page that gives `word` among its reasons."""
    log = stage.lab.folder / "pages.jsonl"
    while True:
        pages = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        for page in pages:
            if any(word in why for why in page["why"]):
                return dict(page)
        await asyncio.sleep(0.05)


async def test_what_nvml_and_memory_controllers_count_retires_the_nodes_and_a_wrong_set_up_is_told_to_a_person(
    stage: Stage,
) -> None:
    for spare in ("spare-1", "spare-2"):
        await stage.put_in_pool(spare)
    exhausted = await break_and_report(stage, "node-3", "row_remap_failure_flag")
    uncorrected = await break_and_report(stage, "node-2", "edac_uncorrected")
    misfit = await break_and_report(stage, "node-1", "fabric_manager_other_version")

    told = await misfit.result()
    assert (told.outcome, told.fault) == ("nothing found", "configuration")
    for incident, fault_class in ((exhausted, "memory_exhausted"), (uncorrected, "hardware")):
        report = await incident.result()
        assert (report.outcome, report.fault, report.fate) == ("resolved", fault_class, "retired")
    page = await page_about(stage, "575.57.08")
    assert page["node"] == "node-1"
    assert set(stage.lab.job.status()["nodes"]) == {"node-1", "node-4", "spare-1", "spare-2"}
    assert not any(stage.calls("RebootInstances").values())
    assert await stage.quarantined() == {"node-2", "node-3"}
