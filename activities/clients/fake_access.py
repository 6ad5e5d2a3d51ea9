"""Access to a machine of FakeFleet: answers the commands that Hotspare sends, from the machine's state alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from activities import quarantine
from activities.clients.fake_machine import FakeMachine
from activities.clients.fake_points import Points
from activities.clients.fake_probe import run_probe
from activities.clients.fake_text import GPU_BUSES, all_reduce_text
from activities.errors import NodeUnreachable
from activities.node_access import LOST, CommandResult, DetachedRun
from activities.probing import UNPACK
from checks.node_scripts import END_RUN

ONE_NODE_BUSBW_GBS = 480.0
"""In-place bus bandwidth of a healthy p5.48xlarge by itself at 16 GiB. Source: Azure ND H100 v5 table, 479."""


@dataclass
class FakeRun:
    """A detached run that ends after `looks_left` polls."""

    output: str
    exit_status: int
    looks_left: int = 0
    lost: bool = False

    def lose(self) -> None:
        """The machine restarted: a run that had not ended leaves no status."""
        if self.looks_left:
            self.looks_left, self.lost = 0, True

    def poll(self, run_id: str) -> DetachedRun:
        if self.looks_left:
            self.looks_left -= 1
            return DetachedRun(run_id=run_id, known=True, output=self.output[: len(self.output) // 2])
        return DetachedRun(run_id=run_id, known=True, exit_status=LOST if self.lost else self.exit_status, output=self.output)


class FakeAccess:
    """A `NodeAccess` to one machine."""

    def __init__(
        self, machine: FakeMachine, instance_type: str, points: Points, lock: threading.RLock, looks_per_run: Callable[[], int]
    ) -> None:
        self._machine, self._instance_type, self._points, self._lock = machine, instance_type, points, lock
        self._looks_per_run = looks_per_run

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        plain = command[2:] if command[:2] == ["sudo", "-n"] else command
        return self._points.carry_out(f"run.{_word(plain)}", self._machine.name, lambda: self._run(plain))

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        self._points.carry_out("start", self._machine.name, lambda: self._start(run_id, command))

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        return self._points.carry_out("poll", self._machine.name, lambda: self._poll(run_id))

    def kill(self, run_id: str) -> None:
        self._points.carry_out("kill", self._machine.name, lambda: self._kill(run_id))

    def put(self, file: Path, digest: str) -> str:
        return self._points.carry_out("put", self._machine.name, lambda: self._put(file, digest))

    def follow_kernel_log(self) -> Iterator[str]:
        seen, boot = 0, self._machine.boot
        while True:
            with self._lock:
                self._machine.answer()
                if self._machine.boot != boot:
                    raise NodeUnreachable(f"{self._machine.name}: connection lost")
                new = self._machine.kernel_log[seen:]
                seen += len(new)
            yield from new or [""]
            with self._machine.log_grew:
                self._machine.log_grew.wait(0.05)

    def boot_id(self, deadline_s: float) -> str:
        return self._points.carry_out("boot_id", self._machine.name, self._boot_id)

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "start", "put", "follow"})

    def close(self) -> None:
        """Nothing is open."""

    def _boot_id(self) -> str:
        with self._lock:
            self._machine.answer()
            return self._machine.boot_id

    def _put(self, file: Path, digest: str) -> str:
        with self._lock:
            self._machine.answer()
            self._machine.cache[digest] = file.read_bytes()
            return f"/home/hotspare/.cache/hotspare/files/{digest}/{file.name}"

    def _start(self, run_id: str, command: list[str]) -> None:
        with self._lock:
            self._machine.answer()
            if run_id not in self._machine.runs:
                self._machine.runs[run_id] = self._node_run(command)
                self._machine.runs[run_id].looks_left = self._looks_per_run()

    def _node_run(self, command: list[str]) -> FakeRun:
        # As the one-node test is called, or inside the wrapper of a group run.
        if not any(Path(word[:300]).name == "all_reduce_perf" for word in command):
            return FakeRun(f"{command[:1]}: command not found\n", 127)
        if self._machine.lost_gpus:
            return FakeRun("Test NCCL failure common.cu:1012 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'\n", 2)
        wrong = max((fault.wrong for fault in self._machine.faults), default=0)
        busbw = ONE_NODE_BUSBW_GBS * self._machine.share("intra")
        return FakeRun(all_reduce_text([self._machine.name], self._machine.gpus, busbw, wrong), 1 if wrong else 0)

    def _poll(self, run_id: str) -> DetachedRun:
        with self._lock:
            self._machine.answer()
            run = self._machine.runs.get(run_id)
            return run.poll(run_id) if run else DetachedRun(run_id=run_id, known=False)

    def _kill(self, run_id: str) -> None:
        with self._lock:
            self._machine.answer()
            if run := self._machine.runs.get(run_id):
                run.lose()

    def _run(self, command: list[str]) -> CommandResult:
        with self._lock:
            self._machine.answer()
            if len(command) > 3 and command[:2] == ["sh", "-c"]:
                return self._quarantine_file(command[2], command[4:])
            if command[1:4] == ["-I", "-c", END_RUN]:
                return self._end_run(command[4])
            if command[1:3] == ["-c", UNPACK]:
                self._machine.files[f"{command[4]}/run_checks.py"] = ""
                return _said("")
            if len(command) > 1 and command[1].endswith("run_checks.py"):
                return self._probe(command)
            return self._tool(command)

    def _end_run(self, run_id: str) -> CommandResult:
        left = {} if self._machine.ends_nothing else self._machine.left_behind
        found = [pid for pid, (_, run) in left.items() if run == run_id]
        for pid in found:
            del self._machine.left_behind[pid]
        return _said(json.dumps({"found": found, "left": []}) + "\n")

    def _probe(self, command: list[str]) -> CommandResult:
        if command[1] not in self._machine.files:
            return CommandResult(exit_status=2, stdout="", stderr=f"{command[0]}: can't open file {command[1]!r}: [Errno 2]")
        status, document = run_probe(self._machine, command[3:])
        return CommandResult(exit_status=status, stdout=document, stderr="")

    def _tool(self, command: list[str]) -> CommandResult:
        machine, tool = self._machine, Path(command[0]).name
        if tool == "nvidia-smi" and "--gpu-reset" in command:
            return self._reset(command[-1])
        if tool == "reboot":
            machine.reboot()
            raise NodeUnreachable(f"{machine.name}: the connection ended: it reboots")
        texts = {
            "dmesg": "\n".join(machine.kernel_log) + "\n",
            "nvidia-smi": "".join(
                f"GPU {gpu}: {machine.uuid_of(gpu)}\n" for gpu in range(machine.gpus) if gpu not in machine.lost_gpus
            ),
            "uptime": f"up {machine.uptime_s:.0f} s\n",
            "uname": "Linux fake 6.1.0\n",
            "cat": f"{machine.boot_id}\n",
        }
        if tool not in texts:
            return CommandResult(exit_status=127, stdout="", stderr=f"{tool}: command not found")
        return _said(texts[tool])

    def _reset(self, which: str) -> CommandResult:
        gpu = int(which) if which.isdigit() else next((i for i, bus in enumerate(GPU_BUSES) if f":{bus}:" in which), 0)
        if self._machine.gpu_processes:
            return CommandResult(exit_status=255, stdout="", stderr=f"GPU {which} is currently in use by another client")
        if not self._machine.reset_gpu(gpu):
            return CommandResult(exit_status=255, stdout="", stderr=f"GPU Reset couldn't run because GPU {which} is not found")
        return _said(f"GPU {which} was successfully reset.\nAll done.\n")

    def _quarantine_file(self, script: str, arguments: list[str]) -> CommandResult:
        folder = f"{quarantine.QUARANTINE_DIR}/"
        if script == quarantine.LIST:
            return _said("".join(f"{path[len(folder) :]}\n" for path in self._machine.files if path.startswith(folder)))
        path = f"{folder}{arguments[0]}"
        if script == quarantine.READ:
            return _said(self._machine.files.get(path, ""))
        if script == quarantine.WRITE:
            self._machine.files.setdefault(path, arguments[1])
            return _said("")
        if script == quarantine.REMOVE:
            self._machine.files.pop(path, None)
            return _said("")
        return CommandResult(exit_status=127, stdout="", stderr="a script that FakeFleet does not know")


def _said(text: str) -> CommandResult:
    return CommandResult(exit_status=0, stdout=text, stderr="")


def _word(command: list[str]) -> str:
    """Name of the point of a command: what a test holds or counts."""
    if command[:2] == ["sh", "-c"] and len(command) > 2:
        known = {quarantine.LIST: "list", quarantine.READ: "read", quarantine.WRITE: "write", quarantine.REMOVE: "remove"}
        return f"quarantine_{known[command[2]]}" if command[2] in known else "sh"
    if len(command) > 1 and command[1].endswith("run_checks.py"):
        return "probe"
    if command[1:4] == ["-I", "-c", END_RUN]:
        return "end_run"
    return "reset" if "--gpu-reset" in command else Path(command[0]).name
