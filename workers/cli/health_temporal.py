"""What `doctor` looks at in Temporal: connection, search attributes, workers on every queue, the cluster's keeper, the sweep."""

from __future__ import annotations

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.names import QUEUE_WORKFLOWS, cluster_id, sweep_schedule_id
from checks.model import Verdict
from workers.attributes import missing_attributes
from workers.cli.health import Line
from workers.cli.looking import look_at
from workers.connection import RPC_TIMEOUT, TemporalAway
from workers.settings import Settings
from workers.wedged import find_wedged
from workers.worker import QUEUES


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
        attributes,
        await _workers(client),
        await _keeper(settings, client),
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


async def _keeper(settings: Settings, client: Client) -> Line:
    look = await look_at(client, cluster_id(settings.name), with_story=False)
    if look is None or not look.is_open:
        return Line("keeper", Verdict.CRITICAL, f"{cluster_id(settings.name)} does not run", "start it: hotspare init")
    return Line("keeper", Verdict.OK, f"{cluster_id(settings.name)} runs")


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
