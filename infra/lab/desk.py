"""Where the commands of lab nodes reach the lab: reboot, the job launcher, mpirun. One JSON request a connection, on loopback."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any


class Reply:
    """Sends a command's output while it runs."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def out(self, text: str) -> None:
        """Print on the command's standard output."""
        await self._send({"stream": "out", "text": text})

    async def err(self, text: str) -> None:
        """Print on the command's standard error."""
        await self._send({"stream": "err", "text": text})

    async def status(self, status: int) -> None:
        """End the command."""
        await self._send({"status": status})

    async def _send(self, answer: dict[str, Any]) -> None:
        self._writer.write(json.dumps(answer).encode() + b"\n")
        await self._writer.drain()


Operation = Callable[[str, dict[str, Any], Reply], Awaitable[int]]
"""Carries out one request: the node that asks, the fields, the reply; returns the exit status."""


class Desk:
    """Serves the requests. A command that goes away cancels its operation."""

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(16)
        self._operations: dict[str, Operation] = {}
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    def offer(self, name: str, operation: Operation) -> None:
        """Add an operation."""
        self._operations[name] = operation

    async def start(self) -> dict[str, Any]:
        """Listen; returns what the commands need to reach the desk."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return {"port": self._server.sockets[0].getsockname()[1], "token": self._token}

    async def stop(self) -> None:
        """Stop listening and cancel what runs."""
        if self._server is not None:
            self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._running.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._running.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = json.loads(await reader.readline())
        if not secrets.compare_digest(request["token"], self._token):
            return
        reply = Reply(writer)
        work = asyncio.ensure_future(self._carry_out(request, reply))
        gone = asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _carry_out(self, request: dict[str, Any], reply: Reply) -> None:
        try:
            status = await self._operations[request["operation"]](request["node"], request["fields"], reply)
        except ConnectionError:
            return
        except Exception as error:
            await reply.err(f"{request['operation']}: {error}\n")
            status = 1
        await reply.status(status)
