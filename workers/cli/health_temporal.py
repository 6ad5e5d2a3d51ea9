"""What `doctor` looks at in Temporal: connection, retention, search attributes, workers on every queue, Cluster, the sweep."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.names import QUEUE_WORKFLOWS, cluster_id, sweep_schedule_id
from checks.model import Verdict
from workers.attributes import missing_attributes
from workers.cli.health import Line
from workers.cli.health_open import check_open
from workers.cli.looking import look_at
from workers.connection import RPC_TIMEOUT, TemporalAway
from workers.settings import Settings
from workers.wedged import find_wedged
from workers.worker import QUEUES

LEAST_RETENTION = timedelta(days=1)
"""How long closed workflows should be kept. Hotspare default: what has to last longer is in host memory."""


async def check_temporal(settings: Settings, client: Client) -> list[Line]:
    """All that is asked of a server that answers."""
    missing = await missing_attributes(client)
    attributes = (
        Line("search attributes", Verdict.WARN, "; ".join(missing), "hotspare init registers them; healing works without")
        if missing
        else Line("search attributes", Verdict.OK, "all registered")
    )
    return [
        Line("Temporal", Verdict.OK, f"namespace {client.namespace} at {client.service_client.config.target_host}"),
        await check_open(client),
        await _retention(client),
        attributes,
        await _workers(client),
        await _cluster(settings, client),
        await _stuck(settings, client),
        await _sweep(settings, client),
    ]


async def _workers(client: Client) -> Line:
    missing = []
    for queue in (queue for queues in QUEUES.values() for queue in queues):
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if queue == QUEUE_WORKFLOWS else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        request = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind)
        try:
            answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            return Line("workers", Verdict.UNKNOWN, f"the server does not tell who serves {queue}: {error.message}", "try again")
        if not answer.pollers:
            missing.append(queue)
    if missing:
        return Line(
            "workers", Verdict.CRITICAL, f"no worker serves {', '.join(missing)}", "start one: hotspare worker (or hotspare run)"
        )
    return Line("workers", Verdict.OK, "every task queue is served")


async def _retention(client: Client) -> Line:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        answer = await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        how = f"look: temporal operator namespace describe {client.namespace}"
        return Line("retention", Verdict.UNKNOWN, f"the server does not tell: {error.message}", how)
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    days = kept.total_seconds() / 86400
    text = f"closed workflows are kept for {days:.2g} {'day' if days == 1 else 'days'}"
    if kept < LEAST_RETENTION:
        how = f"temporal operator namespace update --retention {LEAST_RETENTION.days * 3}d {client.namespace}"
        return Line("retention", Verdict.WARN, f"{text}: incidents are gone before a person has read them", how)
    return Line("retention", Verdict.OK, text)


async def _cluster(settings: Settings, client: Client) -> Line:
    look = await look_at(client, cluster_id(settings.name), with_story=False)
    if look is None or not look.is_open:
        return Line("Cluster", Verdict.CRITICAL, f"{cluster_id(settings.name)} does not run", "start it: hotspare init")
    return Line("Cluster", Verdict.OK, f"{cluster_id(settings.name)} runs")


async def _stuck(settings: Settings, client: Client) -> Line:
    try:
        found = await find_wedged(client, settings.name, settings.worker.wedged_attempts)
    except TemporalAway as error:
        return Line("workflows", Verdict.UNKNOWN, str(error), "try again")
    if found:
        which = ", ".join(one.workflow_id for one in found)
        return Line(
            "workflows", Verdict.CRITICAL, f"stuck on an error in Hotspare's own code: {which}", "see why: hotspare unwedge"
        )
    return Line("workflows", Verdict.OK, "none is stuck")


async def _sweep(settings: Settings, client: Client) -> Line:
    try:
        described = await client.get_schedule_handle(sweep_schedule_id(settings.name)).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return Line("sweep", Verdict.WARN, "no sweep is scheduled", "schedule it: hotspare init")
        return Line("sweep", Verdict.UNKNOWN, f"the server does not tell: {error.message}", "try again")
    if described.schedule.state.paused:
        note = described.schedule.state.note
        return Line(
            "sweep", Verdict.WARN, f"paused{f': {note}' if note else ''}", f"temporal schedule toggle --unpause -s {described.id}"
        )
    return Line("sweep", Verdict.OK, f"every {settings.sweep.interval_s:g} s")
