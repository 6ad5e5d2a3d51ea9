"""The root folder of a lab node: what its commands and its examiner find in /proc, /sys, /etc and on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.lab.hardware import CUDA_VERSION, DRIVER_VERSION, Hardware
from infra.lab.machine_files import MachineFiles

LAB = Path(__file__).parent
TREE = LAB.parent.parent
"""The folder that holds `infra`, in a source tree and in an installed one."""
BIN = Path("usr/local/bin")
NODE_COMMANDS = ("all_reduce_perf", "journalctl", "lspci", "nvidia-smi", "reboot", "torchrun", "train-rank")
HEAD_COMMANDS = ("mpirun", "trainctl", "journalctl", "reboot")
_SHELL_COMMANDS = ("dmesg", "systemctl", "chronyc", "timedatectl", "modinfo")
_SHELL_COMMANDS_WITH_GPUS = ("nv-fabricmanager",)
_FOLDERS = (
    "proc/sys/kernel/random",
    str(BIN),
    "home/hotspare",
    "etc/hotspare",
    "var/lib/lab",
    "var/log/lab",
    "tmp",
)
UPTIME_OF_A_NEW_LAB_S = 3 * 86400.0
"""Nodes of a new lab look as if they had run for three days, so that nothing takes them for freshly booted."""

_BOOT_LINES = (
    "Linux version 6.8.0-1035-aws (buildd@lcy02) #37-Ubuntu SMP",
    "Command line: BOOT_IMAGE=/boot/vmlinuz-6.8.0-1035-aws root=PARTUUID=lab ro console=ttyS0 nvme_core.io_timeout=4294967295",
    "Memory: 2097152000K/2147483648K available",
    "systemd[1]: Detected virtualization amazon.",
    "ena 0000:00:05.0: Elastic Network Adapter (ENA) found",
)


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old text or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def install_hotspare(root: Path) -> None:
    """Let a node have Hotspare where an operator installs it: a Python that finds it. Run Command starts it from there."""
    python = root / "opt/hotspare/bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{TREE}${{PYTHONPATH:+:$PYTHONPATH}}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


class NodeRoot:
    """Lays out the root folder and keeps the files that change: boot id, uptime, kernel log, GPU state."""

    def __init__(self, root: Path, name: str, instance_type: str, hardware: Hardware | None, template: Path) -> None:
        """`template` is a folder of healthy files as `make_template` writes it."""
        self.path = root
        self.machine = MachineFiles(root, template, hardware)
        self.home = root / "home/hotspare"
        self.bin = root / BIN
        self._name = name
        self._instance_type = instance_type
        self._hardware = hardware
        self._kernel_log = root / "var/log/lab/kernel.log"
        self._gpu_state = root / "var/lib/lab/gpus.json"
        self._booted_at = 0.0
        self.boot_id = ""

    def environment(self) -> dict[str, str]:
        """What a login on the node sees."""
        return {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "USER": "hotspare",
            "LOGNAME": "hotspare",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.path / "tmp"),
            "HOTSPARE_HOST_ROOT": str(self.path),
            "PYTHONPATH": str(LAB / "nvidia"),
            "LAB_NODE": self._name,
        }

    def lay_out(self, desk: dict[str, Any]) -> None:
        """Create the folders, commands and files that do not change. `desk` tells the commands how to reach the lab."""
        for folder in _FOLDERS:
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        self.machine.lay_out()
        (self.path / "etc/hostname").write_text(self._name + "\n")
        (self.path / "proc/sys/kernel/hostname").write_text(self._name + "\n")
        dmi = self.path / "sys/devices/virtual/dmi/id"
        dmi.mkdir(parents=True, exist_ok=True)
        (dmi / "product_name").write_text(self._instance_type + "\n")
        (dmi / "sys_vendor").write_text("Amazon EC2\n")
        desk_file = self.path / "var/lib/lab/desk.json"
        desk_file.touch(0o600)
        desk_file.write_text(json.dumps(desk))
        self._lay_out_commands()

    def _lay_out_commands(self) -> None:
        python = os.path.realpath(sys.executable)
        for link in ("python3", "python"):
            (self.bin / link).unlink(missing_ok=True)
            (self.bin / link).symlink_to(python)
        for name in _SHELL_COMMANDS + (_SHELL_COMMANDS_WITH_GPUS if self._hardware else ()):
            self._command(name, (LAB / "commands" / f"{name}.sh").read_text())
        for name in NODE_COMMANDS if self._hardware else HEAD_COMMANDS:
            module = f"infra.lab.commands.{name.replace('-', '_')}"
            self._command(name, f'PYTHONPATH="{TREE}" exec "{python}" -P -S -m {module} "$@"')

        install_hotspare(self.path)

    def _command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def show_process(self, pid: int, name: str, environment: Mapping[str, str]) -> None:
        """Let /proc of the node have a process that uses its GPUs."""
        folder = self.path / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text(f"{name[:15]}\n")
        (folder / "environ").write_text("".join(f"{key}={value}\0" for key, value in environment.items()))

    def hide_process(self, pid: int) -> None:
        """Take a process that has ended out of /proc."""
        shutil.rmtree(self.path / "proc" / str(pid), ignore_errors=True)

    def begin_boot(self, gpus: Sequence[dict[str, Any]], *, up_for_s: float = 0.0) -> None:
        """Start a new boot: new boot id, the old kernel log put away, the lines of a boot in the new one."""
        state = self.path / "var/lib/lab"
        for file in (self._kernel_log, state / "booted_at", state / "boot_id"):
            if file.exists():
                file.replace(file.with_name(file.name + ".1"))
        self.boot_id = str(uuid.uuid4())
        self._booted_at = time.time() - up_for_s
        (self.path / "proc/sys/kernel/random/boot_id").write_text(self.boot_id + "\n")
        (state / "boot_id").write_text(self.boot_id + "\n")
        (state / "booted_at").write_text(f"{self._booted_at:.6f}\n")
        self.write_uptime()
        driver = self.path / "sys/module/nvidia/version"
        lines = [*_BOOT_LINES]
        if driver.exists():
            lines.append(f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver.read_text().strip()}  Release Build")
        lines += [f"NVRM: GPU at PCI:{gpu['pci'].rsplit('.', 1)[0]}: {gpu['uuid']}" for gpu in gpus]
        with self._kernel_log.open("w") as log:
            log.writelines(f"[{number * 0.4:12.6f}] {line}\n" for number, line in enumerate(lines, 1))

    def write_uptime(self) -> None:
        """Bring /proc/uptime up to date; the lab does it before each command, which is when somebody may read it."""
        up = time.time() - self._booted_at
        write_atomically(self.path / "proc/uptime", f"{up:.2f} {up * 180:.2f}\n")

    def append_kernel_lines(self, lines: Sequence[str]) -> None:
        """Append lines to the kernel log with the time since boot before each, in one write."""
        up = time.time() - self._booted_at
        with self._kernel_log.open("a") as log:
            log.write("".join(f"[{up:12.6f}] {line}\n" for line in lines))

    def kernel_log(self) -> str:
        """Return this boot's kernel log as `dmesg` prints it."""
        return self._kernel_log.read_text()

    def write_gpu_state(self, state: dict[str, Any]) -> None:
        """Store what the fake driver and the node's tools answer from."""
        write_atomically(self._gpu_state, json.dumps({"driver": DRIVER_VERSION, "cuda": CUDA_VERSION, **state}))

    def host_key_file(self) -> Path:
        """Where the node's SSH host key lies."""
        return self.path / "etc/ssh/ssh_host_ed25519_key"
