"""Hotspare's own commands as child processes: `hotspare init` to its end, `hotspare run` as long as the demonstration lasts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import TracebackType

PARTS = frozenset({"worker", "watcher", "intake"})

READY_LIMIT_S = 180.0
"""Most that the parts may take to come up; on two cores it is under ten, beside ten other labs a minute."""

STOP_LIMIT_S = 30.0
"""Most that they may take to end, after which the process is killed. The worker gives running activities 20 s."""

TAIL_LINES = 25


class WorkerFailed(Exception):
    """A child process ended when it should not, or did not come up; the message names its log."""


def command(*arguments: str) -> tuple[str, ...]:
    """The command line of one of our commands, with this interpreter."""
    return (sys.executable, "-m", "workers.launch", *arguments)


def environment() -> dict[str, str]:
    """This process's environment; our folders come before an installed package named `workflows`."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


async def hotspare(log: Path, *arguments: str) -> None:
    """Run a command to its end. Raises WorkerFailed when it does not end well."""
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            *command(*arguments),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=asyncio.subprocess.STDOUT,
        )
        status = await child.wait()
    if status != 0:
        raise WorkerFailed(f"hotspare {' '.join(arguments)} ended with status {status}; its output is in {log}")


class WorkerProcess:
    """`hotspare run`, up when entered, ended when left. What it logs goes to `log`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._child: asyncio.subprocess.Process | None = None
        self._missing = set(PARTS)
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> WorkerProcess:
        with self.log.open("wb") as errors:
            self._child = await asyncio.create_subprocess_exec(
                *command("run", "--json"),
                env=environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        try:
            await asyncio.wait_for(self._until_up(), READY_LIMIT_S)
        except TimeoutError:
            await self.stop()
            words = f"hotspare run was not up after {READY_LIMIT_S:.0f} s: {', '.join(sorted(self._missing))}"
            raise WorkerFailed(f"{words}; its log is {self.log}") from None
        except BaseException:
            await self.stop()
            raise
        self._reader = asyncio.create_task(self._drain())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._child is not None and self._child.returncode is None

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]) if self.log.exists() else ""

    async def stop(self) -> None:
        """End the process: asked first, killed when it does not listen."""
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            try:
                await asyncio.wait_for(self._child.wait(), STOP_LIMIT_S)
            except TimeoutError:
                self._child.kill()
                await self._child.wait()
        if self._reader is not None:
            await self._reader

    async def kill(self) -> None:
        """End the process as a crash would: no warning, no last word."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()

    async def _until_up(self) -> None:
        while self._missing:
            line = await self._line()
            if not line:
                raise WorkerFailed(f"hotspare run ended while it came up; its log is {self.log}")
            self._missing.discard(json.loads(line)["up"])

    async def _drain(self) -> None:
        while await self._line():
            pass

    async def _line(self) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        return await self._child.stdout.readline()
