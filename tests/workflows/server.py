"""One Temporal server for all tests of a process, and a namespace of its own for each: a server's start costs more than a story.

The server is renewed now and then, as it keeps everything in memory, and ends with the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.testing import TimeSkipper, TimeSkippingConfig

from workers.connection import PLUGIN

TUNED = [
    argument
    for value in (
        "history.transferProcessorMaxPollRPS=1000",
        "history.timerProcessorMaxPollRPS=1000",
        'history.timerProcessorMaxTimeShift="10ms"',
        "frontend.WorkflowTimeSkippingEnabled=true",
    )
    for argument in ("--dynamic-config-value", value)
]
"""Without these the development server costs 50 ms an activity and a second a timer."""

NAMESPACES = 60
"""Tests that one server serves before another is begun."""

RETENTION = timedelta(days=1)


def temporal_cli() -> str:
    """Return the Temporal CLI that is installed beside this interpreter."""
    return str(Path(sys.executable).parent / "temporal")


class SharedServer:
    """A development server in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._left = 0
        self._numbers = itertools.count(1)

    async def namespace(self) -> TimeSkipper:
        """Return a client of a new namespace, whose workflows' clocks stand until a test turns them."""
        if self._left == 0 or self._process is None or self._process.poll() is not None:
            self._renew()
        self._left -= 1
        name = f"test-{next(self._numbers)}"
        client = await self._connected(name)
        kept = Duration(seconds=int(RETENTION.total_seconds()))
        await client.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
        )
        return TimeSkipper(client, config=TimeSkippingConfig(enabled=False))

    def stop(self) -> None:
        """End the server, where one runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _renew(self) -> None:
        self.stop()
        port = _free_port()
        self._address, self._left = f"127.0.0.1:{port}", NAMESPACES
        command = [temporal_cli(), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port), *TUNED]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_die_with_parent
        )

    async def _connected(self, namespace: str) -> Client:
        """Connect as soon as the server listens."""
        assert self._process is not None
        while True:
            try:
                return await Client.connect(self._address, namespace=namespace, plugins=[PLUGIN])
            except RuntimeError as error:
                if self._process.poll() is not None:
                    raise RuntimeError(f"the Temporal server ended with status {self._process.returncode}") from error
                await asyncio.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _die_with_parent() -> None:
    """A test process that is killed leaves no server behind."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


SERVER = SharedServer()
"""The server of this process."""
