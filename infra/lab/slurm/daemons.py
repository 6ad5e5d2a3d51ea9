"""The daemons of the lab's Slurm: munged and slurmctld beside the nodes, one slurmd as a process of each lab node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.lab.node import LabNode, NodeState
from infra.lab.owner_guard import OwnerGuard
from infra.lab.processes import PROC, environment_of, kill, processes_with

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "squeue", "sinfo", "sbatch", "srun", "scancel")
PACKAGES = "slurm-wlm munge"
_PORTS = range(20000, 32000)
"""Below Linux' ephemeral ports (32768 and up), so that no connection of ours takes one while a slurmd is down."""
_UP_LIMIT_S = 30.0

# What jobs have started, then the slurmstepds (which hide their environment), then the folder with the sockets.
_ALSO = r"""
for at in /proc/[0-9]*; do
  has=$(tr '\0' '\n' < "$at/environ" 2>/dev/null)
  case "$has" in *SLURM_JOB_ID=*) printf '%s\n' "$has" | grep -qxF "SLURM_CONF=$1" && kill -9 "${at#/proc/}" 2>/dev/null ;; esac
done
for at in /proc/[0-9]*; do
  [ "$(cat "$at/comm" 2>/dev/null)" = slurmstepd ] || continue
  ls -l "$at/fd" 2>/dev/null | grep -qF "$2/slurmd." && kill -9 "${at#/proc/}" 2>/dev/null
done
rm -rf "$3"
"""


class NoSlurm(Exception):
    """Slurm is not installed here, or did not come up; the message says which."""


def program(name: str) -> str:
    """Return the path of a program of Slurm or munge. Raises NoSlurm."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise NoSlurm(f"{name} is not installed; on Debian: apt-get install --no-install-recommends {PACKAGES}")
    return found


def installed() -> bool:
    """Whether this machine has everything that the lab's Slurm needs."""
    try:
        return all(program(name) for name in PROGRAMS)
    except NoSlurm:
        return False


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


class SlurmDaemons:
    """Everything that runs. What holds sockets lies in a short path of its own: a socket's path has at most 107 characters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = Path(tempfile.mkdtemp(prefix="hotspare-slurm-"))
        self.conf = folder / "slurm.conf"
        self.socket = self.run / "munge.socket"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._beside: list[asyncio.subprocess.Process] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._minded: set[str] = set()
        self._slurmds: set[int] = set()
        self._guard = OwnerGuard(_ALSO, [str(self.conf), str(folder / "log"), str(self.run)])
        for part in (folder / "log", self.run / "state", self.run / "spool"):
            part.mkdir(parents=True, exist_ok=True)

    async def start(self, nodes: Mapping[str, LabNode]) -> None:
        """Start munged and slurmctld, then a slurmd wherever a node is up. `nodes` are by Slurm's names."""
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = {
            "key-file": key,
            "socket": self.socket,
            "log-file": self.folder / "log/munged",
            "pid-file": self.run / "munged.pid",
        }
        words = [f"--{name}={path}" for name, path in files.items()]
        await self._beside_nodes("munged", "--foreground", "--force", f"--seed-file={self.run / 'munge.seed'}", *words)
        await self._wait_for(self.socket.exists, "munged")
        await self._beside_nodes("slurmctld", "-D", "-c", "-f", str(self.conf))
        for name, node in nodes.items():
            self.mind(name, node)
        async with asyncio.timeout(_UP_LIMIT_S):
            await self._ping()

    async def _ping(self) -> None:
        """Return when slurmctld answers and each node has registered. TimeoutError comes from the caller's limit."""
        while True:
            status, shown = await self.ask("sinfo", "--noheader", "--format=%T")
            if status == 0 and set(shown.split()) == {"idle"}:
                return
            await asyncio.sleep(0.1)

    def mind(self, slurm_name: str, node: LabNode) -> None:
        """Run a slurmd on a node whenever it is up; when it goes down, its processes go with it."""
        self._minded.add(slurm_name)
        self._tasks.append(asyncio.ensure_future(self._mind(slurm_name, node)))

    async def _mind(self, slurm_name: str, node: LabNode) -> None:
        while True:
            await node.wait_until(lambda seen: seen.state in (NodeState.UP, NodeState.TERMINATED))
            if node.state is NodeState.TERMINATED:
                return
            boots = node.boots
            daemon = await node.processes.start(
                [program("slurmd"), "-D", "-N", slurm_name, "-f", str(self.conf)], more={"PATH": self.environment["PATH"]}
            )
            self._slurmds.add(daemon.pid)
            await self._tell_guard()
            stopping = asyncio.ensure_future(self._stop_where_node_hangs(node, boots, daemon))
            await daemon.wait()
            stopping.cancel()
            self._slurmds.discard(daemon.pid)
            self._end_steps(slurm_name)
            await asyncio.sleep(0.2)

    async def _stop_where_node_hangs(self, node: LabNode, boots: int, daemon: asyncio.subprocess.Process) -> None:
        """A node that hangs answers slurmctld as little as anybody else."""
        while True:
            await node.wait_until(lambda seen: seen.hangs or seen.boots != boots)
            if node.boots != boots:
                return
            daemon.send_signal(signal.SIGSTOP)
            await node.wait_until(lambda seen: not seen.hangs or seen.boots != boots)
            with contextlib.suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGCONT)

    def _end_steps(self, slurm_name: str) -> None:
        """Kill the slurmstepds of a node that went down. They hide their environment, but each has its slurmd's log open."""
        log = str(self.folder / "log" / f"slurmd.{slurm_name}")
        for entry in PROC.iterdir():
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().strip() == "slurmstepd" and log in _open_files(entry):
                    kill(int(entry.name))

    async def ask(self, name: str, *words: str) -> tuple[int, str]:
        """Run a command of Slurm; returns exit status and what it printed, errors last."""
        process = await asyncio.create_subprocess_exec(
            program(name),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment,
            cwd=self.folder,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode() + err.decode()

    async def _beside_nodes(self, name: str, *words: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                program(name),
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self._beside.append(process)
        await self._tell_guard()

    async def _tell_guard(self) -> None:
        await self._guard.watch([*(process.pid for process in self._beside), *self._slurmds])

    async def _wait_for(self, true: Callable[[], bool], name: str) -> None:
        async with asyncio.timeout(_UP_LIMIT_S):
            while not true():
                if self._beside[-1].returncode is not None:
                    raise NoSlurm(f"{name} ended; see {self.folder / 'log'}")
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        """End everything that runs beside the nodes, and stop looking after the slurmds; they end with their nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name in self._minded:
            self._end_steps(name)
        for pid in processes_with(b"SLURM_CONF=" + os.fsencode(self.conf)):
            if any(name.startswith(b"SLURM_JOB_ID=") for name in environment_of(PROC / str(pid))):  # srun and what it started
                kill(pid)
        for process in reversed(self._beside):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._beside.clear()
        await self._guard.close()
        shutil.rmtree(self.run, ignore_errors=True)


def _open_files(process: Path) -> set[str]:
    return {os.readlink(file) for file in (process / "fd").iterdir()}
