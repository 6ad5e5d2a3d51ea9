"""One lab node: a root folder, an SSH server, processes and GPUs that go down, boot and fail as a GPU instance does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from infra.lab.changes import Changes
from infra.lab.faults import Cure, Fault, Place, kernel_lines, kills_work, machine_changes, rising_counters
from infra.lab.gpu_state import bandwidth_left, gpus_with
from infra.lab.hardware import HARDWARE, fresh_gpus
from infra.lab.machine_files import make_template
from infra.lab.moto_instances import InstanceIdentity
from infra.lab.node_root import UPTIME_OF_A_NEW_LAB_S, NodeRoot
from infra.lab.options import LabOptions
from infra.lab.processes import NodeProcesses, kill_group
from infra.lab.ssh_server import NodeSshServer, SshSide


class NodeState(StrEnum):
    """UP: SSH answers. BOOTING, STOPPED, TERMINATED: it does not. DEAD: a boot that never ends."""

    UP = "up"
    BOOTING = "booting"
    STOPPED = "stopped"
    TERMINATED = "terminated"
    DEAD = "dead"


class LabNode:
    """A node. `instance_id`, `ip` and `dns` are those of its instance at the EC2 endpoint."""

    def __init__(
        self,
        name: str,
        role: str,
        instance: InstanceIdentity,
        *,
        root: Path,
        options: LabOptions,
        ssh: SshSide,
        desk: dict[str, Any],
    ) -> None:
        self.name, self.role = name, role
        self.instance_id, self.ip, self.dns = instance.instance_id, instance.ip, instance.dns
        self.root = root
        self.state = NodeState.STOPPED
        self.boots = 0
        self._options = options
        self.instance_type = instance.instance_type
        hardware = HARDWARE.get(self.instance_type)
        self._hardware = hardware
        self._gpus = fresh_gpus(hardware, f"{self.instance_id}/0") if hardware else []
        self.stays_on_host = False
        self._cold_boots = 0
        self._faults: list[Fault] = []
        self._work: dict[int, tuple[str, asyncio.subprocess.Process]] = {}
        kind = self.instance_type if hardware else "head"
        template = make_template(options.folder.absolute() / "healthy" / kind, hardware)
        self.files = NodeRoot(root, name, self.instance_type, hardware, template)
        self.files.lay_out(desk)
        self.processes = NodeProcesses(root, self.files.environment())
        self.server = NodeSshServer(name, self.files, self.processes, ssh)
        self._turn = asyncio.Lock()
        self._changes = Changes()
        self.at_boot: Callable[[LabNode], Awaitable[None]] | None = None

    @property
    def ssh_port(self) -> int:
        """Port of the node's SSH server on loopback; it stays the same over boots."""
        return self.server.port

    @property
    def boot_id(self) -> str:
        """Boot id of the present or last boot."""
        return self.files.boot_id

    @property
    def hangs(self) -> bool:
        """Whether SSH accepts commands and never answers them."""
        return self.server.hangs

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that the node has now."""
        return tuple(self._faults)

    async def wait_until(self, true: Callable[[LabNode], bool]) -> None:
        """Wait until something holds for the node's state, boots or work."""
        await self._changes.wait_for(lambda: true(self))

    def _set_state(self, state: NodeState) -> None:
        self.state = state
        self._changes.notify()

    async def start_up(self) -> None:
        """First boot of a node of a new lab: at once, as if it had been up for days."""
        async with self._turn:
            self.files.begin_boot(self._gpus, up_for_s=UPTIME_OF_A_NEW_LAB_S)
            await self._come_up()

    async def reboot(self) -> None:
        """Go down and boot again; connections are cut, processes end, faults do what their cure says."""
        async with self._turn:
            if self.state in (NodeState.STOPPED, NodeState.TERMINATED):
                return
            await self._go_down(NodeState.BOOTING)
            await self._boot(power_cycle=False)

    async def stop(self) -> None:
        """Shut down and stay down."""
        async with self._turn:
            if self.state is not NodeState.TERMINATED:
                await self._go_down(NodeState.STOPPED)

    async def start(self) -> None:
        """Start after a stop, or for the first time after a launch: other hardware, unless a fault is to follow the node.

        With `stays_on_host` EC2 happens to start it where it was, as it may.
        """
        async with self._turn:
            if self.state is NodeState.STOPPED:
                self._set_state(NodeState.BOOTING)
                await self._boot(power_cycle=True)

    async def terminate(self) -> None:
        """Go away for good."""
        async with self._turn:
            await self._go_down(NodeState.TERMINATED)

    async def close(self) -> None:
        """Take the node down at the end of the lab and free its port."""
        await self._go_down(NodeState.TERMINATED)
        self.server.free_port()

    async def _go_down(self, state: NodeState) -> None:
        self._set_state(state)
        await self.server.stop()
        await self.processes.end_all()
        for pid in self._work:
            self.files.hide_process(pid)
        self._work.clear()

    async def _boot(self, *, power_cycle: bool) -> None:
        await asyncio.sleep(self._options.boot_s)
        stay = [fault for fault in self._faults if not Cure(fault.cure).ended_by(power_cycle=power_cycle)]
        if any(fault.cure == Cure.NO_BOOT for fault in stay):
            self._set_state(NodeState.DEAD)
            return
        self._faults = stay
        self._show_machine()
        moves = power_cycle and not stay and not self.stays_on_host
        if moves and self._hardware is not None and self.boots:
            self._cold_boots += 1
            self._gpus = fresh_gpus(self._hardware, f"{self.instance_id}/{self._cold_boots}")
        self.files.begin_boot(self._gpus)
        for fault in stay:
            self._show(fault)
        await self._come_up()

    async def _come_up(self) -> None:
        self._write_gpu_state()
        self.server.hangs = any(fault.cure == Cure.HANG or fault.hang for fault in self._faults)
        await self.server.start()
        self.boots += 1
        self._set_state(NodeState.UP)
        if self.at_boot is not None:
            await self.at_boot(self)

    def inject(self, fault: Fault) -> list[str]:
        """Give the node a fault now: kernel lines, GPU state, death of the work. Returns the lines that were printed."""
        if self._gpus and not 0 <= fault.gpu < len(self._gpus):
            raise ValueError(f"{self.name} has GPUs 0 to {len(self._gpus) - 1}, not {fault.gpu}")
        if self.state is not NodeState.UP:
            raise ValueError(f"{self.name} is {self.state}; wait until it is up before you give it a fault")
        self._faults.append(fault)
        self._show_machine()
        self._write_gpu_state()
        lines = self._show(fault)
        if kills_work(fault):
            for _, process in list(self._work.values()):
                kill_group(process)
        if fault.hang:
            self._hang()
        return lines

    def _hang(self) -> None:
        """Answer no command any more, and make no progress with the work; nothing dies of it."""
        self.server.hangs = True
        for _, process in self._work.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):  # it ended a moment ago
                    os.killpg(process.pid, signal.SIGSTOP)

    def cure(self) -> None:
        """Take every fault from the node, as new hardware would; the kernel log keeps its lines."""
        self._faults.clear()
        self.server.hangs = False
        self._show_machine()
        self._write_gpu_state()

    def _show(self, fault: Fault) -> list[str]:
        lines = kernel_lines(fault, self._place(fault))
        if lines:
            self.files.append_kernel_lines(lines)
        return lines

    def _place(self, fault: Fault) -> Place:
        return Place.of_gpu(fault.gpu, self._hardware) if self._hardware else Place()

    def _show_machine(self) -> None:
        """Let the files under the root tell of the faults that the node has now."""
        changes: dict[str, str | None] = {}
        rising: dict[str, float] = {}
        for fault in self._faults:
            changes |= machine_changes(fault, self._place(fault))
            rising |= rising_counters(fault, self._place(fault))
        self.files.machine.show(changes, rising)

    async def start_work(
        self,
        name: str,
        command: list[str],
        *,
        stdout: int | None = None,
        stderr: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> asyncio.subprocess.Process:
        """Start a process that uses all GPUs of the node: NVML lists it until it ends, and GPU faults kill it."""
        process = await self.processes.start(command, stdout=stdout, stderr=stderr, more=more)
        self._work[process.pid] = (name, process)
        self.files.show_process(process.pid, name, more or {})
        self._write_gpu_state()
        return process

    def end_work(self, process: asyncio.subprocess.Process) -> None:
        """Kill a process that `start_work` started, if it still runs, and forget it."""
        kill_group(process)
        if self._work.pop(process.pid, None):
            self.files.hide_process(process.pid)
            self._write_gpu_state()

    def gpu_state(self) -> dict[str, Any]:
        """Return what the fake driver answers from: GPUs with the effects of the faults, processes, bandwidth left."""
        processes = [{"pid": pid, "name": name} for pid, (name, _) in self._work.items()]
        rate = asdict(self._hardware.node_rate) if self._hardware else {}
        drivers = [fault.driver for fault in self._faults if fault.driver]
        return {
            **({"driver": drivers[-1]} if drivers else {}),
            "gpus": gpus_with(self._faults, self._gpus),
            "left": bandwidth_left(self._faults),
            "processes": processes,
            "node_rate": rate,
            "test_s": self._options.group_test_s,
        }

    def _write_gpu_state(self) -> None:
        if self._hardware is not None:
            self.files.write_gpu_state(self.gpu_state())
        self._changes.notify()

    def describe(self) -> dict[str, Any]:
        """Return what `hotspare lab status` shows of the node."""
        return {
            "name": self.name,
            "role": self.role,
            "instance_id": self.instance_id,
            "ip": self.ip,
            "ssh_port": self.ssh_port,
            "root": str(self.root),
            "state": "hangs" if self.hangs else self.state.value,
            "boot_id": self.boot_id,
            "boots": self.boots,
            "faults": [fault.to_json() for fault in self._faults],
        }
