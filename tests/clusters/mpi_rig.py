"""Real nodes in network namespaces under Hotspare's own launcher, judge and burn-in, on a real Temporal server."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities import names
from activities.active_tests import ActiveTestGate
from activities.burn_in import BurnInActivities
from activities.clients.aliases import KnownNode
from activities.clients.cached_inventory import CachedInventory
from activities.clients.fake_fleet import activities_of
from activities.clients.mpirun_launcher import MpirunLauncher
from activities.clients.ssh_paramiko import SshAccessTo
from activities.ec2_messages import Ec2Client
from activities.inventory import InventoryActivities, Node
from activities.jobs.protocol import JobAdapter
from activities.node_access import NodeAccess
from activities.probing import Probe, ProbeWish
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from infra.lab.namespaces.cluster import HEAD, Namespaces
from infra.lab.namespaces.tools import lacking
from workflows.decide import DecideActivities
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import BurnInReport, GroupRun, StartBurnIn
from workflows.registry import WORKFLOWS

MACHINE = "veth"
"""Instance type of the nodes."""

SLOW_MBITS = 20.0
"""Rate of a slow link: 0.0025 GB/s of bus bandwidth in a ring."""

FLOOR_GBS = 0.01
"""Where a run fails: four times the rate of a slow link, and an eighth of what full links carry on two cores with other work."""

SERVED = (names.QUEUE_WORKFLOWS, names.QUEUE_AWS, names.QUEUE_K8S, names.QUEUE_SSH, names.QUEUE_SSH_SLOW, names.QUEUE_NOTIFY)


def needs_namespaces() -> None:
    """Skip where this machine cannot do it; where HOTSPARE_REAL_CLUSTERS=1 asks for it, fail."""
    why = lacking()
    if why and os.environ.get("HOTSPARE_REAL_CLUSTERS") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(f"{why}; make test-clusters asks for it")


class _Listed(CachedInventory):
    """The nodes in the namespaces, as spares: those are ours to test."""

    def __init__(self, cluster: Namespaces) -> None:
        super().__init__("lab", 60.0, lambda: 0.0)
        self.nodes = [
            Node(instance_id=f"i-{number:017x}", name=name, ip=address, role="spare", instance_type=MACHINE, gpus=1)
            for number, (name, address) in enumerate(cluster.network.address.items())
            if name != HEAD
        ]

    def _look(self, cluster: str) -> list[KnownNode]:
        return [KnownNode(node, ()) for node in self.nodes]


class _NoJob:
    """A job system without a job."""

    def find_on(self, node: Node) -> None:
        return None


class _RanksSeen:
    """What a probe says of a node without a GPU: its GPUs are the ranks' that run there, which are counted over SSH."""

    gpu_processes: int
    leftovers: tuple[()] = ()

    def run(self, access: NodeAccess, node: Node, wish: ProbeWish) -> _RanksSeen:
        found = access.run(["sh", "-c", "pgrep --count --ns $$ --nslist net all_reduce_perf"], 30.0)
        seen = _RanksSeen()
        seen.gpu_processes = int(found.stdout.strip() or 0)
        return seen


class RealMpi:
    """The nodes, and a worker that burns them in."""

    def __init__(self, cluster: Namespaces, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.links = cluster.network
        self.settings = BurnInSettings(
            launcher="mpirun", command=cluster.command(), floors_gbs={f"{MACHINE}/2": FLOOR_GBS}, poll_s=0.2
        )
        self._access_to = SshAccessTo(
            AccessSettings(ssh_config=cluster.ssh_config, cache_dir=str(cluster.folder / "cache"), connect_timeout_s=60.0)
        )
        self._inventory = _Listed(cluster)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Serve every queue."""
        head = Node(instance_id="i-head", name=HEAD, ip=self.links.address[HEAD], role="head")
        gate = ActiveTestGate(
            self._access_to, cast(Probe, _RanksSeen()), cast(JobAdapter, _NoJob()), self._inventory, cast(Ec2Client, None)
        )
        holders: list[object] = [
            InventoryActivities(self._inventory),
            DecideActivities(PolicySettings(mode=Mode.ACT), ClusterSettings(), "lab", attributes=False),
            BurnInActivities(MpirunLauncher(lambda: self._access_to(head), self.settings), gate, self.settings),
        ]
        found = [one for holder in holders for one in activities_of(holder)]
        with ThreadPoolExecutor(16) as pool:
            workers = [
                Worker(self.client, task_queue=queue, workflows=WORKFLOWS, activities=found, activity_executor=pool)
                for queue in SERVED
            ]
            running = [asyncio.ensure_future(worker.run()) for worker in workers]
            try:
                yield
            finally:
                await asyncio.gather(*(worker.shutdown() for worker in workers))
                await asyncio.gather(*running)
                self._access_to.close()

    async def start(self, nodes: list[str], *, every_pair: bool = False) -> WorkflowHandle[Any, BurnInReport]:
        """Start a burn-in of these nodes."""
        return await self.client.start_workflow(
            names.WORKFLOW_BURN_IN,
            StartBurnIn(cluster="lab", nodes=nodes, every_pair=every_pair),
            id=names.burn_in_id("lab", secrets.token_hex(4)),
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=BurnInReport,
        )

    async def burn_in(self, nodes: list[str], *, every_pair: bool = False) -> tuple[BurnInReport, list[GroupRun]]:
        """Burn nodes in; returns the report and every run."""
        handle = await self.start(nodes, every_pair=every_pair)
        report = await handle.result()
        return report, await handle.query("runs", result_type=list[GroupRun])

    def outputs(self) -> dict[Path, str]:
        """What each run so far has printed on the head node, by its file there."""
        return {file: file.read_text(errors="replace") for file in (self.cluster.folder / "cache").rglob("output")}

    async def busbw(self, nodes: list[str]) -> float:
        """Bus bandwidth of one group run of these nodes, whatever the judgement, at the resolution that bytes and time give."""
        _, runs = await self.burn_in(nodes)
        found = runs[0].busbw_gbs
        assert found is not None, runs[0]
        return found


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition on the nodes, which tell no event."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@asynccontextmanager
async def real_mpi(nodes: int, env: WorkflowEnvironment) -> AsyncIterator[RealMpi]:
    """Bring up nodes and worker; the nodes are gone afterwards."""
    async with Namespaces(nodes) as cluster:
        rig = RealMpi(cluster, env.client)
        async with rig.at_work():
            yield rig
