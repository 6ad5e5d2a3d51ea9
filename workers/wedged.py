"""Finds workflows that are stuck on their own code, and sets them going again after the mend.

An error in workflow code ends no workflow: its task fails and is tried again for ever, while nothing is done for the node.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest, ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities import names
from workers.connection import RPC_TIMEOUT, TemporalAway

OUR_TYPES = (
    names.WORKFLOW_REMEDIATE_NODE,
    names.WORKFLOW_RECOVER_JOB,
    names.WORKFLOW_BURN_IN,
    names.WORKFLOW_REPLACE_NODE,
    names.WORKFLOW_CLUSTER,
    names.WORKFLOW_SWEEP,
    names.WORKFLOW_STORM,
    names.WORKFLOW_RECONCILE,
    names.WORKFLOW_QUALIFY_SPARE,
    names.WORKFLOW_PROVISION_SPARE,
)
"""Types of the workflows that are looked at."""

SCHEDULED = ("sweep", "reconcile")
"""Kinds of workflow that a Schedule starts."""

_STARTED_AT = re.compile(r"-\d{4}-\d\d-\d\dT[0-9:.]+Z$")

AT_ONCE = 16
"""Workflows described side by side. Hotspare default: 1,000 open incidents are looked at within seconds."""

PAGE_OF_EVENTS = 50
"""Newest events that are read at a time in the search for the failure, which is nearly always among the last ten."""

WORDS_LIMIT = 400
"""Characters of a failure that are shown. Hotspare default: what fits into a page on a telephone."""

FAILED, TIMED_OUT = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT
COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
NON_DETERMINISM = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR


@dataclass(frozen=True)
class Wedged:
    """A workflow whose task fails again and again: since when, how often it was tried, and why it failed."""

    workflow_id: str
    run_id: str
    workflow_type: str
    attempts: int
    since: datetime | None
    cause: str
    says: str
    other_code: bool = False

    @property
    def node(self) -> str:
        """Instance id of the node that it is about, empty for the cluster's and a job's workflows."""
        kind, _, rest = self.workflow_id.partition("/")
        return rest.rpartition("/")[2] if kind in ("incident", "replace") else ""


@dataclass(frozen=True)
class Plan:
    """How a stuck workflow is set going: from which event it goes on, and what it will order once more.

    Everything that is ordered again carries the token that it had, so an effect that was made is seen and not made again.
    `recovers` is for the keeper of the books: it begins anew and asks each holder what it holds, because a grant that was sent
    must not be judged a second time.
    """

    wedged: Wedged
    event_id: int
    again: tuple[str, ...] = ()
    recovers: bool = False

    def words(self) -> str:
        """Say what will be done."""
        if self.recovers:
            return "end it and start it anew: it grants nothing until every holder has said what it holds"
        told = f"; ordered once more, under their old tokens: {', '.join(self.again)}" if self.again else "; nothing is repeated"
        return f"go on from event {self.event_id} of its history{told}"


async def find_wedged(client: Client, cluster: str, attempts: int) -> list[Wedged]:
    """Return the open workflows of this cluster whose task has been tried at least so many times. Raises TemporalAway."""
    types = ", ".join(f"'{name}'" for name in OUR_TYPES)
    keeper = names.cluster_id(cluster)
    ids = {keeper}
    try:
        async for one in client.list_workflows(f"ExecutionStatus = 'Running' AND WorkflowType IN ({types})"):
            if is_of(cluster, one.id):
                ids.add(one.id)
    except RPCError as error:
        raise TemporalAway(f"Temporal does not list open workflows: {error.message}; try again") from error
    gate = asyncio.Semaphore(AT_ONCE)

    async def one_of(workflow_id: str) -> Wedged | None:
        async with gate:
            return await look_for_wedge(client, workflow_id, attempts)

    found = await asyncio.gather(*(one_of(workflow_id) for workflow_id in sorted(ids)))
    return [one for one in found if one is not None]


def is_of(cluster: str, workflow_id: str) -> bool:
    """Whether a workflow is this cluster's, by its id. To the id of one that a Schedule starts the server adds the time."""
    kind, _, rest = workflow_id.partition("/")
    named = rest.partition("/")[0]
    if kind in SCHEDULED:
        named = _STARTED_AT.sub("", named)
    return named in ("", cluster)


async def look_for_wedge(client: Client, workflow_id: str, attempts: int) -> Wedged | None:
    """Return the workflow if it is open and stuck. Raises TemporalAway."""
    described = await _described(client, workflow_id)
    if described is None or described.status is not WorkflowExecutionStatus.RUNNING:
        return None
    raw = described.raw_description
    if not raw.HasField("pending_workflow_task") or raw.pending_workflow_task.attempt < attempts:
        return None
    task = raw.pending_workflow_task
    failure = await _last_failure(client, workflow_id, described.run_id)
    cause, says, when = "", "the server does not tell why", None
    if failure is not None:
        cause, says = await _words(client, failure)
        when = failure.event_time.ToDatetime(tzinfo=UTC)
    return Wedged(
        workflow_id=workflow_id,
        run_id=described.run_id,
        workflow_type=described.workflow_type,
        attempts=task.attempt,
        since=when,
        cause=cause,
        says=says[:WORDS_LIMIT],
        other_code=failure is not None and failure.workflow_task_failed_event_attributes.cause == NON_DETERMINISM,
    )


