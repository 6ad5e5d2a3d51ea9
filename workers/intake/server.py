"""Runs the intake on its own socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from workers import http_server
from workers.intake.app import Intake
from workers.sections import IntakeSettings
from workers.tls import RenewedContext, TlsFiles

PATH = "/v1/alertmanager"


def bind(settings: IntakeSettings) -> socket.socket:
    """Open the listening socket. Raises BadInput naming the address when it is taken or not ours."""
    return http_server.bind(settings.host, settings.port, "intake", "intake")


async def serve_intake(
    intake: Intake,
    listening: socket.socket,
    stop: asyncio.Event,
    ready: Callable[[str], None] = lambda url: None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until `stop` is set; `ready` is called with the address to configure in Alertmanager once requests are taken."""
    await http_server.serve_app(intake.app(), listening, stop, lambda url: ready(url + PATH), tls)


def tls_of(settings: IntakeSettings) -> ssl.SSLContext | None:
    """TLS as the settings ask for it. Raises BadInput when its files cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return RenewedContext(TlsFiles(settings.tls_cert, settings.tls_key)).context
