"""What the real checks see on a machine of FakeFleet: its files, its kernel log and its NVML, without any of them existing."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from activities.clients.fake_machine import FakeMachine
from activities.clients.fake_text import bus_id
from checks.callers_clock import callers_clock
from checks.catalog.overrides import overrides_from_json
from checks.host import FILE_LIMIT_BYTES, CommandOutput, Host
from checks.model import RUN_VARIABLE
from checks.probes.pci import DEVICES, NVIDIA
from checks.probes.probe import ProbeOptions, probe
from checks.probes.readings import LOST, OK, GpuReadings, NvmlState, Reading
from checks.thresholds import read_thresholds

PENDING_AFTER = frozenset({48, 95})
RESET_ASKED_AFTER = frozenset({74, 95})


def run_probe(machine: FakeMachine, arguments: Sequence[str]) -> tuple[int, str]:
    """Run the real probe on the machine with the arguments of `run_checks.py probe`; return exit status and document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--settling-s", type=float, default=0.0)
    parser.add_argument("--handled-until", type=float)
    parser.add_argument("--asked-at", type=float)
    parser.add_argument("--no-nvml", action="store_true")
    parser.add_argument("--leftovers", action="store_true")
    parser.add_argument("--instance-type", default="")
    parser.add_argument("--thresholds", default="")
    parser.add_argument("--overrides", default="")
    given = parser.parse_args(list(arguments))
    options = ProbeOptions(
        deep=given.depth == "deep",
        settling_s=given.settling_s,
        handled_until=given.handled_until,
        no_nvml=given.no_nvml,
        leftovers=given.leftovers,
        instance_type=given.instance_type,
        thresholds=read_thresholds(given.thresholds),
        overrides=overrides_from_json(given.overrides),
    )
    clock = callers_clock(given.asked_at, lambda: time.time() + machine.clock_off_s)
    report = probe(MachineHost(machine), options, lambda deadline_s: nvml_of(machine), clock)
    return report.verdict.exit_status, json.dumps(report.to_json())


class MachineHost(Host):
    """The checks' door to a machine that exists in memory only."""

    def __init__(self, machine: FakeMachine) -> None:
        super().__init__("/nowhere", {})
        self._machine = machine

    def read_bytes(self, name: str, limit: int = FILE_LIMIT_BYTES) -> bytes | None:
        content = _files(self._machine).get(name)
        return None if content is None else content[:limit]

    def exists(self, name: str) -> bool:
        return name in _files(self._machine)

    def list(self, name: str) -> list[str] | None:
        inside = {path[len(name) + 1 :].split("/", 1)[0] for path in _files(self._machine) if path.startswith(f"{name}/")}
        return sorted(inside) or None

    def start(self, argv: Sequence[str], deadline_s: float) -> Callable[[], CommandOutput]:
        said = {
            "dmesg": "\n".join(self._machine.kernel_log),
            "nv-fabricmanager": f"Fabric Manager version is : {self._machine.fabric_manager or self._machine.driver}",
        }.get(argv[0])
        output = CommandOutput(None, "", missing=True) if said is None else CommandOutput(0, f"{said}\n")
        return lambda: output


def _files(machine: FakeMachine) -> dict[str, bytes]:
    files = {
        "/proc/sys/kernel/random/boot_id": f"{machine.boot_id}\n".encode(),
        "/proc/uptime": f"{machine.uptime_s:.2f} 0.00\n".encode(),
        "/proc/sys/kernel/osrelease": f"{machine.kernel}\n".encode(),
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {machine.driver}  Release\n".encode(),
        "/proc/mounts": b"/dev/nvme0n1p1 / ext4 rw,relatime 0 0\n/dev/md0 /scratch xfs rw,noatime 0 0\n",
        "/proc/meminfo": b"MemTotal: 2097152000 kB\nMemAvailable: 1992294400 kB\n",
    }
    for pid, (name, run) in machine.left_behind.items():
        files[f"/proc/{pid}/comm"] = f"{name}\n".encode()
        files[f"/proc/{pid}/environ"] = f"HOME=/root\0{RUN_VARIABLE}={run}\0".encode() if run else b"HOME=/root\0"
    for gpu in range(machine.gpus):
        device = f"{DEVICES}/{bus_id(gpu)}.0"
        files[f"{device}/vendor"] = f"{NVIDIA}\n".encode()
        files[f"{device}/class"] = b"0x030200\n"
        files[f"{device}/config"] = b"\xff" * 64 if gpu in machine.lost_gpus else b"\xde\x10\x30\x23" + bytes(60)
    return files


def nvml_of(machine: FakeMachine) -> NvmlState:
    """What NVML says of the machine's GPUs."""
    return NvmlState("read", driver_version=machine.driver, gpus=tuple(_gpu(machine, index) for index in range(machine.gpus)))


def _gpu(machine: FakeMachine, index: int) -> GpuReadings:
    if index in machine.lost_gpus:
        return GpuReadings(index, {"handle": Reading(LOST, detail="GPU is lost")})
    xids = {fault.xid for fault in machine.faults if fault.gpu == index}
    values: dict[str, Any] = {
        "handle": True,
        "uuid": machine.uuid_of(index),
        "serial": machine.serial_of(index),
        "name": "NVIDIA H100 80GB HBM3",
        "pci": f"0000{bus_id(index)}.0",
        "ecc_uncorrected_volatile": 1 if xids & {48, 94, 95} else 0,
        "ecc_uncorrected_aggregate": 1 if xids & {48, 94, 95} else 0,
        "remapped_rows": [0, 0, int(bool(xids & PENDING_AFTER)), int(64 in xids)],
        "recovery_action": int(bool(xids & RESET_ASKED_AFTER)),
        "temperature_c": 41,
        "clocks_event_reasons": 0,
        "process_ids": [*([2100 + index] if index < machine.gpu_processes else []), *(machine.left_behind if index == 0 else [])],
    }
    return GpuReadings(index, {name: Reading(OK, value) for name, value in values.items()})