async def plan_for(client: Client, wedged: Wedged, *, from_start: bool = False) -> Plan:
    """Decide from where a stuck workflow goes on: with the failed task itself, where its history fits the code.

    A history that does not fit loses the commands of its last good task, or of all where `from_start` asks for it.
    """
    if wedged.workflow_type == names.WORKFLOW_CLUSTER and (wedged.other_code or from_start):
        return Plan(wedged, 0, recovers=True)
    try:
        history = await client.get_workflow_handle(wedged.workflow_id, run_id=wedged.run_id).fetch_history()
    except RPCError as error:
        raise TemporalAway(f"the history of {wedged.workflow_id} cannot be read: {error.message}; try again") from error
    good = [event.event_id for event in history.events if event.event_type == COMPLETED]
    bad = [event.event_id for event in history.events if event.event_type in (FAILED, TIMED_OUT)]
    if good and (from_start or wedged.other_code or not bad):
        chosen = good[0] if from_start else good[-1]
        return Plan(wedged, chosen, tuple(_ordered_since(history.events, chosen)))
    if not bad:
        raise TemporalAway(f"the history of {wedged.workflow_id} has no workflow task yet; try again")
    return Plan(wedged, bad[-1])


async def carry_out(client: Client, plan: Plan, reason: str) -> str:
    """Set the workflow going; returns the id of its new run, empty for one that is started by whoever needs it next."""
    wedged = plan.wedged
    try:
        if plan.recovers:
            handle = client.get_workflow_handle(wedged.workflow_id, run_id=wedged.run_id)
            await handle.terminate(reason=reason, rpc_timeout=RPC_TIMEOUT)
            return ""
        answer = await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=wedged.workflow_id, run_id=wedged.run_id),
                reason=reason,
                workflow_task_finish_event_id=plan.event_id,
                request_id=str(uuid.uuid4()),
                identity=client.identity,
            ),
            timeout=RPC_TIMEOUT,
        )
    except RPCError as error:
        raise TemporalAway(f"{wedged.workflow_id} was not set going: {error.message}; try again") from error
    return answer.run_id


async def _described(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    try:
        return await client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise TemporalAway(f"Temporal does not tell about {workflow_id}: {error.message}; try again") from error


async def _last_failure(client: Client, workflow_id: str, run_id: str) -> HistoryEvent | None:
    """The newest event of a failed task, looked for from the end; none where the last good task is younger."""
    token = b""
    while True:
        try:
            page = await client.workflow_service.get_workflow_execution_history_reverse(
                GetWorkflowExecutionHistoryReverseRequest(
                    namespace=client.namespace,
                    execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
                    maximum_page_size=PAGE_OF_EVENTS,
                    next_page_token=token,
                ),
                timeout=RPC_TIMEOUT,
            )
        except RPCError as error:
            raise TemporalAway(f"the history of {workflow_id} cannot be read: {error.message}; try again") from error
        for event in page.history.events:
            if event.event_type in (FAILED, TIMED_OUT):
                return event
            if event.event_type == COMPLETED:
                return None
        token = page.next_page_token
        if not token:
            return None


async def _words(client: Client, event: HistoryEvent) -> tuple[str, str]:
    """Cause and message of a failed task, decrypted where they are encrypted."""
    if event.event_type == TIMED_OUT:
        return "TIMED_OUT", "the worker took the task and did not answer in time: it hangs in workflow code, or it dies there"
    failed = event.workflow_task_failed_event_attributes
    cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
    try:
        says = str(await client.data_converter.decode_failure(failed.failure))
    except Exception:  # other keys than those it was encrypted with: the cause is plain
        says = failed.failure.message
    return cause, says


def _ordered_since(events: Sequence[HistoryEvent], event_id: int) -> list[str]:
    """Name what was ordered by the workflow task that ended with this event, and by later ones."""
    ordered = []
    for event in events:
        activity = event.activity_task_scheduled_event_attributes
        child = event.start_child_workflow_execution_initiated_event_attributes
        if event.HasField("activity_task_scheduled_event_attributes") and activity.workflow_task_completed_event_id >= event_id:
            ordered.append(activity.activity_type.name)
        if (
            event.HasField("start_child_workflow_execution_initiated_event_attributes")
            and child.workflow_task_completed_event_id >= event_id
        ):
            ordered.append(child.workflow_id)
    return ordered
