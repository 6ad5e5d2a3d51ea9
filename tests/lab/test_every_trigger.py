"""Five ways to report a fault, under every alias a node has, lead to the one incident of that node."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from activities import names
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.workers.test_intake_alerts import alert
from workers.connection import connect
from workers.demo.worker_process import command, environment
from workflows.messages import IncidentReport


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """A lab whose healer asks before it reboots: the incident stays open while everybody reports."""
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=0.2)) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        config = running.folder / "hotspare.toml"
        config.write_text(config.read_text().replace('mode = "act"', 'mode = "act"\nmode_by_rung = { REBOOT_NODE = "approve" }'))
        yield running


async def run(*arguments: str) -> str:
    """Run a command to its end; it has to succeed. Returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        env=environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, f"{arguments}: {out.decode()[-1000:]} {errors.decode()[-2000:]}"
    return out.decode()


@asynccontextmanager
async def part(log: Path, name: str) -> AsyncIterator[dict[str, Any]]:
    """One long-running command, once it says that it is up."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command(name, "--json"),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        assert line, log.read_text()[-3000:]
        yield json.loads(line)
    finally:
        process.terminate()
        await process.communicate()


async def heard(handle: WorkflowHandle[Any, Any], phase: str, source: str = "") -> None:
    """Wait until the incident's story has such a line."""
    while True:
        try:
            story = await handle.query("story")
            if any(line["phase"] == phase and line["text"].startswith(source) for line in story):
                return
        except RPCError:
            pass  # not started yet
        await asyncio.sleep(0.05)


async def swept(client: Client) -> None:
    """Have the schedule sweep now."""
    await client.get_schedule_handle(names.sweep_schedule_id("lab")).trigger()


async def test_sweep_hand_alert_kernel_log_and_temporal_meet_in_one_incident(lab: Lab, tmp_path: Path) -> None:
    node = lab.nodes["node-2"]
    await run(*command("init", "--yes", "--json"))
    client = await connect()
    handle = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
    await lab.inject("node-2", Fault(xid=79, cure=Cure.REBOOT.value))
    async with part(tmp_path / "worker.log", "worker"):
        await swept(client)
        await heard(handle, "asks a person")
        first_run = (await handle.describe()).run_id
        await run(*command("report", node.ip, "--xid", "79", "--json"))
        await heard(handle, "reported", "hand")
        async with part(tmp_path / "intake.log", "intake") as up:
            token = (lab.folder / "intake.token").read_text().strip()
            body = {"version": "4", "alerts": [alert({"instance": f"{node.ip}:9400", "Hostname": "", "xid": "79"})]}
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as sender:
                assert (await sender.post(up["url"], json=body)).status_code == 200
        await heard(handle, "reported", "alertmanager")
        async with part(tmp_path / "watcher.log", "watch"):
            await heard(handle, "reported", "watcher")
        cli = [os.environ.get("TEMPORAL_CLI") or str(Path(sys.executable).parent / "temporal"), "workflow", "start"]
        start = ["--type", "RemediateNode", "--task-queue", "hotspare", "--input", json.dumps({"node": "node-2"})]
        await run(*cli, *start, "--workflow-id", handle.id, "--id-conflict-policy", "UseExisting")
        await run(*cli, *start, "--workflow-id", "typed-in-a-hurry")
        hasty = await client.get_workflow_handle("typed-in-a-hurry").result()
        assert hasty["outcome"] == "handed over"
        assert (await handle.describe()).run_id == first_run
        await run(*command("approve", node.instance_id, "--json"))
        report = await handle.result()
    assert (report.outcome, (await handle.describe()).run_id) == ("resolved", first_run)
    assert lab.endpoint.count("RebootInstances", node.instance_id) == 1
