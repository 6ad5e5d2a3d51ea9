"""Workers that can be killed: each reaches the Temporal server over a line of its own, which is cut as a SIGKILL cuts it.

The server then sees what it sees of a dead process: no poll, no heartbeat, no answer. Workflows run outside the sandbox here,
which other tests prove them in: it costs more than the rest of a story, and a matrix plays a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import names
from tests.chaos.short_attempts import ShortAttempts
from tests.workflows.healing import QUEUES
from workers.connection import runtime
from workflows.registry import WORKFLOWS


class Line:
    """A TCP line to the server that can be cut."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self.address = ""

    async def lay(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def cut(self) -> None:
        """Cut every connection and refuse new ones."""
        assert self._server is not None
        self._server.close()
        for end in list(self._ends):
            end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        self._ends |= {writer, back}
        try:
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        finally:
            self._ends -= {writer, back}

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


class WorkerLife:
    """One worker process, so to speak: serves every queue until it is stopped or killed."""

    def __init__(
        self, number: int, target: str, namespace: str, activities: list[Callable[..., Any]], *, short_attempts: bool
    ) -> None:
        self.number = number
        self._line = Line(target)
        self._namespace = namespace
        self._activities = activities
        self._pool = ThreadPoolExecutor(64, thread_name_prefix=f"worker-{number}")
        self._interceptors = [ShortAttempts()] if short_attempts else []
        self._workers: list[Worker] = []
        self._running: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Connect and serve."""
        await self._line.lay()
        client = await Client.connect(
            self._line.address,
            namespace=self._namespace,
            data_converter=pydantic_data_converter,
            runtime=runtime(),
            retry_config=RetryConfig(max_elapsed_time_millis=2000),
        )
        self._workers = [
            Worker(
                client,
                task_queue=queue,
                workflows=WORKFLOWS if queue == names.QUEUE_WORKFLOWS else [],
                workflow_runner=UnsandboxedWorkflowRunner(),
                activities=self._activities,
                activity_executor=self._pool,
                interceptors=self._interceptors,
                max_concurrent_activities=64,
                max_concurrent_activity_task_polls=2,
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=0.5),
            )
            for queue in QUEUES
        ]
        self._running = [asyncio.create_task(worker.run()) for worker in self._workers]

    def kill(self) -> None:
        """Cut it off, now. What is left of it in this process ends by itself, unheard."""
        self._line.cut()
        for worker in self._workers:
            asyncio.ensure_future(_unheard(worker.shutdown()))  # noqa: RUF006  (nobody waits for the dead)
        for task in self._running:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pool.shutdown(wait=False)

    async def stop(self) -> None:
        """End it in order."""
        await asyncio.gather(*(worker.shutdown() for worker in self._workers))
        await asyncio.gather(*self._running, return_exceptions=True)
        self._line.cut()
        self._pool.shutdown(wait=False)


async def _unheard(ending: Any) -> None:
    with contextlib.suppress(Exception):
        await ending
