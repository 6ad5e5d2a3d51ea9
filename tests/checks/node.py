"""A node for tests: a root folder with the files and commands a probe looks at, and a stand-in for the NVML bindings."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from checks.document import ProbeReport
from checks.host import Host
from checks.probes.probe import ProbeOptions, probe

TRACKING = (
    "A9FEA97B,169.254.169.123,4,1764463200.123456789,0.000001234,-0.000000321,0.000012345,"
    "-12.345,-0.001,0.012,0.000123456,0.000098765,16.2,Normal"
)
"""What `chronyc -c tracking` prints of a clock in order."""
BUSES = ("53", "64", "75", "86", "97", "a8", "b9", "ca")


@dataclass
class TestNode:
    """A healthy p5.48xlarge that is 5,000 s up, until a test changes it."""

    __test__ = False

    root: Path
    kernel_lines: list[str] = field(default_factory=lambda: ["[    0.000000] Linux version 6.8.0"])

    def __post_init__(self) -> None:
        self.write("proc/uptime", "5000.00 9000.00\n")
        self.write("proc/sys/kernel/random/boot_id", "0f5bd0b2-0000-4000-8000-000000000001\n")
        self.write("proc/meminfo", "MemTotal: 2000000 kB\nMemFree: 10 kB\nMemAvailable: 1900000 kB\n")
        self.write("proc/mounts", "proc /proc proc rw 0 0\n/dev/nvme0n1p1 / ext4 rw,relatime 0 0\n")
        self.write("sys/devices/virtual/dmi/id/product_name", "p5.48xlarge\n")
        self.write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n")
        self.write("sys/bus/pci/devices/0000:00:00.0/class", "0x060000\n")
        self.write("sys/bus/pci/devices/0000:05:00.0/vendor", "0x10de\n")
        self.write("sys/bus/pci/devices/0000:05:00.0/class", "0x068000\n")
        for bus in BUSES:
            self.write(f"sys/bus/pci/devices/0000:{bus}:00.0/vendor", "0x10de\n")
            self.write(f"sys/bus/pci/devices/0000:{bus}:00.0/class", "0x030200\n")
        self.command("dmesg", f'exec cat "{self.root}/kernel.log"')
        self.command("systemctl", f'exec cat "{self.root}/units"')
        self.command("chronyc", f'exec cat "{self.root}/tracking"')
        self.write("tracking", f"{TRACKING}\n")
        self.units(("nvidia-fabricmanager", "active"), ("nvidia-persistenced", "active"))

    def write(self, name: str, text: str) -> None:
        """Write a file under the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def command(self, name: str, body: str) -> None:
        """Put a shell command on the node's PATH."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{body}\n")
        (self.root / "bin" / name).chmod(0o755)

    def units(self, *states: tuple[str, str]) -> None:
        """Let systemd tell of these units, each with its active state; "not-found" is one that is not installed."""
        blocks = []
        for name, active in states:
            load = "not-found" if active == "not-found" else "loaded"
            state = "inactive" if active == "not-found" else active
            blocks.append(f"Id={name}.service\nLoadState={load}\nActiveState={state}\nSubState=running\n")
        self.write("units", "\n".join(blocks))

    def xid(self, code: int, text: str, gpu: int = 3, at: float = 4990.0) -> None:
        """Print an XID into the kernel log."""
        self.kernel_lines.append(
            f"[{at:12.6f}] NVRM: Xid (PCI:0000:{BUSES[gpu]}:00): {code}, pid='<unknown>', name=<unknown>, {text}"
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process on the node."""
        return {"HOTSPARE_HOST_ROOT": str(self.root), "PATH": f"{self.root}/bin:{os.defpath}"}

    def probe(self, **options: Any) -> ProbeReport:
        """Probe the node."""
        self.write("kernel.log", "".join(line + "\n" for line in self.kernel_lines))
        return probe(Host(environment=self.environment), ProbeOptions(**options))


class FakeBindings:
    """What `checks.probes.nvml` uses of pynvml, over GPUs that a test can break. Errors are pynvml's own."""

    def __init__(self) -> None:
        self.count = 8
        self.rows: dict[int, tuple[int, int, int, int]] = {}
        self.recovery: dict[int, int] = {}
        self.volatile: dict[int, int] = {}
        self.clocks: dict[int, int] = {}
        self.processes: dict[int, list[int]] = {}
        self.errors: dict[tuple[str, int], int] = {}
        self.init_error = 0
        self.hangs_in = ""

    def __getattr__(self, name: str) -> Any:
        """Constants and errors are pynvml's; a function that is not here is one that the GPU does not support."""
        return self._unsupported if name.startswith("nvmlDevice") else getattr(pynvml, name)

    def _unsupported(self, *_: Any) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _call(self, function: str, index: int = -1) -> None:
        if function == self.hangs_in:
            threading.Event().wait()
        for key in ((function, index), ("*", index)):
            if key in self.errors:
                raise pynvml.NVMLError(self.errors[key])

    def nvmlInit(self) -> None:  # noqa: N802
        self._call("nvmlInit")
        if self.init_error:
            raise pynvml.NVMLError(self.init_error)

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._call("nvmlDeviceGetHandleByIndex", index)
        return index

    def nvmlDeviceGetUUID(self, gpu: int) -> str:  # noqa: N802
        self._call("nvmlDeviceGetUUID", gpu)
        return f"GPU-{gpu}"

    def nvmlDeviceGetSerial(self, gpu: int) -> str:  # noqa: N802
        self._call("nvmlDeviceGetSerial", gpu)
        return f"165000{gpu}"

    def nvmlDeviceGetName(self, gpu: int) -> str:  # noqa: N802
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetPciInfo(self, gpu: int) -> SimpleNamespace:  # noqa: N802
        self._call("nvmlDeviceGetPciInfo", gpu)
        return SimpleNamespace(busId=f"00000000:{BUSES[gpu].upper()}:00.0")

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> SimpleNamespace:  # noqa: N802
        self._call("nvmlDeviceGetMemoryInfo", gpu)
        return SimpleNamespace(total=80 << 30, used=1 << 30)

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, kind: int, counter: int) -> int:  # noqa: N802
        self._call("nvmlDeviceGetTotalEccErrors", gpu)
        return self.volatile.get(gpu, 0) if kind == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else 0

    def nvmlDeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, int, int]:  # noqa: N802
        self._call("nvmlDeviceGetRemappedRows", gpu)
        return self.rows.get(gpu, (0, 0, 0, 0))

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list[Any]) -> list[SimpleNamespace]:  # noqa: N802
        self._call("nvmlDeviceGetFieldValues", gpu)
        answers = []
        for field_id in fields:
            known = field_id == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
            status = self.errors.get(("field", gpu), 0) if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            value = SimpleNamespace(uiVal=self.recovery.get(gpu, 0))
            answers.append(SimpleNamespace(nvmlReturn=status, valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, value=value))
        return answers

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:  # noqa: N802
        self._call("nvmlDeviceGetTemperature", gpu)
        return 34

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:  # noqa: N802
        self._call("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        return self.clocks.get(gpu, 1)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: int) -> list[SimpleNamespace]:  # noqa: N802
        self._call("nvmlDeviceGetComputeRunningProcesses", gpu)
        return [SimpleNamespace(pid=pid) for pid in self.processes.get(gpu, [])]
