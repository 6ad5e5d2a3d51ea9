"""The old client starts an incident: the line in the README, with the real tctl against a real Temporal server."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path

from temporalio.client import Client

from infra.lab.kube.assets import binary
from infra.lab.temporal_server import TemporalServer

_README = Path(__file__).parents[2] / "README.md"


def _command_of_the_readme() -> list[str]:
    found = re.search(r"^tctl .*\\\n.*$", _README.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[0].replace("\\\n", " "))


async def test_tctl_starts_an_incident_as_the_readme_says(tmp_path: Path) -> None:
    server = TemporalServer(tmp_path / "temporal.log")
    await server.start()
    try:
        command = [word.replace("HOST:PORT", server.address) for word in _command_of_the_readme()]
        process = await asyncio.create_subprocess_exec(
            binary("tctl"),
            *command[1:],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()
        client = await Client.connect(server.address)
        described = await client.get_workflow_handle("incident/CLUSTER/INSTANCE-ID").describe()
        assert (described.workflow_type, described.task_queue) == ("RemediateNode", "hotspare")
        history = await client.get_workflow_handle("incident/CLUSTER/INSTANCE-ID").fetch_history()
        payload = history.events[0].workflow_execution_started_event_attributes.input.payloads[0]
        assert payload.metadata["encoding"] == b"json/plain"
        assert payload.data == b'{"node":"node-1"}' or payload.data == b'{"node": "node-1"}'
    finally:
        await server.stop()
