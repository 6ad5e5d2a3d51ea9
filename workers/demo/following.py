"""Follows what Hotspare does while it does it: new lines of the stories that its workflows tell, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities import names
from workflows.messages import IncidentReport
from workflows.operator_view import Line

RPC = timedelta(seconds=3)
"""One question to the server. Answers take milliseconds; a worker that is busy answers at the next look."""


BURN_IN = "burn-in"
"""Who tells the rounds of a burn-in."""


@dataclass(frozen=True)
class Told:
    """A line that a workflow told, with the name of the node or job that it is about, and whether the node's incident told it."""

    who: str
    line: Line
    by_incident: bool = True


@dataclass
class _Followed:
    workflow_id: str
    who: str
    is_incident: bool
    run_id: str = ""
    lines: int = 0
    open: bool = False
    report: IncidentReport | None = None
    earlier: IncidentReport | None = None

    @property
    def told(self) -> IncidentReport | None:
        """The node's result so far."""
        return that_counts(self.earlier, self.report)


def that_counts(earlier: IncidentReport | None, latest: IncidentReport | None) -> IncidentReport | None:
    """Return a node's result. A sweep that was under way may report again what was healed meanwhile; nothing is found then."""
    idle = latest is None or latest.outcome == "nothing found"
    return earlier if idle and earlier is not None else latest


class Follower:
    """Looks at the incident of each node and at the recovery of the job that began at or after `since`, and at their children.

    It asks for the fixed workflow ids, and the parents for their children, so it needs no visibility store.
    """

    def __init__(self, client: Client, cluster: str, nodes: dict[str, str], job: str, since: datetime) -> None:
        self._client = client
        self._since = since
        followed = [_Followed(names.incident_id(cluster, key), name, True) for key, name in sorted(nodes.items())]
        followed.append(_Followed(names.job_id(cluster, job), job, False))
        self._followed = {one.workflow_id: one for one in followed}

    async def look(self) -> list[Told]:
        """Return what was told since the last look, oldest first."""
        told = [line for followed in list(self._followed.values()) for line in await self._look_at(followed)]
        return sorted(told, key=lambda one: one.line.at)

    @property
    def reports(self) -> dict[str, IncidentReport]:
        """The results of the incidents that have ended, by node."""
        return {followed.who: followed.told for followed in self._followed.values() if followed.told is not None}

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the workflows that have begun and not ended."""
        return tuple(followed.workflow_id for followed in self._followed.values() if followed.open)

    async def _look_at(self, followed: _Followed) -> list[Told]:
        description = await self._describe(followed.workflow_id)
        if description is None or description.start_time < self._since:
            return []
        last: list[Told] = []
        if description.run_id != followed.run_id:
            last = await self._leave(followed)
            followed.run_id, followed.lines, followed.report = description.run_id, 0, None
        followed.open = description.status is WorkflowExecutionStatus.RUNNING
        for child in description.raw_description.pending_children:
            who = BURN_IN if child.workflow_type_name == names.WORKFLOW_BURN_IN else followed.who
            self._followed.setdefault(child.workflow_id, _Followed(child.workflow_id, who, False))
        new = await self._new_lines(followed)
        await self._read_report(followed, description)
        return last + new

    async def _leave(self, followed: _Followed) -> list[Told]:
        """Read to its end a run in whose place another has begun, perhaps since the last look: that is when it ended."""
        if not followed.run_id:
            return []
        new = await self._new_lines(followed)
        await self._read_report(followed, await self._describe(followed.workflow_id, followed.run_id))
        followed.earlier = followed.told
        return new

    async def _read_report(self, followed: _Followed, description: WorkflowExecutionDescription | None) -> None:
        ended = description is not None and description.status is WorkflowExecutionStatus.COMPLETED
        if followed.is_incident and ended and followed.report is None:
            handle = self._client.get_workflow_handle(followed.workflow_id, run_id=followed.run_id, result_type=IncidentReport)
            followed.report = await handle.result(rpc_timeout=RPC)

    async def _describe(self, workflow_id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(workflow_id, run_id=run_id).describe(rpc_timeout=RPC)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _new_lines(self, followed: _Followed) -> list[Told]:
        handle = self._client.get_workflow_handle(followed.workflow_id, run_id=followed.run_id)
        try:
            lines: list[Line] = await handle.query("story", result_type=list[Line], rpc_timeout=RPC)
        except (WorkflowQueryFailedError, RPCError):
            return []  # no worker has taken it up yet, or it is busy: the same lines come with the next look
        new, followed.lines = lines[followed.lines :], len(lines)
        return [Told(followed.who, line, followed.is_incident) for line in new]
