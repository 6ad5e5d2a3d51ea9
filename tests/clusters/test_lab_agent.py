"""A node that nothing logs in to is healed: its agent reports, Jobs pinned to it check it, EC2 restarts it."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
import tomlkit
from rich.console import Console
from temporalio.service import RPCError

from activities import names
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.demo.screen import Screen
from workers.demo.stage import Stage, at_work
from workflows.messages import IncidentReport

pytestmark = pytest.mark.timeout(300)


async def test_without_ssh_a_gpu_that_fell_off_the_bus_is_reported_rebooted_and_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOTSPARE_CONFIG", "TEMPORAL_ADDRESS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # what the lab sets is taken back
    options = LabOptions(folder=tmp_path / "lab", nodes=2, spares=1, orchestrator="kubernetes", access="agent")
    async with Lab(options) as lab:
        _leave_the_job_alone(lab.folder / "hotspare.toml")
        async with at_work(lab, Screen(Console(file=io.StringIO()))) as stage:
            await lab.inject("node-2", Fault(xid=79, cure="reboot"))
            report = await _report(stage, "node-2")
            assert (report.outcome, report.fate) == ("resolved", "back in service"), report.story
            assert stage.calls("RebootInstances") == {"node-1": 0, "node-2": 1, "spare-1": 0}
            assert any("agent reported XID 79" in line for line in report.story)
            assert await stage.quarantined() == frozenset()
        assert [name for name in lab.nodes if name != "head" and lab.ssh.count(name, "")] == []


def _leave_the_job_alone(file: Path) -> None:
    """Heal nodes only: the job is another test's subject."""
    document = tomlkit.parse(file.read_text())
    document["job"] = {"adapter": "none"}
    file.write_text(tomlkit.dumps(document))


async def _report(stage: Stage, node: str) -> IncidentReport:
    workflow_id = names.incident_id(stage.desk.settings.name, stage.lab.nodes[node].instance_id)
    handle = stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)
    while True:
        try:
            report: IncidentReport = await handle.result()
            return report
        except RPCError:
            await asyncio.sleep(0.2)  # it has not begun
