"""A lab node that is reached by Run Command: evidence, what doctor says, a restart from within, and a node that hangs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activities.errors import DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from checks.model import Verdict
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.cli.app import app
from workers.cli.health_nodes import check_nodes
from workers.settings import load_settings
from workers.wiring import Wiring


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    options = LabOptions(folder=tmp_path / "lab", nodes=1, spares=0, temporal=False, boot_s=0.05, access="ssm")
    async with Lab(options) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running
        assert running.ssh.count("node-1", "") == 0


@pytest.fixture
async def wiring(lab: Lab) -> AsyncIterator[Wiring]:
    made = Wiring(load_settings(None))
    yield made
    made.close()


async def node_of(wiring: Wiring) -> Node:
    return await asyncio.to_thread(wiring.inventory.resolve, "lab", "node-1")


async def told(wiring: Wiring) -> tuple[Verdict, str, str]:
    """What doctor says of the node."""
    (line,) = await check_nodes(load_settings(None), wiring, [await node_of(wiring)])
    return line.verdict, line.text, line.do


async def take() -> dict[str, Any]:
    """Type `hotspare evidence --take`, and return the parts by name."""
    words = ["evidence", "node-1", "--take", "--json"]
    answer = await asyncio.to_thread(lambda: CliRunner().invoke(app, words, catch_exceptions=False))
    assert answer.exit_code == 0, (answer.stdout, answer.stderr)
    return {part["name"]: part for part in json.loads(answer.stdout)["manifest"]["parts"]}


async def test_a_nodes_evidence_comes_by_run_command(lab: Lab) -> None:
    await lab.inject("node-1", Fault(xid=64))
    parts = await take()
    held = {name for name, part in parts.items() if part["state"] == "taken"}
    assert {"dmesg.txt", "kernel-journal.txt", "probe.json", "nvidia-smi.txt", "pci.txt", "instance.json"} <= held
    assert [part["why"] for part in parts.values() if "of a table" in part.get("why", "")] == []


async def test_doctor_reads_the_node_and_says_what_is_missing(lab: Lab, wiring: Wiring) -> None:
    assert await told(wiring) == (Verdict.OK, "reached and probed, 8 GPUs", "")
    instance = lab.nodes["node-1"].instance_id
    lab.run_command.without_agent.add(instance)
    verdict, text, how = await told(wiring)
    assert verdict is Verdict.UNKNOWN
    assert "no SSM Agent of it is registered" in text
    assert how.endswith(f"--filters Key=InstanceIds,Values={instance}")
    lab.run_command.without_agent.clear()
    (lab.nodes["node-1"].root / "opt/hotspare/bin/python").unlink()
    verdict, text, _ = await told(wiring)
    assert verdict is Verdict.UNKNOWN
    assert "install this release of Hotspare in /opt/hotspare" in text


async def test_a_node_restarts_itself_when_asked(lab: Lab, wiring: Wiring) -> None:
    access, before = wiring.access_to(await node_of(wiring)), lab.nodes["node-1"].boot_id
    with suppress(NodeUnreachable, DeadlinePassed):  # it may not live to tell
        await asyncio.to_thread(access.run, ["sudo", "-n", "reboot"], 0.2)
    after = await lab.reboot_done("node-1", before)
    assert await asyncio.to_thread(access.boot_id, 10.0) == after
    assert lab.run_command.count("node-1", "reboot") == 1


async def test_a_node_that_hangs_passes_its_deadline_and_its_command_is_cancelled(lab: Lab, wiring: Wiring) -> None:
    access = wiring.access_to(await node_of(wiring))
    await lab.inject("node-1", Fault(hang=True, cure=Cure.REBOOT.value))
    with pytest.raises(DeadlinePassed, match="Run Command says InProgress"):
        await asyncio.to_thread(access.boot_id, 0.1)
    assert lab.run_command.sent[0].details == "Cancelled"
