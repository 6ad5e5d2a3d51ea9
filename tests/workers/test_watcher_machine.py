"""What the watcher learns of a node before it reads its log, and what it says where it could not learn it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from activities.errors import NodeUnreachable
from activities.node_access import CommandResult
from checks.catalog import Machine
from tests.workers.fakes import node
from tests.workers.test_watcher import Machine as ScriptedMachine
from tests.workers.test_watcher import Scene, ScriptedAccess, until
from tests.workers.test_watcher_node_log import start, xid
from workers.watcher.cursors import CursorFile
from workers.watcher.follow import report_of
from workers.watcher.machine import machine_of
from workers.watcher.node_log import NodeLog


class Telling(ScriptedAccess):
    """An access to a node whose driver says its version, or to one that is away."""

    def __init__(self, said: str | None) -> None:
        super().__init__(ScriptedMachine())
        self._said = said

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        if self._said is None:
            raise NodeUnreachable("connection refused")
        return CommandResult(exit_status=0, stdout=self._said, stderr="")


def test_driver_and_gpu_family_are_learned_over_the_same_access() -> None:
    of = node(1).model_copy(update={"instance_type": "p5.48xlarge"})
    said = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    assert machine_of(Telling(said), of, {}, 1.0) == Machine("580.95.05", "H100")
    assert machine_of(Telling(None), of, {}, 1.0) == Machine("", "H100")


def test_without_a_driver_version_the_report_says_so_only_where_it_matters() -> None:
    def what(code: int, machine: Machine) -> str:
        log = NodeLog(replace(start(), machine=machine))
        log.take(xid(code, 995.0, text="NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0 0x0 0x0 0x0 0x0)"))
        [batch] = log.due(0.0)
        return report_of(batch, "boot-1", None, machine).what

    assert "driver version is not known" in what(149, Machine())
    assert "driver version" not in what(149, Machine("580.95.05"))
    assert "driver version" not in what(79, Machine())


def test_a_cursor_file_of_the_first_release_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "cursors.json"
    file.write_text('{"i-001": {"boot_id": "boot-1", "monotonic_s": 995.0, "lines": 2}}')
    cursor = CursorFile(file).of("i-001")
    assert cursor is not None
    assert (cursor.boot_id, cursor.monotonic_s) == ("boot-1", 995.0)


async def test_the_file_keeps_what_was_judged_at_one_stamp(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    machine = scene.machines["i-001"]
    async with scene.watched():
        machine.print(xid(79, 995.0))
        await until(lambda: len(scene.gateway.reports) == 1)
    machine.lines.append(xid(119, 995.0, pci="0000:2a:00", text="Timeout waiting for RPC from GSP!"))
    async with scene.watched():
        await until(lambda: len(scene.gateway.reports) == 2)
    assert scene.reports() == [("i-001", 79), ("i-001", 119)]
