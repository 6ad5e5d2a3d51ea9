"""What a look at an idle node costs it: time, CPU, and bytes of the document.

Measures and prints; asserts only that the node was seen as a whole and found in order. Goals: 300 ms a run, and below 1 % of a
core at one run a minute. It runs as it does over SSH: unpacked with its byte code, by the node's own Python. The lab's driver
is Python where NVIDIA's is C, so what NVML costs there is an upper bound, and what a real driver takes to open is not in it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from checks.archive import build_archive
from infra.lab.lab import Lab
from infra.lab.options import LabOptions

RUNS = 15
MEMORY = (
    "import runpy, sys; sys.argv = ['run_checks.py', 'probe']\n"
    "try: runpy.run_path('run_checks.py', run_name='__main__')\n"
    "finally: print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0], file=sys.stderr)"
)
"""Runs a look and tells the most memory that it had, in kilobytes."""
EVERY_S = 60.0
TYPES = ("p5.48xlarge", "p6-b200.48xlarge")
KINDS: dict[str, tuple[str, ...]] = {
    "Python alone": ("-c", "pass"),
    "without NVML": ("run_checks.py", "probe", "--no-nvml"),
    "quick": ("run_checks.py", "probe"),
    "deep": ("run_checks.py", "probe", "--depth", "deep"),
}


@dataclass(frozen=True)
class Cost:
    """One run: seconds on the clock, seconds of CPU with those of its children, bytes printed."""

    wall_s: float
    cpu_s: float
    bytes: int


def run(arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[Cost, bytes]:
    """Run one command of the node's Python and measure it."""
    began = time.perf_counter()
    process = subprocess.Popen(["python3", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = 0
    process.stdout.close()
    return Cost(wall, used.ru_utime + used.ru_stime, len(printed)), printed


def unpack(folder: Path, environment: dict[str, str]) -> None:
    """Unpack the archive and write its byte code, as the first probe of a node does."""
    with tarfile.open(fileobj=BytesIO(build_archive().content)) as tar:
        tar.extractall(folder, filter="data")
    subprocess.run(["python3", "-m", "compileall", "-q", "."], cwd=folder, env=environment, check=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("instance_type", TYPES)
async def test_what_a_look_costs(instance_type: str, tmp_path: Path) -> None:
    options = LabOptions(folder=tmp_path / "lab", nodes=1, spares=0, temporal=False, instance_type=instance_type)
    async with Lab(options) as lab:
        environment = lab.nodes["node-1"].files.environment()
        folder = tmp_path / "checks"
        unpack(folder, environment)
        run(KINDS["quick"], folder, environment)
        print(f"\n{instance_type:16}{'wall':>12}{'worst':>10}{'CPU':>10}{'of a core':>12}{'document':>14}")
        for kind, arguments in KINDS.items():
            told = [run(arguments, folder, environment) for _ in range(RUNS)]
            costs = [cost for cost, _ in told]
            print(f"{kind:16}" + row(costs))
            if kind != "Python alone":
                document = json.loads(told[-1][1])
                assert document["diagnosis"]["fault_class"] == "none"
                assert {"disk", "clock", "mounts"} <= {finding["check"] for finding in document["findings"]}
        print(f"{'most memory':16}{most_memory_kb(folder, environment) / 1024:>9.0f} MB")


def most_memory_kb(folder: Path, environment: dict[str, str]) -> int:
    """The most memory of the process that looks, kilobytes."""
    told = subprocess.run(["python3", "-c", MEMORY], cwd=folder, env=environment, capture_output=True, check=False)
    return int(told.stderr)


def row(costs: Sequence[Cost]) -> str:
    """The measured figures as a line of the table."""
    wall, cpu = (statistics.median(values) for values in ([one.wall_s for one in costs], [one.cpu_s for one in costs]))
    worst = max(one.wall_s for one in costs)
    size = statistics.median(one.bytes for one in costs)
    times = f"{wall * 1000:>9.0f} ms{worst * 1000:>7.0f} ms{cpu * 1000:>7.0f} ms"
    return f"{times}{100 * cpu / EVERY_S:>10.2f} %{size:>12.0f} B"
