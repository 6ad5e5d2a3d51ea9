"""The Temporal client as activities and the intake use it: signal-with-start, so that a report is durable with no worker up.

Workflows are named by their type names, because this layer does not know workflow code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities import names
from activities.errors import ProviderBusy
from activities.incidents import Joined, JoinJob, JoinStorm, StartIncident
from activities.node import Report


class TemporalGateway:
    """`WorkflowGateway` over a Temporal client with the pydantic converter."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
        """Report a fault to the node's incident, starting it when none is open. The report is in the start input too."""
        report = start.report or Report(xid=start.xid, what=start.what)
        summary = f"{start.node}: {report.what or (f'XID {report.xid}' if report.xid is not None else 'reported')}"
        return await self._start_or_signal(
            names.WORKFLOW_REMEDIATE_NODE,
            start.model_copy(update={"report": report}),
            names.incident_id(start.cluster, instance_id),
            ("report_fault", report),
            summary,
        )

    async def join_job(self, request: JoinJob) -> Joined:
        """Tell a job's recovery that a node is out, starting the recovery when none is open."""
        start = {"cluster": request.cluster, "job": request.job, "node_out": request.node_out.model_dump(mode="json")}
        return await self._start_or_signal(
            names.WORKFLOW_RECOVER_JOB,
            start,
            names.job_id(request.cluster, request.job),
            ("node_out", request.node_out),
            f"{request.job}: {request.node_out.node_name} is out: {request.node_out.reason}",
        )

    async def join_storm(self, request: JoinStorm) -> Joined:
        """Tell a storm that a node belongs to it, starting the storm when it is not open."""
        return await self._start_or_signal(
            names.WORKFLOW_STORM,
            {"cluster": request.cluster, "member": request.member.model_dump(mode="json")},
            request.storm_id,
            ("member", request.member),
            request.member.reason,
        )

    async def ensure_cluster(self, cluster: str) -> Joined:
        """Start Cluster when it does not run."""
        workflow_id = names.cluster_id(cluster)
        with _server_confirms(workflow_id):
            await self._client.start_workflow(
                names.WORKFLOW_CLUSTER,
                {"cluster": cluster},
                id=workflow_id,
                task_queue=names.QUEUE_WORKFLOWS,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"slots, leases and freezes of {cluster}",
            )
        return Joined(workflow_id=workflow_id)

    async def signal_cluster(self, cluster: str, signal: str, payload: dict[str, Any]) -> Joined:
        """Signal Cluster, starting it when it does not run."""
        return await self._start_or_signal(
            names.WORKFLOW_CLUSTER,
            {"cluster": cluster},
            names.cluster_id(cluster),
            (signal, payload),
            f"slots, leases and freezes of {cluster}",
        )

    async def signal(self, workflow_id: str, signal: str, payload: dict[str, Any]) -> bool:
        """Signal a running workflow; False when there is none under this id."""
        with _server_confirms(workflow_id):
            try:
                await self._client.get_workflow_handle(workflow_id).signal(signal, payload)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False
        return True

    async def open_among(self, workflow_ids: list[str]) -> list[str]:
        """Return those that run, by describing each: visibility lags, a description does not."""
        return [workflow_id for workflow_id in workflow_ids if await self._is_open(workflow_id)]

    async def _is_open(self, workflow_id: str) -> bool:
        with _server_confirms(workflow_id):
            try:
                seen = await self._client.get_workflow_handle(workflow_id).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False
        return seen.status is WorkflowExecutionStatus.RUNNING

    async def _start_or_signal(
        self, workflow: str, start: Any, workflow_id: str, signal: tuple[str, Any], summary: str
    ) -> Joined:
        name, argument = signal
        with _server_confirms(workflow_id):
            await self._client.start_workflow(
                workflow,
                start,
                id=workflow_id,
                task_queue=names.QUEUE_WORKFLOWS,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal=name,
                start_signal_args=[argument],
                static_summary=summary[:200],
            )
        return Joined(workflow_id=workflow_id)


@contextmanager
def _server_confirms(workflow_id: str) -> Iterator[None]:
    """What the server did not confirm was not delivered: say so, it may be tried again."""
    try:
        yield
    except RPCError as error:
        raise ProviderBusy(f"Temporal did not confirm {workflow_id}: {error.message}; try again when it answers") from error
    except RuntimeError as error:  # a client that connects at first use says so when nobody answers
        raise ProviderBusy(f"Temporal did not confirm {workflow_id}: {error}; try again when it answers") from error
