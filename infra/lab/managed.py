"""Lab nodes as Run Command and systemd see them: an agent of Systems Manager that takes commands, and Hotspare's own agent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from activities.names import ROLE_HEAD
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION
from infra.lab.owner_guard import OwnerGuard
from infra.ssm.documents import ACTIONS, text_of

BUCKET = "hotspare-lab-outputs"
"""The lab's bucket for outputs that are longer than Run Command carries."""

ANSWER_S, POLL_S = 5.0, 0.1
"""access.ssm of a lab, whose nodes are asked within milliseconds."""


class ManagedNode:
    """One lab node with an SSM Agent on it."""

    def __init__(self, node: LabNode) -> None:
        self._node = node
        self.name, self.instance_id = node.name, node.instance_id

    def agent(self) -> str:
        """As `Managed.agent`."""
        if self._node.state in (NodeState.STOPPED, NodeState.TERMINATED):
            return ""
        return "Online" if self._node.state is NodeState.UP else "ConnectionLost"

    async def until_online(self) -> None:
        """As `Managed.until_online`."""
        await self._node.wait_until(lambda node: node.state is NodeState.UP)

    async def start(self, command: list[str]) -> asyncio.subprocess.Process:
        """Start a command as the agent does; on a node that hangs it never begins."""
        if self._node.hangs:
            await asyncio.Event().wait()
        self._node.files.write_uptime()
        self._node.files.machine.count_on()
        pipe = asyncio.subprocess.PIPE
        return await self._node.processes.start(command, stdout=pipe, stderr=pipe)


class HotspareAgents:
    """Hotspare's agent on every node but the head, begun at each boot as its systemd unit is."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file
        self.intake_port = _free_port()
        self._running: dict[str, int] = {}
        self._guard = OwnerGuard()

    async def begin(self, node: LabNode) -> None:
        """Start the agent of a node that has just come up."""
        if node.role == ROLE_HEAD:
            return
        python = str(node.root / "opt/hotspare/bin/python")
        words = ["--node", node.name, "--intake", f"http://127.0.0.1:{self.intake_port}", "--token-file", str(self._token_file)]
        folder = node.root / "var/lib/hotspare-agent"
        folder.mkdir(parents=True, exist_ok=True)
        started = await node.processes.start([python, "-m", "workers.launch", "agent", *words, "--folder", str(folder)])
        self._running[node.name] = started.pid
        await self._guard.watch(self._running.values())

    async def close(self) -> None:
        """Guard no longer; the agents go with their nodes."""
        await self._guard.close()


def make_documents(url: str, credentials: Mapping[str, str]) -> None:
    """Make the documents and the bucket, as Terraform does on AWS."""
    ssm = _client("ssm", url, credentials)
    for name in ACTIONS:
        ssm.create_document(Name=name, Content=text_of(name), DocumentType="Command")
    _client("s3", url, credentials).create_bucket(Bucket=BUCKET)


def put_into(url: str, credentials: Mapping[str, str], bucket: str, key: str, content: bytes) -> None:
    """Put an object into a bucket, as a node's agent does."""
    _client("s3", url, credentials).put_object(Bucket=bucket, Key=key, Body=content)


def _client(service: str, url: str, credentials: Mapping[str, str]) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
