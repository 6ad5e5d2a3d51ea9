"""What the namespaces need of this machine: root, the programs, and how a command of theirs is run."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sh": "dash",
    "pgrep": "procps",
    "mpirun": "openmpi-bin",
    "mpicc": "libopenmpi-dev",
    "cc": "gcc",
}
"""Programs, and the Debian package that each comes with."""

SOURCE = Path(__file__).with_name("all_reduce_perf.c")


class NotHere(Exception):
    """This machine cannot do it; the message says what it lacks."""


def program(name: str) -> str:
    """Return the path of a program. Raises NotHere, naming its package."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotHere(f"{name} is not installed; on Debian: apt-get install --no-install-recommends {PROGRAMS[name]}")
    return found


def lacking() -> str:
    """Say what keeps this machine from it, empty when nothing does."""
    if not Path("/proc/self/ns/net").exists():
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        for name in PROGRAMS:
            program(name)
    except NotHere as error:
        return str(error)
    return ""


async def tell(*words: str) -> str:
    """Run a command that has to succeed, and return what it printed. Raises NotHere with what it said."""
    process = await asyncio.create_subprocess_exec(
        program(words[0]), *words[1:], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise NotHere(f"{' '.join(words)}: {said.decode(errors='replace').strip()}")
    return said.decode()


async def compile_all_reduce(into: Path) -> Path:
    """Compile the all-reduce into a folder and return the program."""
    made = into / "all_reduce_perf"
    await tell("mpicc", "-O2", "-o", str(made), str(SOURCE))
    return made
