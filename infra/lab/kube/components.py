"""The processes of a control plane: started with a log of their own, waited for until they answer, ended without leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from infra.lab.owner_guard import OwnerGuard

READY_DEADLINE_S = 120.0
"""How long a component may take until it answers. It takes a second on an idle machine; the rest is for a crowded one."""

_POLL_S = 0.05
_PORT_ATTEMPTS = 5
_LOG_END = 3000


class ComponentFailed(RuntimeError):
    """A component ended or never answered. The message has the end of its log."""


class Component:
    """One process in a session of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Tell whether the process has not ended."""
        return self._process.returncode is None

    async def wait_until(self, ready: Callable[[], Awaitable[bool]], deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until `ready` says so. ComponentFailed when the process ends before that or the deadline passes."""
        deadline = asyncio.get_running_loop().time() + deadline_s
        while not await ready():
            if not self.running:
                raise ComponentFailed(f"{self.name} ended with {self._process.returncode}; the end of {self.log}:\n{self._end()}")
            if asyncio.get_running_loop().time() > deadline:
                raise ComponentFailed(f"{self.name} did not answer in {deadline_s:.0f} s; the end of {self.log}:\n{self._end()}")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Kill the process and its group. Asked politely, an API server would wait a minute for the watches of others to end."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()

    def _end(self) -> str:
        return self.log.read_text(errors="replace")[-_LOG_END:]


class Components:
    """All processes of one control plane, ended in the opposite order of their start, also when this process is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Component] = []
        self._guard = OwnerGuard()

    async def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Component:
        """Start a process; its output is appended to `<name>.log`. It sees `environment` and the PATH, and no more of ours."""
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder)} | dict(environment or {}),
                start_new_session=True,
            )
        component = Component(name, process, log)
        self._running.append(component)
        await self._guard.watch(one.pid for one in self._running)
        return component

    async def stop(self, component: Component) -> None:
        """End one process."""
        await component.stop()
        self._running.remove(component)
        await self._guard.watch(one.pid for one in self._running)

    async def stop_all(self) -> None:
        """End every process, the last one first."""
        for component in reversed(self._running.copy()):
            await self.stop(component)
        await self._guard.close()


async def wait_for(what: str, ready: Callable[[], Awaitable[bool]], deadline_s: float = READY_DEADLINE_S) -> None:
    """Wait until `ready` says so. ComponentFailed names `what` was waited for in vain."""
    deadline = asyncio.get_running_loop().time() + deadline_s
    while not await ready():
        if asyncio.get_running_loop().time() > deadline:
            raise ComponentFailed(f"{what}: not ready in {deadline_s:.0f} s")
        await asyncio.sleep(_POLL_S)


async def with_free_ports(count: int, start: Callable[[list[int]], Awaitable[Component]]) -> Component:
    """Call `start` with free loopback ports until it succeeds.

    These programs must be told their ports, and between the look and the start another process may take one.
    """
    for attempt in range(_PORT_ATTEMPTS):
        try:
            return await start(free_ports(count))
        except ComponentFailed as failure:
            if "address already in use" not in str(failure) or attempt == _PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def free_ports(count: int) -> list[int]:
    """Return loopback ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [int(bound.getsockname()[1]) for bound in sockets]
