"""One machine of FakeFleet: power state, boot, kernel log, GPUs, faults and how they are cured. No time passes in it."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from activities.clients.fake_text import bus_id, xid_line
from activities.errors import DeadlinePassed, NodeUnreachable

KILLS_WORK = frozenset({48, 64, 74, 79, 94, 95, 119, 120, 140, 154, 157})
"""XIDs after which no rank runs on any longer on the node."""

LOSES_GPU = frozenset({79})
FIRST_UPTIME_S = 86_400.0
BOOT_UPTIME_S = 20.0
FIRST_LINE = "[    0.000000] Linux version 6.1.0"


class Cure(StrEnum):
    """What ends a fault. COMES_BACK shows again after every boot; NO_BOOT never boots again, HANG answers no command."""

    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    RESET = "reset"
    COMES_BACK = "comes_back"
    NEVER = "never"
    NO_BOOT = "no_boot"
    HANG = "hang"


@dataclass
class FakeFault:
    """A fault: an XID line and the state that goes with it, or a slowness without any line.

    `slow` is the share of the normal bus bandwidth that is left; `slow_kind` "intra" shows in the one-node run too, "inter" only
    between nodes. `wrong` makes runs compute wrong values. `unreachable` cuts the machine off without a line.
    """

    xid: int | None = None
    gpu: int = 3
    cure: Cure = Cure.REBOOT
    slow: float = 1.0
    slow_kind: str = "inter"
    wrong: int = 0
    unreachable: bool = False


@dataclass
class FakeMachine:
    """State of one machine. Every method is called under the fleet's lock.

    `left_behind` has the name and the run ("" for nobody's) of processes on its GPU 0, by process id; with
    `ends_nothing` they are another login's.
    `fabric_manager` is its version, the driver's where empty. `clock_off_s` is how far its clock is ahead. A start puts it on
    another host, with other GPUs, unless `stays_on_host`: EC2 promises neither.
    """

    name: str
    gpus: int = 8
    state: str = "running"
    boot: int = 1
    looks_until_up: int = 0
    looks_per_boot: int = 2
    up_since: float = field(default_factory=lambda: time.monotonic() - FIRST_UPTIME_S)
    faults: list[FakeFault] = field(default_factory=list)
    kernel_log: list[str] = field(default_factory=lambda: [FIRST_LINE])
    files: dict[str, str] = field(default_factory=dict)
    cache: dict[str, bytes] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    gpu_processes: int = 0
    left_behind: dict[int, tuple[str, str]] = field(default_factory=dict)
    ends_nothing: bool = False
    never_boots: bool = False
    kernel: str = "6.8.0-1029-aws"
    driver: str = "580.95.05"
    fabric_manager: str = ""
    clock_off_s: float = 0.0
    host: int = 1
    stays_on_host: bool = False
    log_grew: threading.Condition = field(default_factory=threading.Condition)

    @property
    def boot_id(self) -> str:
        """Boot id as the kernel writes it, another for each boot."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}/{self.boot}"))

    @property
    def uptime_s(self) -> float:
        """Seconds since boot, by the real clock, so that lines of the kernel log have an age."""
        return time.monotonic() - self.up_since

    def serial_of(self, gpu: int) -> str:
        """Serial number of a GPU; it stays with the host."""
        return f"16500{self.name}{gpu}" if self.host == 1 else f"16500{self.name}h{self.host}{gpu}"

    def uuid_of(self, gpu: int) -> str:
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, self.serial_of(gpu))}"

    @property
    def lost_gpus(self) -> set[int]:
        return {fault.gpu for fault in self.faults if fault.xid in LOSES_GPU}

    @property
    def can_work(self) -> bool:
        """Whether a rank could run here now."""
        return self.up and not any(fault.xid in KILLS_WORK - {94} for fault in self.faults)

    @property
    def up(self) -> bool:
        """Whether the machine answers, without counting this as a look."""
        cut_off = any(fault.unreachable for fault in self.faults)
        return self.state == "running" and not self.looks_until_up and not self.never_boots and not cut_off

    @property
    def responds(self) -> bool:
        """Whether commands on the machine answer, without counting this as a look."""
        return self.up and not self._hangs

    @property
    def _hangs(self) -> bool:
        return any(fault.cure is Cure.HANG for fault in self.faults)

    def answer(self) -> None:
        """One try to reach the machine: raises while it is down; a booting machine gets nearer to being up with each try."""
        if self.state == "running" and self.looks_until_up and not self.never_boots:
            self.looks_until_up -= 1
            raise NodeUnreachable(f"{self.name}: connection refused")
        if not self.up:
            raise NodeUnreachable(f"{self.name}: no answer on port 22")
        if self._hangs:
            raise DeadlinePassed(f"{self.name}: accepts connections, but no command answers")

    def inject(self, fault: FakeFault) -> None:
        """Put a fault on the machine, with the line that a driver prints."""
        self.faults.append(fault)
        self._print(fault)

    def reboot(self) -> None:
        """Warm restart: the faults that a reboot cures are gone, the rest are still there or show again."""
        if any(fault.cure is Cure.NO_BOOT for fault in self.faults):
            self.never_boots = True
        self._start_over({Cure.REBOOT, Cure.RESET})

    def power_on(self) -> None:
        """Cold start, after a stop."""
        self.state, self.never_boots = "running", False
        self._start_over({Cure.REBOOT, Cure.RESET, Cure.POWER_CYCLE, Cure.NO_BOOT, Cure.HANG})
        if not (self.stays_on_host or self.faults):
            self.host += 1  # what follows the machine shows on the host that it is on

    def reset_gpu(self, gpu: int) -> bool:
        """Reset one GPU; false when that GPU is lost, as a driver answers."""
        if gpu in self.lost_gpus:
            return False
        self.faults = [fault for fault in self.faults if fault.gpu != gpu or fault.cure is not Cure.RESET]
        return True

    def halt(self) -> None:
        """All that runs on the machine ends."""
        self.gpu_processes = 0
        for run in self.runs.values():
            run.lose()

    def share(self, kind: str) -> float:
        """Share of the normal bus bandwidth that the machine reaches in a run within it ("intra") or between nodes ("inter")."""
        kinds = ("intra",) if kind == "intra" else ("intra", "inter")
        return min([fault.slow for fault in self.faults if fault.slow_kind in kinds], default=1.0)

    def _start_over(self, cured: set[Cure]) -> None:
        self.halt()
        self.boot += 1
        self.looks_until_up = self.looks_per_boot
        self.up_since = time.monotonic() - BOOT_UPTIME_S
        self.kernel_log[:] = [FIRST_LINE]
        self.faults = [fault for fault in self.faults if fault.cure not in cured and not self._was_event_only(fault)]
        for fault in self.faults:
            self._print(fault)

    @staticmethod
    def _was_event_only(fault: FakeFault) -> bool:
        """A contained error is an event: nothing of it is left after a restart, unless it is told to come back."""
        return fault.xid == 94 and fault.cure not in (Cure.COMES_BACK, Cure.NEVER)

    def _print(self, fault: FakeFault) -> None:
        if fault.xid is None:
            return
        lines = [xid_line(fault.xid, fault.gpu, self.uptime_s)]
        if fault.xid == 79:
            lines.insert(0, f"[{self.uptime_s:12.6f}] NVRM: GPU at PCI:{bus_id(fault.gpu)}: {self.uuid_of(fault.gpu)}")
        with self.log_grew:
            self.kernel_log += lines
            self.log_grew.notify_all()
