"""`hotspare run` as an operator runs it: over a lab cluster, told of faults by kernel log and by HTTP, ended by a signal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from activities.names import incident_id
from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.workers.test_intake_alerts import alert
from workers.connection import connect

TREE = Path(__file__).resolve().parents[2]


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=0.2)) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


async def hotspare(*words: str) -> asyncio.subprocess.Process:
    """Start a command as a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers.launch", *words),
        env={**os.environ, "PYTHONPATH": str(TREE)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def running() -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """`hotspare run`, once all its parts are up."""
    process = await hotspare("run", "--json")
    assert process.stdout is not None
    up: dict[str, Any] = {}
    try:
        while len(up) < 3:
            line = await process.stdout.readline()
            assert line, "hotspare run ended while it came up"
            part = json.loads(line)
            up[part["up"]] = part
        yield process, up
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(client: Client, lab: Lab, node: str) -> WorkflowExecutionStatus | None:
    """Wait until the node's incident has begun and ended, and return how."""
    handle = client.get_workflow_handle(incident_id("lab", lab.nodes[node].instance_id))
    while True:
        try:
            await handle.result()
            return (await handle.describe()).status
        except RPCError:
            await asyncio.sleep(0.05)


async def test_one_process_hears_of_faults_by_log_and_by_alert_and_ends_well_when_told_to(lab: Lab) -> None:
    init = await hotspare("init", "--yes", "--json")
    out, _ = await init.communicate()
    assert init.returncode == 0, out
    client = await connect()
    async with running() as (process, up):
        assert up["watcher"]["nodes"] == 2
        await lab.inject("node-1", Fault(xid=79))
        token = (lab.folder / "intake.token").read_text().strip()
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as sender:
            body = {"version": "4", "alerts": [alert({"Hostname": "node-2", "xid": "79"})]}
            assert (await sender.post(up["intake"]["url"], json=body)).status_code == 200
        for node in ("node-1", "node-2"):
            assert await ended(client, lab, node) is WorkflowExecutionStatus.COMPLETED
        assert lab.endpoint.count("RebootInstances", lab.nodes["node-1"].instance_id) == 1
        assert lab.endpoint.count("RebootInstances", lab.nodes["node-2"].instance_id) == 0
        doctor = await hotspare("doctor", "--json")
        seen, _ = await doctor.communicate()
        verdicts = {line["part"]: line["verdict"] for line in json.loads(seen)["lines"]}
        assert {verdicts[part] for part in ("Temporal", "workers", "AWS", "Cluster", "node node-1", "node node-2")} == {"OK"}
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0, log.decode()[-3000:]
