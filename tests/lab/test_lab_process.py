"""A lab as a process of its own: brought up, looked at, broken and taken down by commands in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from infra.lab.processes import marked_processes
from infra.lab.remote import LabRefused, NoLab, RemoteLab
from infra.lab.runner import LabRuns, start_detached
from infra.lab.temporal_server import TemporalServer, temporal_command
from workers.settings import load_settings


@contextlib.contextmanager
def detached(folder: Path) -> Iterator[dict[str, Any]]:
    """A detached lab with its Temporal server; it is down at the end, whatever the test did."""
    yield start_detached(LabOptions(folder=folder, nodes=2, spares=1, boot_s=0.05, step_s=0.02))
    with contextlib.suppress(NoLab):
        RemoteLab(folder).down()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A detached lab for tests that leave it up."""
    with detached(tmp_path_factory.mktemp("shared") / "lab") as about:
        yield about


@pytest.fixture
def running(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A detached lab of the test's own."""
    with detached(tmp_path / "lab") as about:
        yield about


def remote_of(about: dict[str, Any]) -> RemoteLab:
    return RemoteLab(Path(about["folder"]))


def test_a_detached_lab_trains_and_shows_its_state(shared: dict[str, Any]) -> None:
    status = remote_of(shared).status()
    assert {node["name"]: node["state"] for node in status["nodes"]} == {
        "head": "up",
        "node-1": "up",
        "node-2": "up",
        "spare-1": "up",
    }
    assert status["job"]["state"] == "RUNNING"
    assert status["pid"] == shared["pid"] != os.getpid()


def test_a_fault_is_injected_from_another_process_and_a_wrong_one_refused(shared: dict[str, Any]) -> None:
    remote = remote_of(shared)
    lines = remote.inject("node-1", Fault(xid=79))
    assert "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus." in lines[0]
    with pytest.raises(LabRefused, match="there are head, node-1"):
        remote.inject("node-9", Fault(xid=79))


def test_the_temporal_server_of_a_lab_answers_under_the_profile_it_wrote(shared: dict[str, Any]) -> None:
    listed = subprocess.run(
        [temporal_command(), "operator", "namespace", "describe", "--namespace", "default", "--output", "json"],
        env={**os.environ, **shared["environment"]},
        capture_output=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert httpx.get(shared["ui_url"], follow_redirects=True, trust_env=False).status_code == 200


def test_the_control_port_wants_its_token(shared: dict[str, Any]) -> None:
    token = Path(shared["folder"]) / "control.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert httpx.get(shared["control_url"] + "/status", headers=headers, trust_env=False).status_code == 401


def test_a_second_lab_in_the_same_folder_is_refused(shared: dict[str, Any]) -> None:
    with pytest.raises(LabRuns, match="already runs"):
        start_detached(LabOptions(folder=Path(shared["folder"])))


def test_down_leaves_no_process_and_no_lab(running: dict[str, Any]) -> None:
    remote = remote_of(running)
    roots = [Path(node["root"]) for node in remote.status()["nodes"]]
    remote.down()
    assert not any(marked_processes(root) for root in roots)
    with pytest.raises(NoLab, match="hotspare lab up"):
        remote.status()


def test_what_a_killed_lab_left_behind_is_cleared_away_by_the_next(running: dict[str, Any]) -> None:
    os.kill(running["pid"], signal.SIGKILL)
    os.waitpid(running["pid"], 0)
    again = start_detached(LabOptions(folder=Path(running["folder"]), nodes=2, temporal=False))
    assert again["pid"] != running["pid"]
    assert not Path(f"/proc/{running['temporal_pid']}/exe").exists()


def test_a_folder_that_no_lab_made_is_left_alone(lab_options: LabOptions, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RuntimeError, match="no lab made it"):
        start_detached(replace(lab_options, folder=tmp_path))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


async def test_the_settings_that_a_lab_writes_are_valid_and_fit_it(lab: Lab) -> None:
    settings = await asyncio.to_thread(load_settings, lab.folder / "hotspare.toml")
    assert settings.cluster.name == "lab"
    assert settings.policy.mode == "act"
    assert settings.access.ssh_config == lab.folder / "ssh" / "ssh_config"
    assert settings.job.head == "head"


async def test_the_environment_file_can_be_sourced_by_a_shell(lab: Lab) -> None:
    script = f'. "{lab.folder}/env"; exec python3 -c "import json, os; print(json.dumps(dict(os.environ)))"'
    shell = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
    out, _ = await shell.communicate()
    assert lab.environment().items() <= json.loads(out).items()


async def test_a_temporal_server_that_was_stopped_comes_back_on_its_ports_with_its_state(tmp_path: Path) -> None:
    server = TemporalServer(tmp_path / "temporal.log", tmp_path / "temporal.sqlite3")
    await server.start()
    try:
        address = server.address
        await temporal(address, "operator", "namespace", "create", "--namespace", "kept")
        await server.stop()
        await server.start()
        assert server.address == address
        await temporal(address, "operator", "namespace", "describe", "--namespace", "kept")
    finally:
        await server.stop()


async def temporal(address: str, *words: str) -> None:
    """Run Temporal's own CLI; it has to succeed."""
    client = await asyncio.create_subprocess_exec(
        temporal_command(), *words, "--address", address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await client.communicate()
    assert client.returncode == 0, out
