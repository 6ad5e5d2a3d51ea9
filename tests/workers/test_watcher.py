"""The watcher over scripted nodes: reports arrive, are sent until confirmed, and survive broken connections and restarts."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.errors import BadInput, NodeUnreachable
from activities.inventory import Node
from activities.node_access import CommandResult, DetachedRun
from tests.workers.fakes import FakeGateway, FakeInventory, node
from tests.workers.test_watcher_node_log import xid
from workers.sections import WatcherSettings
from workers.watcher.cursors import CursorFile
from workers.watcher.watcher import Watcher


class Machine:
    """One node's kernel: a boot id and the lines of this boot. Everything is scripted from the test's thread."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self.uptime_s = 1000.0
        self.lines: list[str] = []
        self.away = False
        self.connections = 0
        self._readers: list[queue.SimpleQueue[str | None]] = []
        self._lock = threading.Lock()

    def print(self, line: str) -> None:
        """Let the driver print a line."""
        with self._lock:
            self.lines.append(line)
            for reader in self._readers:
                reader.put(line)

    def cut(self) -> None:
        """Break every connection."""
        with self._lock:
            for reader in self._readers:
                reader.put(None)

    def reboot(self) -> None:
        """Come up as another boot with an empty log."""
        with self._lock:
            self.boot_id += "'"
            self.lines.clear()
        self.cut()

    def open(self) -> queue.SimpleQueue[str | None]:
        with self._lock:
            reader: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            for line in self.lines:
                reader.put(line)
            self._readers.append(reader)
            self.connections += 1
            return reader


class ScriptedAccess:
    """The part of a node's access that the watcher uses."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def boot_id(self, deadline_s: float) -> str:
        if self._machine.away:
            raise NodeUnreachable("connection refused")
        return self._machine.boot_id

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        return CommandResult(exit_status=0, stdout=f"{self._machine.uptime_s} 0.0\n", stderr="")

    def follow_kernel_log(self) -> Iterator[str]:
        reader = self._machine.open()
        while True:
            try:
                line = reader.get(timeout=0.02)
            except queue.Empty:
                yield ""
                continue
            if line is None:
                raise NodeUnreachable("connection lost")
            yield line

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        raise NotImplementedError

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        raise NotImplementedError

    def kill(self, run_id: str) -> None:
        raise NotImplementedError

    def put(self, file: Path, digest: str) -> str:
        raise NotImplementedError

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "follow"})

    def close(self) -> None:
        """Nothing is open."""


class Scene:
    """Nodes, their machines, and a watcher over them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        quick = {"reconnect_min_s": 0.01, "reconnect_max_s": 0.02, "refresh_s": 0.02}
        self.settings = WatcherSettings(cursors=folder / "cursors.json", **{**quick, **settings})
        self.inventory = FakeInventory(node(1), node(2), node(9, role="head"))
        self.machines = {one.instance_id: Machine() for one in self.inventory.nodes}
        self.gateway = FakeGateway()

    def access_to(self, of: Node) -> Any:
        return ScriptedAccess(self.machines[of.instance_id])

    def reports(self) -> list[tuple[str, int | None]]:
        return [(instance_id, start.report.xid) for instance_id, start in self.gateway.reports if start.report]

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watcher]:
        stop = asyncio.Event()
        watcher = Watcher("lab", self.inventory, self.access_to, self.gateway, self.settings)
        running = asyncio.ensure_future(watcher.run(stop))
        try:
            yield watcher
        finally:
            stop.set()
            await running


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the test's own limit ends a wait that is in vain."""
    while not condition():  # noqa: ASYNC110, the watched threads have no event to wait for
        await asyncio.sleep(0.005)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_fault_line_of_any_node_becomes_a_report_with_the_line_in_it(scene: Scene) -> None:
    async with scene.watched():
        await until(lambda: scene.machines["i-002"].connections == 1)
        scene.machines["i-002"].print(xid(79, 995.0))
        await until(lambda: bool(scene.gateway.reports))
    [(instance_id, start)] = scene.gateway.reports
    assert (instance_id, start.node, start.cluster) == ("i-002", "node-2", "lab")
    assert start.report is not None
    assert (start.report.source, start.report.xid, start.report.gpu.pci) == ("watcher", 79, "0000:18:00")
    assert "fallen off the bus" in start.report.raw


