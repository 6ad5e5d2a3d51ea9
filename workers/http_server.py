"""Runs an HTTP surface on its own socket, so that port 0 gives a free port that is known before the first request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from activities.errors import BadInput


def bind(host: str, port: int, part: str, settings: str) -> socket.socket:
    """Open the listening socket. Raises BadInput naming part, address and settings when it is taken or not ours."""
    refusal = f"the {part} cannot listen on {host}:{port}: {{}}; set {settings}.host and {settings}.port"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadInput(refusal.format(error)) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise BadInput(refusal.format(error)) from error
    return listening


async def serve_app(
    app: Starlette,
    listening: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop` is set; `ready` is called with the address once requests are taken."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5)
    config.load()
    config.ssl = tls
    server = _Server(config)
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await server.wait_started(running)
        ready(url_of(listening, tls is not None))
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        stopping.cancel()
        await running


def url_of(listening: socket.socket, encrypted: bool = False) -> str:
    """The address of a socket, without a path."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the process and says when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: the process has its own handlers, for all that runs in it."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then let waiters know."""
        await super().startup(sockets=sockets)
        self._up.set()

    async def wait_started(self, running: asyncio.Task[None]) -> None:
        """Return when requests are taken. Raises what ended the server before that."""
        waiting = asyncio.ensure_future(self._up.wait())
        await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.done():
            await running
