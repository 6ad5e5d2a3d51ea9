"""A small stand-in for ParallelCluster's clustermgtd: terminates drained and DOWN static nodes, launches others in their place.

It imitates what the AWS ParallelCluster User Guide says of terminate_drain_nodes and terminate_down_nodes, and what
https://github.com/aws/aws-parallelcluster-node does in src/slurm_plugin/slurm_resources.py: IDLE or DOWN with DRAIN, or DOWN, is
unhealthy; its loop runs every 60 s. It knows static nodes only, and none of protected mode, health checks and reservations.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

from activities.names import ROLE_WORKER, TAG_CLUSTER, TAG_ROLE
from activities.slurm import words
from infra.lab.changes import Changes
from infra.lab.fleet import CREDENTIALS, IMAGE
from infra.lab.lab import Lab
from infra.lab.node import LabNode, NodeState
from infra.lab.options import REGION
from infra.lab.slurm.cluster import SlurmCluster

LOOP_S = 0.3
"""Seconds between passes; ParallelCluster's are a minute apart."""


class ClusterManager:
    """Replaces unhealthy nodes until it is closed. `replaced` has the Slurm name of each; `passes` counts looks at all nodes.

    `before` is called with the Slurm name of a node that is about to be replaced.
    """

    def __init__(self, lab: Lab, cluster: SlurmCluster) -> None:
        self._lab, self._cluster = lab, cluster
        self.replaced: list[str] = []
        self.passes = 0
        self.before: Callable[[str], None] = lambda slurm_name: None
        self._changes = Changes()
        self._ec2: Any = boto3.client("ec2", endpoint_url=lab.endpoint.url, region_name=REGION, **_keys())
        self._loop = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        self._ec2.close()

    async def looked_again(self, times: int = 3) -> None:
        """Wait until it has looked at all nodes so many more times."""
        until = self.passes + times
        await self._changes.wait_for(lambda: self.passes >= until)

    async def wait_for_replacement(self, slurm_name: str) -> LabNode:
        """Wait until another instance is behind a Slurm node; returns it."""
        await self._changes.wait_for(lambda: slurm_name in self.replaced)
        return self._cluster.nodes[slurm_name]

    async def _run(self) -> None:
        while True:
            for row in await self._rows():
                states = words(row["state"]) | words(row.get("state_flags"))
                drained = "DRAIN" in states and "IDLE" in states and "POWER_DOWN" not in states
                if drained or "DOWN" in states:
                    await self._replace(row["name"])
            self.passes += 1
            self._changes.notify()
            await asyncio.sleep(LOOP_S)

    async def _rows(self) -> list[dict[str, Any]]:
        status, text = await self._cluster.daemons.ask("sinfo", "--json")
        rows: list[dict[str, Any]] = json.loads(text)["nodes"] if status == 0 else []
        return rows

    async def _replace(self, name: str) -> None:
        """Terminate the instance of a static node, launch another, and let Slurm know where the node is now."""
        self.before(name)
        ask = self._cluster.daemons.ask
        reason = "reason=Static node maintenance: unhealthy node is being replaced"
        await ask("scontrol", "update", f"nodename={name}", "state=down", reason)
        await asyncio.to_thread(self._ec2.terminate_instances, InstanceIds=[self._cluster.nodes[name].instance_id])
        instance_id = await asyncio.to_thread(self._launch)
        node = next(known for known in self._lab.nodes.values() if known.instance_id == instance_id)
        await node.wait_until(lambda seen: seen.state is NodeState.UP)
        self._cluster.take_over(name, node)
        await ask("scontrol", "update", f"nodename={name}", f"nodehostname={node.dns.split('.')[0]}")
        await ask("scontrol", "update", f"nodename={name}", "state=resume")
        self.replaced.append(name)
        self._changes.notify()

    def _launch(self) -> str:
        tags = [{"Key": TAG_CLUSTER, "Value": self._lab.options.cluster}, {"Key": TAG_ROLE, "Value": ROLE_WORKER}]
        made = self._ec2.run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType=self._lab.options.instance_type,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return str(made["Instances"][0]["InstanceId"])


def _keys() -> dict[str, Any]:
    return {
        "aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        "config": Config(proxies={}),
    }
