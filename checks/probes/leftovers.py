"""What an earlier group run, or somebody else's, has left on a node: test programs, MPI daemons, and whatever holds a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from checks.host import Host
from checks.model import RUN_VARIABLE

LEFTOVER_PROCESSES = "leftover_processes"
"""Cause of a run that was not started because processes hold GPUs although no job has the nodes."""

TEST_PROGRAMS = frozenset({"all_reduce_perf", "torchrun", "torch_all_reduc", "torch_all_reduce.py"})
MPI_DAEMONS = frozenset({"orted", "prted", "prte", "hydra_pmi_proxy", "hydra_bstrap_pr", "mpispawn"})
"""Names as the kernel keeps them, cut to 15 characters. Sources: Open MPI 4 and 5, MPICH and Intel MPI (hydra), MVAPICH."""

ENVIRONMENT_LIMIT = 1 << 18
"""Bytes of an environment that are read. Source: MAX_ARG_STRLEN is 128 KiB in Linux, and ours stands near the beginning."""

LISTED = 32
"""Processes told of a node at most. Hotspare default: more than ranks and daemons of one run."""

_INTERPRETER = re.compile(r"python[\d.]*|pt_main_thread|pt_elastic")


@dataclass(frozen=True)
class Leftover:
    """One process. `run` is the id of our run that started it, "" for anybody else's; `gpus` are those that it holds."""

    pid: int
    name: str
    run: str = ""
    gpus: tuple[int, ...] = ()


def read_leftovers(host: Host, holders: Iterable[tuple[int, int]]) -> tuple[Leftover, ...]:
    """Find them. `holders` are (process id, GPU index) as NVML tells; what cannot be read of a process is taken as not ours."""
    gpus: dict[int, list[int]] = {}
    for pid, gpu in holders:
        gpus.setdefault(pid, []).append(gpu)
    listed = sorted(int(name) for name in host.list("/proc") or [] if name.isdecimal())
    found = []
    for pid in dict.fromkeys([*gpus, *listed]):
        name = _name(host, pid)
        if pid in gpus or name in TEST_PROGRAMS or name in MPI_DAEMONS:
            found.append(Leftover(pid, name, _run(host, pid), tuple(sorted(gpus.get(pid, ())))))
    return tuple(found[:LISTED])


def _name(host: Host, pid: int) -> str:
    """Return the program's name; of a script that of its file."""
    name = host.read_text(f"/proc/{pid}/comm") or ""
    if not _INTERPRETER.fullmatch(name):
        return name
    words = (host.read_bytes(f"/proc/{pid}/cmdline", 4096) or b"").decode("utf-8", "replace").split("\0")
    scripts = [word.rsplit("/", 1)[-1] for word in words[1:]]
    return next((script for script in scripts if script in TEST_PROGRAMS), name)


def _run(host: Host, pid: int) -> str:
    environment = host.read_bytes(f"/proc/{pid}/environ", ENVIRONMENT_LIMIT) or b""
    begin = f"{RUN_VARIABLE}=".encode()
    values = (pair[len(begin) :] for pair in environment.split(b"\0") if pair.startswith(begin))
    return next(values, b"").decode("utf-8", "replace")[:300]
