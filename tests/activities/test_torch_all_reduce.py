"""Hotspare's own all-reduce prints what the judge of nccl-tests reads, and finds wrong results; on PyTorch where it is."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from activities.clients import torch_all_reduce as program
from checks.judges.nccl_tests import judge
from checks.model import Verdict

GIB = 1 << 30
PYTHON = os.environ.get("HOTSPARE_TORCH_PYTHON", "")
"""A Python with PyTorch, any build."""


class Collective:
    """Stands for sixteen ranks on two nodes; `seconds_per_gib` is how fast they are."""

    def __init__(self, seconds_per_gib: float, wrong: int = 0) -> None:
        self.ranks, self._pace, self._wrong = 16, seconds_per_gib, wrong
        self.timed: list[tuple[int, int, int]] = []

    def everybody(self) -> list[program.Rank]:
        gpu = "NVIDIA H100 80GB HBM3"
        return [program.Rank(n, 100 + n, f"node-{n // 8 + 1}", n % 8, 0x50 + n, gpu) for n in range(16)]

    def software(self) -> str:
        return "NCCL version 2.27.3"

    def time(self, size: int, warm_up: int, iterations: int) -> float:
        self.timed.append((size, warm_up, iterations))
        return self._pace * size / GIB

    def wrong(self, size: int) -> int:
        return self._wrong


def table(collective: Any, *words: str) -> str:
    said: list[str] = []
    program.measure(collective, program.options_of(words), said.append)
    return "\n".join(said) + "\n"


def seconds(busbw_gbs: float) -> float:
    """Seconds per GiB at a bus bandwidth over 16 ranks."""
    return GIB * 2 * 15 / 16 / busbw_gbs / 1e9


def test_its_table_is_judged_like_that_of_nccl_tests() -> None:
    collective = Collective(seconds(480.0))
    text = table(collective, "-b", "1G", "-e", "16G", "-f", "4", "-n", "20")
    seen = judge(text, "p5.48xlarge", 2, 0, {})
    assert (seen.verdict, seen.cause, seen.wrong) == (Verdict.OK, "healthy", 0)
    assert seen.busbw_gbs == pytest.approx(480.0, abs=0.01)
    assert collective.timed == [(size * GIB, 5, 20) for size in (1, 4, 16)]


def test_a_slow_group_is_slow() -> None:
    seen = judge(table(Collective(seconds(200.0))), "p5.48xlarge", 2, 0, {})
    assert (seen.verdict, seen.cause) == (Verdict.CRITICAL, "low_bandwidth")


def test_wrong_results_are_counted_whatever_the_bandwidth() -> None:
    seen = judge(table(Collective(seconds(480.0), wrong=5)), "p5.48xlarge", 2, 1, {})
    assert (seen.verdict, seen.cause) == (Verdict.CRITICAL, "data_corruption")


def test_a_table_that_was_cut_is_no_pass() -> None:
    text = table(Collective(seconds(480.0)))
    seen = judge(text[: text.index("# Out of bounds")], "p5.48xlarge", 2, 143, {})
    assert (seen.verdict, seen.cause) == (Verdict.CRITICAL, "hang")


def test_the_known_sum_is_exact_in_a_float_at_the_largest_group() -> None:
    assert program.sum_of_ranks(16_384) * program.PATTERN < 1 << 24


@pytest.mark.parametrize("words", [["-b", "2G", "-e", "1G"], ["-f", "1"], ["-n", "0"], ["-b", "x"]])
def test_arguments_that_make_no_run_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        program.options_of(words)


def command(ranks: int, *words: str, program: str = program.__file__) -> list[str]:
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, program, *words]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def torchrun(ranks: int, *words: str, program: str = program.__file__) -> subprocess.CompletedProcess[str]:
    line = command(ranks, *words, program=program)
    return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False, env=environment())


needs_torch = pytest.mark.skipif(not PYTHON, reason="HOTSPARE_TORCH_PYTHON names no Python with PyTorch")


@needs_torch
@pytest.mark.timeout(250)
def test_real_ranks_reduce_over_gloo_and_find_their_results_right() -> None:
    done = torchrun(3, "-b", "1M", "-e", "4M", "-f", "4", "-n", "2", "--backend", "gloo")
    assert done.returncode == 0, done.stderr
    seen = judge(done.stdout, "", 1, 0, {})
    assert seen.wrong == 0
    assert seen.busbw_gbs
    assert done.stdout.count("Rank ") == 3
    assert (seen.verdict, seen.cause) == (Verdict.UNKNOWN, "configuration")  # no floor is known for CPUs


SPOILT = """
import os, sys
sys.argv = sys.argv[1:]
import torch.distributed as dist
right = dist.all_reduce
def all_reduce(tensor, *words, **more):
    right(tensor, *words, **more)
    if os.environ["RANK"] == "1" and tensor.numel() > 1000:
        tensor[7] += 1
dist.all_reduce = all_reduce
import runpy
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the program with a collective that spoils one element on one rank."""


@needs_torch
@pytest.mark.timeout(250)
def test_a_real_rank_that_reduces_wrongly_is_found(tmp_path: Path) -> None:
    (tmp_path / "spoilt.py").write_text(SPOILT)
    words = [program.__file__, "-b", "1M", "-e", "1M", "-n", "1", "--backend", "gloo"]
    done = torchrun(2, *words, program=str(tmp_path / "spoilt.py"))
    seen = judge(done.stdout, "", 1, done.returncode, {})
    assert (seen.verdict, seen.cause, seen.wrong) == (Verdict.CRITICAL, "data_corruption", 1), done.stderr


@needs_torch
@pytest.mark.timeout(250)
def test_ranks_end_when_their_torchrun_is_killed() -> None:
    words = ["-b", "1M", "-e", "1M", "-n", "100000000", "--backend", "gloo"]
    with subprocess.Popen(command(2, *words), stdout=subprocess.PIPE, text=True, env=environment()) as run:
        assert run.stdout is not None
        listed = itertools.takewhile(lambda line: "(GB/s)" not in line, iter(run.stdout.readline, ""))
        pids = [int(line.split("Pid")[1].split()[0]) for line in listed if "# " in line and "Rank " in line]
        assert len(pids) == 2
        run.kill()
        run.stdout.read()  # ends when no rank holds it any more
    while any(map(lives, pids)):
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
