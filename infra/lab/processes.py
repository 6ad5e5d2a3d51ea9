"""The processes of one lab node: started in groups of their own, found again by their environment, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

PROC = Path("/proc")


class NodeProcesses:
    """Starts and ends the processes of one node.

    Every process carries the node's root in its environment, so that also those are found that left their group and parent.
    """

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._home = self._environment["HOME"]
        self._root = root
        self._started: set[asyncio.subprocess.Process] = set()

    async def start(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        more: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> asyncio.subprocess.Process:
        """Start a process of the node in its own session. The stream arguments are those of `asyncio.subprocess`.

        `more` is put over the node's environment.
        """
        nothing = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=nothing if stdin is None else stdin,
            stdout=nothing if stdout is None else stdout,
            stderr=nothing if stderr is None else stderr,
            env={**self._environment, **(more or {})},
            cwd=cwd or self._home,
            start_new_session=True,
        )
        self._started = {known for known in self._started if known.returncode is None}
        self._started.add(process)
        return process

    async def end_all(self) -> None:
        """Kill every process of the node, as the loss of power does, and wait until those started here are gone."""
        started, self._started = self._started, set()
        for process in started:
            kill_group(process)
        while left := self._alive():
            for pid in left:
                kill(pid)
            await asyncio.gather(*(process.wait() for process in started))
            await asyncio.sleep(0)
        await asyncio.gather(*(process.wait() for process in started))

    def _alive(self) -> list[int]:
        return marked_processes(self._root)


def marked_processes(root: Path) -> list[int]:
    """Ids of the processes of the node with this root. A zombie has no environment any more, so it does not count."""
    return processes_with(b"HOTSPARE_HOST_ROOT=" + os.fsencode(root))


def processes_with(marker: bytes) -> list[int]:
    """Ids of the processes that have this NAME=value in their environment."""
    if not PROC.is_dir():
        return []
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and marker in environment_of(entry)]


def environment_of(entry: Path) -> list[bytes]:
    """The NAME=value pairs with which the process of this folder of /proc was started, none where it has ended."""
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill a process with its group; one that has ended is no error."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Kill a process; one that has ended is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
