"""Evidence of a lab node: real SSH, the real probe, EC2's answers; and of one that is powered off while it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.cli.app import app


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    options = LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, temporal=False, boot_s=0.05)
    async with Lab(options) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


async def take(*words: str) -> Any:
    """Type `hotspare evidence --take`, and return the parts by name, with what the whole says under ""."""
    answer = await asyncio.to_thread(
        lambda: CliRunner().invoke(app, ["evidence", *words, "--take", "--json"], catch_exceptions=False)
    )
    assert answer.exit_code == 0, (answer.stdout, answer.stderr)
    document = json.loads(answer.stdout)
    return {"": document, **{part["name"]: part for part in document["manifest"]["parts"]}}


async def text_of(bundle: str, part: str) -> str:
    answer = await asyncio.to_thread(
        lambda: CliRunner().invoke(app, ["evidence", bundle, "--part", part], catch_exceptions=False)
    )
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout


async def test_a_nodes_evidence_has_its_log_its_gpus_its_job_and_what_ec2_says_and_no_serial(lab: Lab) -> None:
    await lab.inject("node-1", Fault(xid=64))
    parts = await take("node-1")
    held = {name for name, part in parts.items() if name and part["state"] == "taken"}
    assert {"dmesg.txt", "kernel-journal.txt", "probe.json", "nvidia-smi.txt", "pci.txt", "instance.json", "job.json"} <= held
    bundle = parts[""]["bundle"]
    probe = json.loads(await text_of(bundle, "probe.json"))
    marks = {gpu["serial"] for gpu in probe["gpus"]}
    assert len(marks) == 8
    assert all(mark.startswith("[board ") for mark in marks)
    case = await text_of(bundle, "support-case.txt")
    assert f"Instance id: {lab.nodes['node-1'].instance_id}" in case
    assert "Xid (PCI:" in case
    assert json.loads(await text_of(bundle, "job.json"))["job"] == "train"


async def test_nvml_of_a_lab_node_is_left_alone_after_79(lab: Lab) -> None:
    await lab.inject("node-1", Fault(xid=79))
    parts = await take("node-1")
    for name in ("nvidia-smi.txt", "topology.txt", "dcgm-health.json", "nvidia-bug-report.log"):
        assert parts[name]["why"] == "NVML is not touched after XID 79 in the kernel log"
    assert parts["probe.json"]["state"] == "taken"


async def test_a_node_whose_power_goes_while_a_part_is_read_leaves_a_bundle_that_says_so(lab: Lab) -> None:
    hold = lab.ssh.hold("node-1", "uname -a")
    taking = asyncio.ensure_future(take("node-1"))
    await hold.reached()
    await lab.nodes["node-1"].stop()
    parts = await taking
    assert parts["dmesg.txt"]["state"] == parts["probe.json"]["state"] == parts["uptime.txt"]["state"] == "taken"
    assert parts["uname.txt"]["state"] == parts["processes.txt"]["state"] == "missing"
    assert parts["console.txt"]["state"] == parts["support-case.txt"]["state"] == "taken"
    assert parts[""]["manifest"]["node_stopped_answering"]
