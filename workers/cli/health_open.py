"""Whether the Temporal server answers whoever reaches its port: who can start a workflow can restart nodes. For `doctor`."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from checks.model import Verdict
from workers.cli.health import Line
from workers.connection import RPC_TIMEOUT, runtime

PART = "Temporal access"

REFUSALS = (RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED)

TRY_S = 3.0
"""Seconds to find out whether a port of this machine answers from outside. Hotspare default: it is this machine."""

HOW = "let it ask for mTLS or API keys (docs.temporal.io/self-hosted-guide/security), or let only Hotspare's machines reach it"


async def check_open(client: Client) -> Line:
    """Ask the server for the namespace without any credentials."""
    config = client.service_client.config
    host, _, port = config.target_host.rpartition(":")
    if is_loopback(host):
        outside = await answers_outside(int(port or 7233), own_addresses())
        if not outside:
            return Line(PART, Verdict.OK, f"it listens on this machine alone ({config.target_host})")
        config = dataclasses.replace(config, target_host=f"{outside}:{port}")
    return await _without_credentials(config, client.namespace)


async def _without_credentials(config: ConnectConfig, namespace: str) -> Line:
    tls = config.tls
    if tls is not None and not isinstance(tls, bool):
        tls = dataclasses.replace(tls, client_cert=None, client_private_key=None)
    nobody = ConnectConfig(
        target_host=config.target_host, tls=tls, runtime=runtime(), identity="hotspare-doctor-without-credentials"
    )
    try:
        service = await asyncio.wait_for(ServiceClient.connect(nobody), RPC_TIMEOUT.total_seconds())
        await service.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace), timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status in REFUSALS:
            return Line(PART, Verdict.OK, "it answers nobody without credentials")
        return Line(PART, Verdict.UNKNOWN, f"whether it answers without credentials is not known: {error.message}", "try again")
    except (RuntimeError, TimeoutError):
        # Ours came through to the same address: what is missing here is the certificate or the key.
        return Line(PART, Verdict.OK, "nobody connects to it without credentials")
    text = f"{config.target_host} answers without credentials: who reaches it can restart nodes"
    return Line(PART, Verdict.WARN, text, HOW)


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine alone."""
    if host.strip("[]") in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_addresses() -> list[str]:
    """The addresses of this machine under which others reach it."""
    found: list[str] = []
    with suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way_out:
        way_out.connect(("192.0.2.1", 9))  # a documentation address (RFC 5737): UDP sends nothing for this
        found.append(way_out.getsockname()[0])
    return [one for one in dict.fromkeys(found) if not is_loopback(one)]


async def answers_outside(port: int, addresses: Sequence[str]) -> str:
    """The first address of this machine on which a port is open, empty where there is none."""
    for address in addresses:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), TRY_S)
        except (OSError, TimeoutError):
            continue
        writer.close()
        return address
    return ""
