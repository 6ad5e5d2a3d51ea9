"""How fast the kernel log reader is, and how much memory a gigabyte of log takes.

Measures and prints; asserts only that every fault was found and that memory stays within its limit. Goals on one core: 500 MB/s
of foreign lines for NVIDIA's lines alone, 50 MB/s with all lines of the host; below 100 MB of memory for 1 GB of log.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from checks.kernel_log import read_stream

MEGABYTE = 1_000_000
CHUNK = 4 * MEGABYTE
MEMORY_LIMIT_MB = 100
FAULTS = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:1c:00): 31, pid=14292, name=python, Ch 00000030, intr 00000000. MMU Fault: ENGINE HOST0",
    "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
)
FOREIGN = (
    "systemd[1]: Started Session {} of user root.",
    "docker0: port {}(veth1a2b3c4) entered forwarding state",
    'audit: type=1400 audit(1700000000.123:{}): apparmor="STATUS" operation="profile_load" name="snap"',
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth{}: link becomes ready",
    "kubelet[1234]: I1129 10:00:00.123456 1234 reconciler.go:{}] operationExecutor.VerifyControllerAttachedVolume started",
)


class Endless(io.RawIOBase):
    """So many bytes of log, made by repeating a chunk: no gigabyte on the disk or in memory."""

    def __init__(self, chunk: bytes, size: int) -> None:
        self._chunk = chunk
        self._left = size // len(chunk) * len(chunk)
        self.size = self._left
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self._left, len(self._chunk) - self._place)
        buffer[:count] = self._chunk[self._place : self._place + count]
        self._left -= count
        self._place = (self._place + count) % len(self._chunk)
        return count


@dataclass(frozen=True)
class Kind:
    """A kind of log: what one line in so many is a fault, and how a line is wrapped."""

    name: str
    wrap: Callable[[float, str], str]
    fault_every: int


def dmesg(at: float, text: str) -> str:
    return f"[{at:12.6f}] {text}"


def journal(at: float, text: str) -> str:
    return json.dumps({"_SOURCE_MONOTONIC_TIMESTAMP": str(int(at * 1e6)), "_HOSTNAME": "node-1", "MESSAGE": text})


KINDS = (
    Kind("dmesg, foreign lines", dmesg, 0),
    Kind("dmesg, 1 fault in 1000", dmesg, 1000),
    Kind("dmesg, faults alone", dmesg, 1),
    Kind("journald JSON, foreign", journal, 0),
)


def chunk_of(kind: Kind) -> tuple[bytes, int]:
    """About 4 MB of log, and how many of its lines are faults."""
    choose = random.Random(1)
    lines: list[str] = []
    size = faults = 0
    while size < CHUNK:
        fault = kind.fault_every and len(lines) % kind.fault_every == 0
        text = choose.choice(FAULTS) if fault else choose.choice(FOREIGN).format(choose.randrange(1_000_000))
        faults += bool(fault)
        lines.append(kind.wrap(len(lines) / 100, text))
        size += len(lines[-1]) + 1
    return ("\n".join(lines) + "\n").encode(), faults


def measured(kind: Kind, nvidia_alone: bool) -> float:
    """Megabytes per second of processor time. Every fault must have been found."""
    chunk, faults = chunk_of(kind)
    log = Endless(chunk, len(chunk) * (1 if kind.fault_every == 1 else 50))
    began = time.process_time()
    found = sum(1 for _ in read_stream(io.BufferedReader(log, 1 << 18), nvidia_alone))
    took = time.process_time() - began
    assert found == faults * (log.size // len(chunk))
    assert log.size > 0
    return log.size / took / MEGABYTE


def table(rows: Iterator[tuple[str, ...]]) -> None:
    for row in rows:
        print(f"{row[0]:28}" + "".join(f"{cell:>16}" for cell in row[1:]))


@pytest.mark.timeout(900)
def test_throughput_of_the_reader_on_one_core() -> None:
    print()
    table(iter([("MB/s of one core", "NVIDIA alone", "all host lines")]))
    table((kind.name, f"{measured(kind, True):.3g}", f"{measured(kind, False):.3g}") for kind in KINDS)


PROGRAM = """
import io, resource, sys
from checks.kernel_log import read_stream
from tests.bench.test_reader_throughput import Endless, KINDS, chunk_of
chunk = chunk_of(KINDS[1])[0] if sys.argv[1] == "lines" else b"x" * 4_000_000
found = sum(1 for _ in read_stream(io.BufferedReader(Endless(chunk, int(sys.argv[2])), 1 << 18), sys.argv[3] == "nvidia"))
print(found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", ["lines", "one line without an end"])
def test_memory_for_a_gigabyte_of_log(shape: str) -> None:
    command = [sys.executable, "-c", PROGRAM, shape, str(1000 * MEGABYTE), "nvidia"]
    found, peak_mb = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    print(f"\n1 GB of log, {shape}: {found} faults, peak {peak_mb} MB")
    assert peak_mb < MEMORY_LIMIT_MB
    assert bool(found) == (shape == "lines")
