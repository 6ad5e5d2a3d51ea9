"""Starting and joining workflows from outside them: the durable door for reports, and the messages between incident and job.

Workflow code cannot signal-with-start, so it asks these activities, which hold the Temporal client.
"""

from __future__ import annotations

from typing import Any, Protocol

from temporalio import activity

from activities import names
from activities.errors import as_application_error
from activities.message import Message
from activities.node import Report


class StartIncident(Message):
    """Input of RemediateNode. Only `node` (any alias) is required, so that a person can start one by hand with plain JSON.

    `report` makes the report durable with the start; `xid` and `what` are a person's way to say what a report would.
    """

    node: str
    cluster: str = ""
    report: Report | None = None
    xid: int | None = None
    what: str = ""


class OpenIncident(Message):
    """Report a fault of a known node: starts its incident, or joins the open one."""

    cluster: str
    instance_id: str
    report: Report


class NodeOut(Message):
    """Incident to job: this node is out (or, with `restart_only`, healthy but the job must restart).

    The incident answers later with exactly one of node_in or node_given_up. `token` tells a second time out from a repeated
    message.
    """

    incident: str
    instance_id: str
    node_name: str
    reason: str
    restart_only: bool = False
    token: str = ""


class NodeIn(Message):
    """Incident to job: `instance_id` may be used; it stands for `replaces` (the same id when the node itself was repaired).

    `proof` says by what it was proven, where the job's controller starts it without a burn-in of the node set.
    """

    incident: str
    instance_id: str
    node_name: str
    replaces: str
    proof: str = ""


class NodeGivenUp(Message):
    """Incident to job: nothing will come in place of this node without a person."""

    incident: str
    instance_id: str
    reason: str


class JobResumed(Message):
    """Job to incident: how the recovery ended. `resumed` False means that a person owns the job now."""

    job: str
    resumed: bool
    nodes: list[str] = []
    step: int | None = None
    lost_steps: int | None = None
    lost_minutes: float | None = None
    reason: str = ""


class FailedBurnIn(Message):
    """Job to incident: the node that the incident supplied did not pass the burn-in."""

    job: str
    instance_id: str
    evidence: str


class JoinJob(Message):
    """Start the recovery of a job, or join the one that runs."""

    cluster: str
    job: str
    node_out: NodeOut


class StormMember(Message):
    """Incident to storm: this node shows the event too. `reason` is why Cluster takes the fault for part of it."""

    incident: str
    instance_id: str
    node_name: str
    fault_class: str
    code: int | None = None
    job: str = ""
    reason: str = ""
    token: str = ""


class JoinStorm(Message):
    """Start a storm under its id, or join the one that runs."""

    cluster: str
    storm_id: str
    member: StormMember


class Letter(Message):
    """A signal from one workflow to another. `payload` is the JSON form of the message that the signal takes."""

    workflow_id: str
    signal: str
    payload: dict[str, Any]


class ClusterLetter(Message):
    """A signal to Cluster, which is started when it does not run."""

    cluster: str
    signal: str
    payload: dict[str, Any]


class Delivered(Message):
    """Whether a letter reached a running workflow. False: there is none under that id (any more)."""

    delivered: bool


class Joined(Message):
    """Which workflow took the message. Whether the message started it is not told: no client of Temporal says so for certain."""

    workflow_id: str


class SurveyHolders(Message):
    """Ask which of the fixed workflow ids of these nodes are open."""

    cluster: str
    instance_ids: list[str]


class OpenHolders(Message):
    """The open workflows among them."""

    workflow_ids: list[str] = []


class WorkflowGateway(Protocol):
    """The Temporal client as activities and the intake see it. Raises ProviderBusy when the server does not confirm."""

    async def report_fault(self, start: StartIncident, instance_id: str) -> Joined:
        """Signal-with-start of RemediateNode: returns when the server has the report."""
        ...

    async def join_job(self, request: JoinJob) -> Joined: ...

    async def join_storm(self, request: JoinStorm) -> Joined:
        """Signal-with-start of Storm."""
        ...

    async def ensure_cluster(self, cluster: str) -> Joined:
        """Start Cluster when it does not run."""
        ...

    async def signal(self, workflow_id: str, signal: str, payload: dict[str, Any]) -> bool:
        """Signal a running workflow; returns False when there is none under this id. True only once the server has it."""
        ...

    async def signal_cluster(self, cluster: str, signal: str, payload: dict[str, Any]) -> Joined:
        """Signal-with-start of Cluster."""
        ...

    async def open_among(self, workflow_ids: list[str]) -> list[str]:
        """Return those that are running, by describing each id (never by visibility)."""
        ...


class IncidentActivities:
    """Starting and joining workflows from inside workflows."""

    def __init__(self, gateway: WorkflowGateway) -> None:
        self._gateway = gateway

    @activity.defn
    async def open_incident(self, request: OpenIncident) -> Joined:
        """Report a fault of a known node to its incident."""
        start = StartIncident(node=request.instance_id, cluster=request.cluster, report=request.report)
        with as_application_error():
            return await self._gateway.report_fault(start, request.instance_id)

    @activity.defn
    async def join_job(self, request: JoinJob) -> Joined:
        """Tell a job's recovery that a node is out, starting it when it does not run."""
        with as_application_error():
            return await self._gateway.join_job(request)

    @activity.defn
    async def join_storm(self, request: JoinStorm) -> Joined:
        """Tell a storm that a node belongs to it, starting it when it does not run."""
        with as_application_error():
            return await self._gateway.join_storm(request)

    @activity.defn
    async def post(self, letter: Letter) -> Delivered:
        """Signal another workflow. A repeated letter is told apart by the ids inside it."""
        with as_application_error():
            return Delivered(delivered=await self._gateway.signal(letter.workflow_id, letter.signal, letter.payload))

    @activity.defn
    async def post_to_cluster(self, letter: ClusterLetter) -> Joined:
        """Signal Cluster, starting it when it does not run."""
        with as_application_error():
            return await self._gateway.signal_cluster(letter.cluster, letter.signal, letter.payload)

    @activity.defn
    async def survey_holders(self, request: SurveyHolders) -> OpenHolders:
        """Find which of the nodes' incidents, replacements and tests in the pool are open, by describing each fixed id."""
        fixed = (names.incident_id, names.replace_id, names.qualify_id)
        ids = [id_of(request.cluster, node) for node in request.instance_ids for id_of in fixed]
        with as_application_error():
            return OpenHolders(workflow_ids=await self._gateway.open_among(ids))
