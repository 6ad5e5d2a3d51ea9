"""What becomes of an alert whose node nobody knows: observed in Temporal under `unresolved/...`, and one page in a while."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Protocol

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from activities.errors import HotspareError, ProviderBusy
from activities.incidents import Joined, StartIncident
from activities.names import QUEUE_WORKFLOWS, WORKFLOW_REMEDIATE_NODE, unresolved_id
from activities.notify import Notifier, Page
from workers.intake.alerts import Alert

logger = logging.getLogger(__name__)

ALIAS_LIMIT = 100
"""Characters of an alias in a workflow id. Source: Temporal's default limit of an id is 1,000 bytes."""


class Observer(Protocol):
    """Records an alert for which there is no incident."""

    async def observe(self, cluster: str, alert: Alert) -> Joined:
        """Return when the server has it. Raises ProviderBusy otherwise."""
        ...


class TemporalObserver:
    """Starts RemediateNode under an id of its own: it looks once more and ends, or hands over if there is a node by now."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def observe(self, cluster: str, alert: Alert) -> Joined:
        workflow_id = unresolved_id(cluster, re.sub(r"[^\w.:-]", "_", alert.alias)[:ALIAS_LIMIT])
        try:
            await self._client.start_workflow(
                WORKFLOW_REMEDIATE_NODE,
                StartIncident(node=alert.alias, cluster=cluster, report=alert.report),
                id=workflow_id,
                task_queue=QUEUE_WORKFLOWS,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"an alert about an unknown node: {alert.report.what}"[:200],
            )
        except (RPCError, RuntimeError) as error:
            raise ProviderBusy(f"Temporal did not confirm {workflow_id}: {error}") from error
        return Joined(workflow_id=workflow_id)


class UnknownNodePager:
    """Tells a person of a name that no node has; the same name again only after a while."""

    def __init__(self, cluster: str, notifier: Notifier, again_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._notifier = notifier
        self._again_s = again_s
        self._clock = clock
        self._paged: dict[str, float] = {}

    async def tell(self, alert: Alert, why: str) -> None:
        """Page. A pager that is away is no reason to refuse the message: the log and the answer say the same."""
        now = self._clock()
        self._paged = {alias: at for alias, at in self._paged.items() if now - at < self._again_s}
        if alert.alias in self._paged:
            return
        self._paged[alert.alias] = now
        try:
            await asyncio.to_thread(self._notifier.send, self._page(alert, why))
        except HotspareError as error:
            logger.warning("the page about the unknown node %s was not delivered: %s", alert.alias, error)

    def _page(self, alert: Alert, why: str) -> Page:
        return Page(
            key=f"unknown-node/{self._cluster}/{alert.alias}",
            incident="",
            node=alert.alias,
            title=f"An alert names a node that is not in cluster {self._cluster}: {alert.alias}",
            why=[why, f"The alert says: {alert.report.what}", "Nothing was done to any node."],
            next_commands=["hotspare status", "hotspare report NODE --what '...'"],
        )
