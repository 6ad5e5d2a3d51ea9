"""Reads incidents and the cluster's books from Temporal, always by their fixed ids, never by a search."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.inventory import Node
from activities.names import cluster_id, incident_id
from workers.connection import RPC_TIMEOUT, TemporalAway
from workflows.cluster_messages import Overview
from workflows.messages import IncidentReport

AT_ONCE = 16
"""Questions to the server side by side. Hotspare default: a cluster of 1,000 nodes answers in seconds, the server stays free."""

QUERY_TIMEOUT = timedelta(seconds=3)
"""A worker answers a query within milliseconds. Hotspare default: without one, a person waits so long to be told so."""


@dataclass
class Look:
    """One incident as it is now. `story` is empty when no worker answers; `trouble` then says so."""

    workflow_id: str
    state: str
    opened_at: datetime | None = None
    closed_at: datetime | None = None
    story: list[dict[str, Any]] = field(default_factory=list)
    outcome: str = ""
    fate: str = ""
    trouble: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the incident still runs."""
        return self.state == "RUNNING"

    @property
    def phase(self) -> str:
        """The phase of its newest line."""
        return str(self.story[-1].get("phase", "")) if self.story else ""

    @property
    def newest(self) -> str:
        """Its newest line."""
        return str(self.story[-1].get("text", "")) if self.story else ""


async def look_at(client: Client, workflow_id: str, *, with_story: bool = True) -> Look | None:
    """Describe a workflow by id and read its story; None when there never was one, or it is past the retention time."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise TemporalAway(f"Temporal does not tell about {workflow_id}: {error.message}; try again") from error
    status = described.status or WorkflowExecutionStatus.RUNNING
    look = Look(workflow_id, status.name, described.start_time, described.close_time)
    if with_story:
        await _read_story(handle, look)
    return look


async def _read_story(handle: WorkflowHandle[Any, Any], look: Look) -> None:
    if look.state == "COMPLETED":
        try:
            report = IncidentReport.model_validate(await handle.result(rpc_timeout=RPC_TIMEOUT))
            look.outcome, look.fate = report.outcome, report.fate
        except (RPCError, ValidationError) as error:
            look.trouble = f"its result cannot be read: {error}"
    try:
        lines = await handle.query("story", rpc_timeout=QUERY_TIMEOUT)
        look.story = [line if isinstance(line, dict) else {"text": str(line)} for line in lines]
    except (RPCError, WorkflowQueryFailedError) as error:
        look.trouble = look.trouble or f"no worker tells its story ({error}); start one: hotspare worker"


async def open_incidents(client: Client, cluster: str, nodes: list[Node]) -> dict[str, Look]:
    """The open incidents among these nodes, by instance id."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(node: Node) -> tuple[str, Look | None]:
        async with gate:
            workflow_id = incident_id(cluster, node.instance_id)
            look = await look_at(client, workflow_id, with_story=False)
            if look is not None and look.is_open:
                look = await look_at(client, workflow_id)
            return node.instance_id, look

    looks = await asyncio.gather(*(one(node) for node in nodes))
    return {instance_id: look for instance_id, look in looks if look is not None and look.is_open}


async def overview(client: Client, cluster: str) -> tuple[Overview | None, str]:
    """Ask Cluster for its books; without them, why not."""
    handle = client.get_workflow_handle(cluster_id(cluster))
    try:
        books: Overview = await handle.query("overview", result_type=Overview, rpc_timeout=QUERY_TIMEOUT)
        return books, ""
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None, f"{cluster_id(cluster)} does not run; start it: hotspare init"
        return None, f"{cluster_id(cluster)} does not answer ({error.message}); is a worker running? start one: hotspare worker"
    except WorkflowQueryFailedError as error:
        return None, f"{cluster_id(cluster)} cannot tell: {error}"
