"""What group runs leave on a node is found with its run, and a run's processes are ended without touching anybody else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks.host import Host
from checks.model import RUN_VARIABLE
from checks.node_scripts import END_RUN
from checks.probes.leftovers import Leftover, read_leftovers

SLEEP = shutil.which("sleep") or "/bin/sleep"


def process(root: Path, pid: int, comm: str, environ: bytes = b"", cmdline: bytes = b"") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "environ").write_bytes(environ)
    (folder / "cmdline").write_bytes(cmdline)


def test_programs_daemons_and_holders_of_gpus_are_found_each_with_its_run(tmp_path: Path) -> None:
    mark = f"A=1\0{RUN_VARIABLE}=burn/7\0".encode()
    process(tmp_path, 10, "all_reduce_perf", mark)
    process(tmp_path, 11, "orted", b"A=1\0")
    process(tmp_path, 12, "python3", mark, b"/usr/bin/python3\0-u\0/home/x/torch_all_reduce.py\0-b\0001G\0")
    process(tmp_path, 13, "python3", b"", b"python3\0train.py\0")
    process(tmp_path, 14, "sshd")
    (tmp_path / "proc/self").mkdir()
    assert read_leftovers(Host(str(tmp_path)), [(13, 2), (13, 0), (99, 1)]) == (
        Leftover(13, "python3", "", (0, 2)),
        Leftover(99, "", "", (1,)),
        Leftover(10, "all_reduce_perf", "burn/7"),
        Leftover(11, "orted", ""),
        Leftover(12, "torch_all_reduce.py", "burn/7"),
    )


def test_a_variable_that_only_looks_like_the_mark_makes_no_process_ours(tmp_path: Path) -> None:
    process(tmp_path, 10, "all_reduce_perf", f"X{RUN_VARIABLE}=burn/7\0NOTE={RUN_VARIABLE}=burn/7\0".encode())
    assert read_leftovers(Host(str(tmp_path)), []) == (Leftover(10, "all_reduce_perf", ""),)


def test_a_process_that_went_meanwhile_and_a_node_without_proc_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "proc/10").mkdir(parents=True)
    assert read_leftovers(Host(str(tmp_path)), []) == ()
    assert read_leftovers(Host(str(tmp_path / "none")), [(5, 0)]) == (Leftover(5, "", "", (0,)),)


@contextmanager
def running(folder: Path, run: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real process called all_reduce_perf."""
    program = folder / "all_reduce_perf"
    if not program.exists():
        shutil.copy(SLEEP, program)
    command = list(words) or [str(program), "600"]
    child = subprocess.Popen(command, env={**os.environ, **({RUN_VARIABLE: run} if run else {})})
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def end(run: str) -> dict[str, list[int]]:
    done = subprocess.run([sys.executable, "-I", "-c", END_RUN, run], capture_output=True, text=True, check=True)
    told: dict[str, list[int]] = json.loads(done.stdout)
    return told


def test_a_real_run_is_found_and_ended_and_another_run_is_not(tmp_path: Path) -> None:
    mine = f"test/{os.getpid()}"
    with running(tmp_path, mine) as ours, running(tmp_path, f"{mine}0") as other, running(tmp_path, "") as theirs:
        while not {(ours.pid, mine), (other.pid, f"{mine}0"), (theirs.pid, "")} <= {
            (one.pid, one.run) for one in read_leftovers(Host("/"), [])
        }:
            time.sleep(0.01)  # until all three have become the program
        told = end(mine)
        assert told == {"found": [ours.pid], "left": []}
        assert (ours.wait(), other.poll(), theirs.poll()) == (-15, None, None)


def test_one_that_does_not_heed_the_first_signal_is_killed(tmp_path: Path) -> None:
    mine = f"deaf/{os.getpid()}"
    script = "trap '' TERM; echo ready; while :; do read line; done"
    deaf = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, RUN_VARIABLE: mine}
    )
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == b"ready\n"
    assert end(mine) == {"found": [deaf.pid], "left": []}
    deaf.communicate()
    assert deaf.returncode == -9


def test_a_run_that_left_nothing_is_no_error() -> None:
    assert end("never/1") == {"found": [], "left": []}
