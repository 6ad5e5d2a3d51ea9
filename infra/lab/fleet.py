"""The lab's nodes and their instances: launched at the endpoint, and moved by what the endpoint is told to do to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import boto3
from botocore.config import Config

from activities.names import ROLE_HEAD, ROLE_SPARE, ROLE_WORKER, TAG_CLUSTER, TAG_ROLE
from infra.lab.ec2_endpoint import Ec2Endpoint
from infra.lab.hardware import HEAD_TYPE
from infra.lab.moto_instances import identity_of, set_state, state_of
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION, LabOptions
from infra.lab.ssh_server import SshSide

HEAD = "head"
IMAGE = "ami-12c6146b"
"""An image that moto knows from the start (Ubuntu)."""
# The endpoint checks no signature; these only satisfy the SDK.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "lab"}

log = logging.getLogger("hotspare.lab")


class Fleet:
    """The nodes by name. It is what the endpoint tells of calls."""

    def __init__(self, options: LabOptions, ssh: SshSide, desk: dict[str, Any], changed: Callable[[], None]) -> None:
        self.nodes: dict[str, LabNode] = {}
        self.endpoint: Ec2Endpoint
        self._options = options
        self._ssh = ssh
        self._desk = desk
        self._changed = changed
        self._by_id: dict[str, LabNode] = {}
        self._building = True
        self.at_boot: Callable[[LabNode], Awaitable[None]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def build(self, endpoint: Ec2Endpoint) -> None:
        """Launch the instances of the head node, the workers and the spares, and bring their nodes up."""
        self.endpoint = endpoint
        options = self._options
        wanted = [(HEAD, ROLE_HEAD)]
        wanted += [(f"node-{number}", ROLE_WORKER) for number in range(1, options.nodes + 1)]
        wanted += [(f"spare-{number}", ROLE_SPARE) for number in range(1, options.spares + 1)]
        for instance_id in await asyncio.to_thread(self._launch, wanted):
            await self._add(instance_id).start_up()
            set_state(instance_id, "running")
        endpoint.calls.clear()
        self._building = False

    def _launch(self, wanted: list[tuple[str, str]]) -> list[str]:
        ec2 = boto3.client(
            "ec2",
            endpoint_url=self.endpoint.url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(proxies={}),
        )
        instance_ids = []
        for name, role in wanted:
            tags = {"Name": name, TAG_CLUSTER: self._options.cluster, TAG_ROLE: role}
            answer = ec2.run_instances(
                ImageId=IMAGE,
                MinCount=1,
                MaxCount=1,
                InstanceType=HEAD_TYPE if role == ROLE_HEAD else self._options.instance_type,  # type: ignore[arg-type]
                TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": key, "Value": tags[key]} for key in tags]}],
            )
            instance_ids.append(answer["Instances"][0]["InstanceId"])
        return instance_ids

    def _add(self, instance_id: str) -> LabNode:
        """Make the node of an instance. Without a name of its own it is called as EC2 calls it."""
        instance = identity_of(instance_id)
        name = instance.tags.get("Name") or instance.dns.split(".")[0]
        if name in self.nodes:
            name = f"{name}-{instance_id[-6:]}"
        role = instance.tags.get(TAG_ROLE, ROLE_SPARE)
        folder = self._options.folder.absolute() / "nodes" / name
        node = LabNode(name, role, instance, root=folder, options=self._options, ssh=self._ssh, desk=self._desk)
        node.at_boot = self.at_boot
        self.nodes[name] = self._by_id[instance_id] = node
        return node

    async def close(self) -> None:
        """Take every node down."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self._by_id.values()))

    def on_call(self, operation: str, instance_id: str) -> None:
        """Let the node of an instance do what a call asks for."""
        if operation == "RunInstances":
            if self._building:
                return
            self._add(instance_id)
            self._changed()
        node = self._by_id.get(instance_id)
        if node is None:
            return
        deeds: dict[str, Callable[[LabNode], Coroutine[Any, Any, None]]] = {
            "RebootInstances": lambda told: told.reboot(),
            "StopInstances": self._stop,
            "StartInstances": self._start,
            "RunInstances": self._start,
            "TerminateInstances": self._terminate,
        }
        if operation in deeds:
            self._begin(deeds[operation](node))

    def reboot(self, node: LabNode) -> None:
        """Begin a reboot that the node itself asked for; the command that asked does not live to see its end."""
        self._begin(node.reboot())

    def _begin(self, deed: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(deed)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a node did not do what the endpoint told it", exc_info=error)

    async def _start(self, node: LabNode) -> None:
        self._settle(node, "pending", "running")
        await node.start()

    async def _stop(self, node: LabNode) -> None:
        await node.stop()
        await asyncio.sleep(self._options.stop_s)
        self._settle(node, "stopping", "stopped")

    async def _terminate(self, node: LabNode) -> None:
        await node.terminate()
        self._settle(node, "shutting-down", "terminated")

    def _settle(self, node: LabNode, midway: str, end: str) -> None:
        """Show the end state, unless another call has meanwhile sent the instance elsewhere."""
        if state_of(node.instance_id) == midway:
            set_state(node.instance_id, end)

    def answers(self) -> dict[str, bool]:
        """Whether the node of each instance carries out commands over SSH."""
        return {key: node.state is NodeState.UP and not node.hangs for key, node in list(self._by_id.items())}

    def console_of(self, instance_id: str) -> str:
        """What the instance wrote to its console at boot: the public host key, as cloud-init prints it."""
        node = self._by_id.get(instance_id)
        if node is None:
            return ""
        return (
            f"Ubuntu 22.04.5 LTS {node.name} ttyS0\n"
            "-----BEGIN SSH HOST KEY KEYS-----\n"
            f"{node.server.public_key} root@{node.name}\n"
            "-----END SSH HOST KEY KEYS-----\n"
        )