async def test_head_nodes_are_not_followed(scene: Scene) -> None:
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
    assert scene.machines["i-009"].connections == 0


async def test_a_report_that_is_not_confirmed_is_sent_again_until_it_is(scene: Scene) -> None:
    scene.gateway.away = True
    async with scene.watched():
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: scene.gateway.calls["report_fault"] >= 3)
        assert CursorFile(scene.settings.cursors).of("i-001") is None
        scene.gateway.away = False
        await until(lambda: bool(scene.gateway.reports))
    assert scene.reports() == [("i-001", 79)]


async def test_what_was_not_confirmed_before_a_restart_is_reported_after_it(scene: Scene) -> None:
    scene.gateway.away = True
    async with scene.watched():
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: scene.gateway.calls["report_fault"] >= 1)
    scene.gateway.away = False
    async with scene.watched():
        await until(lambda: bool(scene.gateway.reports))
    assert scene.reports() == [("i-001", 79)]


async def test_what_was_confirmed_before_a_restart_is_not_reported_again(scene: Scene) -> None:
    async with scene.watched():
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: bool(scene.gateway.reports))
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
        scene.machines["i-001"].print(xid(119, 1200.0, pci="0000:2a:00", text="Timeout waiting for RPC from GSP!"))
        await until(lambda: len(scene.gateway.reports) == 2)
    assert scene.reports() == [("i-001", 79), ("i-001", 119)]


async def test_a_broken_connection_is_opened_again_and_nothing_comes_twice(scene: Scene) -> None:
    machine = scene.machines["i-001"]
    async with scene.watched():
        machine.print(xid(79, 995.0))
        await until(lambda: bool(scene.gateway.reports))
        machine.cut()
        await until(lambda: machine.connections >= 2)
        machine.print(xid(119, 1200.0, pci="0000:2a:00", text="Timeout waiting for RPC from GSP!"))
        await until(lambda: len(scene.gateway.reports) == 2)
    assert scene.reports() == [("i-001", 79), ("i-001", 119)]


async def test_a_fault_that_is_back_after_a_reboot_is_reported_as_a_new_one(scene: Scene) -> None:
    machine = scene.machines["i-001"]
    async with scene.watched():
        machine.print(xid(79, 995.0))
        await until(lambda: bool(scene.gateway.reports))
        machine.reboot()
        machine.print(xid(79, 12.0))
        await until(lambda: len(scene.gateway.reports) == 2)
    first, second = (start.report.key for _, start in scene.gateway.reports if start.report)
    assert first != second


async def test_a_node_that_is_away_is_followed_once_it_is_there(scene: Scene) -> None:
    scene.machines["i-001"].away = True
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-2"])
        scene.machines["i-001"].away = False
        await until(lambda: watcher.connected() == ["node-1", "node-2"])


async def test_new_nodes_are_followed_and_gone_ones_are_left(scene: Scene) -> None:
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
        scene.machines["i-003"] = Machine()
        scene.inventory.nodes = [node(2), node(3)]
        await until(lambda: watcher.connected() == ["node-2", "node-3"])


async def test_a_node_with_a_new_address_is_followed_there(scene: Scene) -> None:
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
        scene.inventory.nodes[0] = node(1).model_copy(update={"ip": "10.0.9.9"})
        await until(lambda: scene.machines["i-001"].connections == 2)


async def test_an_inventory_that_is_away_leaves_the_watch_as_it_is(scene: Scene) -> None:
    async with scene.watched() as watcher:
        await until(lambda: watcher.connected() == ["node-1", "node-2"])
        scene.inventory.away = True
        scene.machines["i-001"].print(xid(79, 995.0))
        await until(lambda: bool(scene.gateway.reports))
        assert watcher.connected() == ["node-1", "node-2"]


def test_an_unreadable_cursor_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "cursors.json"
    file.write_text("{")
    with pytest.raises(BadInput, match="delete the file"):
        CursorFile(file)
