"""A cluster to heal in tests: FakeFleet, the real activities and workflows, and a Temporal server on which time can be skipped.

Each workflow has a clock of its own there. Were they skipped by themselves, a deadline of one workflow would pass while another
is about to answer it; so clocks stand until a test turns one with `env.fast_forward`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper, WorkflowEnvironment
from temporalio.worker import Worker

from activities import names
from activities.clients.fake_fleet import FakeFleet, activities_of
from activities.clients.temporal_gateway import TemporalGateway
from activities.incidents import StartIncident
from activities.node import Report
from tests.workflows.server import SERVER
from workflows.cluster_messages import Overview
from workflows.decide import DecideActivities
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import IncidentReport
from workflows.registry import WORKFLOWS

QUEUES = (names.QUEUE_WORKFLOWS, names.QUEUE_AWS, names.QUEUE_K8S, names.QUEUE_SSH, names.QUEUE_SSH_SLOW, names.QUEUE_NOTIFY)


@dataclass
class Healing:
    """The fleet under a running worker, and ways to report, look and wait."""

    fleet: FakeFleet
    client: Client
    folder: Path
    env: TimeSkipper | WorkflowEnvironment
    policy: PolicySettings
    limits: ClusterSettings = field(default_factory=ClusterSettings)
    attributes: bool = False
    spares_work: bool = False
    _worker: AsyncExitStack | None = None

    @property
    def gateway(self) -> TemporalGateway:
        """The durable door for reports."""
        return TemporalGateway(self.client)

    async def start_worker(self) -> None:
        """Serve every queue with the present settings."""
        stack = AsyncExitStack()
        pool = ThreadPoolExecutor(64)
        stack.callback(pool.shutdown, wait=False)
        decide = DecideActivities(
            self.policy, self.limits, self.fleet.cluster, attributes=self.attributes, spares_work=self.spares_work
        )
        activities = [*self.fleet.activities(self.gateway, self.folder), *activities_of(decide)]
        for queue in QUEUES:
            await stack.enter_async_context(
                Worker(
                    self.client,
                    task_queue=queue,
                    workflows=WORKFLOWS if queue == names.QUEUE_WORKFLOWS else [],
                    activities=activities,
                    activity_executor=pool,
                    max_concurrent_activities=64,
                    sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
                )
            )
        self._worker = stack

    async def stop_worker(self) -> None:
        """Stop serving; workflows stay as they are on the server."""
        if self._worker is not None:
            stack, self._worker = self._worker, None
            await stack.aclose()

    async def restart_worker(self, policy: PolicySettings | None = None) -> None:
        """A new worker process, perhaps with changed settings."""
        await self.stop_worker()
        self.policy = policy or self.policy
        await self.start_worker()

    async def report(self, alias: str, **report: Any) -> WorkflowHandle[Any, IncidentReport]:
        """Report a fault as a machine does, and return the incident."""
        node = self.fleet.node(alias)
        start = StartIncident(node=alias, cluster=self.fleet.cluster, report=Report(source="watcher", **report))
        joined = await self.gateway.report_fault(start, node.instance_id)
        return self.incident(joined.workflow_id)

    def incident(self, workflow_id: str) -> WorkflowHandle[Any, IncidentReport]:
        """Return a handle that knows the result's type."""
        return self.client.get_workflow_handle(workflow_id, result_type=IncidentReport)

    def incident_of(self, alias: str) -> WorkflowHandle[Any, IncidentReport]:
        """Return the incident of a node."""
        return self.incident(names.incident_id(self.fleet.cluster, self.fleet.node(alias).instance_id))

    def tags(self, alias: str) -> dict[str, str]:
        """Return the EC2 tags of a node."""
        return self.fleet.ec2.describe(self.fleet.node(alias).instance_id).tags

    async def overview(self) -> Overview:
        """Return the books of Cluster."""
        handle = self.client.get_workflow_handle(names.cluster_id(self.fleet.cluster))
        overview: Overview = await handle.query("overview", result_type=Overview)
        return overview

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition outside, looking as often as the server answers."""
        while not await condition():  # noqa: ASYNC110  (the server has no event to wait for)
            await asyncio.sleep(0.01)

    async def told(self, handle: WorkflowHandle[Any, Any], phase: str) -> None:
        """Wait until the story of a workflow has a line of this phase."""

        async def has_line() -> bool:
            return any(line["phase"] == phase for line in await handle.query("story"))

        await self.until(has_line)

    async def paged(self, words: str) -> None:
        """Wait until people were told so: the story has its line before the page is out."""

        async def is_out() -> bool:
            return any(words in why for page in self.fleet.pages for why in page.why)

        await self.until(is_out)


@asynccontextmanager
async def healing(
    folder: Path,
    *,
    nodes: int = 4,
    spares: int = 1,
    policy: PolicySettings | None = None,
    limits: ClusterSettings | None = None,
    spares_work: bool = False,
) -> AsyncIterator[Healing]:
    """Start a worker over a new fleet, in a namespace of its own; end it."""
    clocks = await SERVER.namespace()
    one = Healing(
        fleet=FakeFleet(nodes=nodes, spares=spares),
        client=clocks.client,
        folder=folder,
        env=clocks,
        policy=policy or PolicySettings(mode=Mode.ACT),
        limits=at_once(limits or ClusterSettings()),
        spares_work=spares_work,
    )
    await one.start_worker()
    await one.gateway.ensure_cluster(one.fleet.cluster)
    await one.until(lambda: _recovered(one))
    try:
        yield one
    finally:
        await one.stop_worker()


def at_once(limits: ClusterSettings) -> ClusterSettings:
    """Clocks stand in these tests: nothing waits for company, unless the test says so."""
    return limits if "alone_wait_s" in limits.model_fields_set else limits.model_copy(update={"alone_wait_s": 0.0})


async def _recovered(one: Healing) -> bool:
    return not (await one.overview()).recovering
