"""The agent on a node: what its kernel log says reaches the intake once, over restarts of the agent, the node and the intake."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.clients.aliases import KnownNode, resolve_alias
from checks.host import Host
from tests.workers.fakes import node
from tests.workers.test_intake_http import Door, opened
from workers.agent.agent import Agent, AgentOptions
from workers.intake.token import write_token
from workers.sections import WatcherSettings
from workers.spool import Spool

XID_79 = "[  101.000000] NVRM: Xid (PCI:0000:86:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
LATER = "[  201.000000] NVRM: Xid (PCI:0000:97:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"


class Machine:
    """A host's root as the agent's container sees it, with a kernel log that `dmesg` follows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.state = folder / "host", folder / "state"
        self._boot = self.root / "proc/sys/kernel/random/boot_id"
        self._log = self.root / "kernel.log"
        commands = folder / "bin"
        for made in (self._boot.parent, commands):
            made.mkdir(parents=True)
        (self.root / "proc/uptime").write_text("50.00 1.00\n")
        dmesg = commands / "dmesg"
        dmesg.write_text(f'#!/bin/sh\n[ "$1" = --follow ] || exec cat {self._log}\nexec tail -n +1 -f {self._log}\n')
        dmesg.chmod(0o755)
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        monkeypatch.setenv("HOTSPARE_HOST_ROOT", str(self.root))
        self.boot()

    def boot(self) -> None:
        """Begin another boot, with a log of its own."""
        self._boot.write_text(f"{uuid.uuid4()}\n")
        self._log.write_text("[    0.000000] Linux version 6.1.0\n")

    def print(self, line: str) -> None:
        """Let the kernel print a line."""
        with self._log.open("a") as file:
            file.write(line)


class Running:
    """One agent while it runs."""

    def __init__(self, machine: Machine, door: Door, name: str = "node-1") -> None:
        url = door.url.replace("/v1/alertmanager", "")
        settings = WatcherSettings(repeat_s=0.0, reconnect_min_s=0.05, reconnect_max_s=0.2)
        options = AgentOptions(name, url, door.token_file, machine.state)
        self.agent = Agent(options, settings, host=Host(str(machine.root)))
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Agent:
        self.task = asyncio.create_task(asyncio.to_thread(self.agent.run))
        await until(lambda: self.agent.connected)
        return self.agent

    async def __aexit__(self, *error: object) -> None:
        self.agent.stop()
        assert self.task
        await self.task


async def until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def door(tmp_path: Path) -> Door:
    write_token(tmp_path / "token")
    return Door(tmp_path / "token", require_signature=True)


async def test_a_fault_line_on_the_node_becomes_a_report_of_that_node(machine: Machine, door: Door) -> None:
    async with opened(door), Running(machine, door):
        machine.print(XID_79)
        await until(lambda: len(door.gateway.reports) == 1)
    instance_id, start = door.gateway.reports[0]
    assert (instance_id, start.node) == ("i-001", "node-1")
    assert start.report
    assert (start.report.source, start.report.xid, start.report.gpu.pci) == ("agent", 79, "0000:86:00")


async def test_a_restarted_agent_tells_nothing_twice_and_misses_nothing(machine: Machine, door: Door) -> None:
    async with opened(door):
        async with Running(machine, door):
            machine.print(XID_79)
            await until(lambda: len(door.gateway.reports) == 1)
        machine.print(LATER)
        async with Running(machine, door):
            await until(lambda: len(door.gateway.reports) == 2)
    assert [start.report and start.report.gpu.pci for _, start in door.gateway.reports] == ["0000:86:00", "0000:97:00"]


async def test_what_the_intake_did_not_take_is_told_when_it_is_back(machine: Machine, door: Door) -> None:
    async with opened(door), Running(machine, door):
        door.gateway.away = True
        machine.print(XID_79)
        await until(lambda: door.gateway.calls["report_fault"] >= 2)
        assert door.gateway.reports == []
        door.gateway.away = False
        await until(lambda: len(door.gateway.reports) == 1)


async def test_an_agent_that_is_stopped_while_the_intake_is_away_tells_it_after_its_start(machine: Machine, door: Door) -> None:
    async with opened(door):
        door.gateway.away = True
        async with Running(machine, door):
            machine.print(XID_79)
            await until(lambda: door.gateway.calls["report_fault"] >= 1)
        door.gateway.away = False
        async with Running(machine, door):
            await until(lambda: len(door.gateway.reports) == 1)


async def test_another_boot_is_read_from_its_beginning(machine: Machine, door: Door) -> None:
    async with opened(door):
        async with Running(machine, door):
            machine.print(XID_79)
            await until(lambda: len(door.gateway.reports) == 1)
        machine.boot()
        machine.print(XID_79)
        async with Running(machine, door):
            await until(lambda: len(door.gateway.reports) == 2)
    keys = {start.report.key for _, start in door.gateway.reports if start.report}
    assert len(keys) == 2


async def test_a_report_that_the_intakes_disk_holds_counts_as_told_and_knows_its_boot(
    machine: Machine, door: Door, tmp_path: Path
) -> None:
    from workers.sections import SpoolSettings

    settings = SpoolSettings(folder=tmp_path / "spool")
    spool = Spool(settings.folder, settings)
    door.spool = spool
    door.delivery._spool = spool
    async with opened(door):
        door.gateway.away = True
        async with Running(machine, door):
            machine.print(XID_79)
            await until(lambda: spool.state.reports == 1)
    (waiting,) = spool.waiting().values()
    assert waiting[0][1].boot_id == Host(str(machine.root)).read_text("/proc/sys/kernel/random/boot_id")


async def test_a_message_without_the_token_or_of_another_shape_is_refused(machine: Machine, tmp_path: Path) -> None:
    write_token(tmp_path / "token")
    door = Door(tmp_path / "token")
    async with opened(door):
        door.url = door.url.replace("/v1/alertmanager", "/v1/reports")
        stranger = await door.post({"version": 1, "node": "node-1", "reports": []}, token="not the token")
        foreign = await door.post({"version": "4", "alerts": []})
        part = await door.post({"version": 1, "node": "node-1", "reports": [{"xid": "many"}, {"xid": 79, "source": "hand"}]})
    assert (stranger.status_code, foreign.status_code, part.status_code) == (403, 400, 200)
    assert part.json()["unreadable"][0]["index"] == 0
    assert [start.report and start.report.source for _, start in door.gateway.reports] == ["agent"]


def test_a_node_of_hyperpod_is_known_by_its_name_in_kubernetes() -> None:
    entry = node(1).model_copy(update={"instance_id": "i-0123456789abcdef0"})
    assert resolve_alias([KnownNode(entry)], "hyperpod-i-0123456789abcdef0", "cluster lab") == entry
