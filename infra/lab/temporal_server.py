"""The lab's Temporal server: the CLI's development server with its UI, on free loopback ports, as a child of the lab."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

import httpx

DYNAMIC_CONFIG = (
    "history.transferProcessorMaxPollRPS=1000",
    "history.timerProcessorMaxPollRPS=1000",
    'history.timerProcessorMaxTimeShift="10ms"',
)
"""Without these the development server spends 50 ms on every task and up to a second on every timer (measured, CLI 1.9)."""

_ATTEMPTS = 3
_POLL_S = 0.05
_DEADLINE_S = 60.0


def temporal_command() -> str:
    """Return the path of the `temporal` program: $TEMPORAL_CLI, else beside this Python, else on the PATH. FileNotFoundError
    says how to get it."""
    beside = Path(sys.executable).with_name("temporal")
    found = os.environ.get("TEMPORAL_CLI") or (str(beside) if beside.exists() else shutil.which("temporal"))
    if not found or not Path(found).exists():
        raise FileNotFoundError(
            f"no Temporal CLI at {found or 'any usual place'}: run pip install 'hotspare[lab]', or set TEMPORAL_CLI to its path"
        )
    return found


class TemporalServer:
    """A development server. `database` keeps its state in a file; without one it forgets everything at its end."""

    namespace = "default"

    def __init__(self, log: Path, database: Path | None = None) -> None:
        self._log = log
        self._database = database
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.ui_port = 0

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def ui_url(self) -> str:
        """Address of the UI."""
        return f"http://127.0.0.1:{self.ui_port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the server and wait until it answers; after a stop, on the same ports. RuntimeError shows the end of its log."""
        for attempt in range(_ATTEMPTS):
            http_port, port, ui_port = _free_ports(3)
            if attempt or not self.port:
                self.port, self.ui_port = port, ui_port
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command(http_port), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            if await self._answers(http_port):
                return
            await self.stop()
        raise RuntimeError(f"the Temporal server did not start; the end of {self._log}:\n{self._log.read_text()[-2000:]}")

    def _command(self, http_port: int) -> list[str]:
        command = [
            temporal_command(),
            "server",
            "start-dev",
            "--ip",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--ui-port",
            str(self.ui_port),
            "--http-port",
            str(http_port),
            "--namespace",
            self.namespace,
            "--log-level",
            "error",
        ]
        for value in DYNAMIC_CONFIG:
            command += ["--dynamic-config-value", value]
        return command + (["--db-filename", str(self._database)] if self._database else [])

    async def _answers(self, http_port: int) -> bool:
        """Ask for the namespace until it is there; a server that ended (a port was taken meanwhile) answers no."""
        assert self._process is not None
        url = f"http://127.0.0.1:{http_port}/api/v1/namespaces/{self.namespace}"
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        async with httpx.AsyncClient(trust_env=False) as client:
            while self._process.returncode is None and asyncio.get_running_loop().time() < deadline:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(url)).status_code == 200:
                        return True
                await asyncio.sleep(_POLL_S)
        return False

    async def stop(self) -> None:
        """End the server."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), timeout=10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; the server cannot choose its own."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
