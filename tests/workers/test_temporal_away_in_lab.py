"""The intake as a process of its own, started while Temporal is away, killed, and started again when it is back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from temporalio.service import RPCError

from activities.names import incident_id
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.workers.conftest import dev_server
from tests.workers.test_intake_alerts import alert
from tests.workers.test_run_in_lab import hotspare


@asynccontextmanager
async def intake() -> AsyncIterator[str]:
    """`hotspare intake` until the block ends, then SIGKILL; gives its address."""
    process = await hotspare("intake", "--json")
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        assert line, "hotspare intake ended while it came up"
        yield json.loads(line)["url"]
    finally:
        process.kill()
        await process.communicate()


async def test_an_alert_taken_while_temporal_was_away_survives_a_kill_and_becomes_an_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lab"
    async with Lab(LabOptions(folder=folder, nodes=1, spares=0, temporal=False)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
        token = (folder / "intake.token").read_text().strip()
        node = lab.nodes["node-1"]
        message = {"version": "4", "status": "firing", "alerts": [alert({"xid": "79", "instance_id": node.instance_id})]}
        async with intake() as url, httpx.AsyncClient(verify=False, timeout=60) as client:
            answer = await client.post(url, headers={"Authorization": f"Bearer {token}"}, json=message)
            assert answer.status_code == 202, answer.text
        [waiting] = (folder / "spool" / "intake").glob("*.json")
        assert waiting.stat().st_mode & 0o777 == 0o600
        async with dev_server() as env:
            monkeypatch.setenv("TEMPORAL_ADDRESS", env.client.service_client.config.target_host)
            handle = env.client.get_workflow_handle(incident_id("lab", node.instance_id))
            async with intake():
                while waiting.exists():  # noqa: ASYNC110, another process removes it
                    await asyncio.sleep(0.05)
            try:
                history = await handle.fetch_history()
            except RPCError as error:
                pytest.fail(f"no incident: {error}")
            assert '"xid":79' in str(history.events[0]).replace("\\", "").replace(" ", "")
