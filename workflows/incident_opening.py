"""How an incident begins: its input read, its node identified, a report under a wrong id handed over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import Briefing, BriefingActivities
    from activities.errors import BadInput, UnknownNode
    from activities.incidents import IncidentActivities, OpenIncident, StartIncident
    from activities.inventory import ResolveNode
    from activities.node import Report
    from activities.notify import NotifyActivities, Page
    from workflows import options
    from workflows.decide import bearings
    from workflows.failures import cause_of, kind_of
    from workflows.incident import Incident
    from workflows.messages import IncidentReport

LOOK_UP_AGAIN = timedelta(minutes=5)
"""Between looks for a node while inventory or host memory is away, each of them patient itself. Hotspare default."""


def read_start(given: Any) -> tuple[StartIncident, str]:
    """Read the input of a start, which a person may have typed; returns what is wrong with it too.

    Taken as it comes, because an input that cannot be decoded would fail task after task under the node's own id, and reports of
    machines would join what can never answer.
    """
    try:
        return StartIncident.model_validate(given), ""
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(str(part) for part in one['loc']) or 'input'}: {one['msg']}" for one in error.errors())
        return StartIncident(node=""), f'the input is one JSON object such as {{"node": "node-2", "xid": 79}}; {problems}'


def first_report(start: StartIncident) -> Report:
    """Return the report that came with the start. A start by hand may be just a node, or a node and an XID."""
    if start.report is not None:
        return start.report
    return Report(source="hand", xid=start.xid, what=start.what)


async def identify(incident: Incident, start: StartIncident) -> IncidentReport | None:
    """Find the node behind the alias. A run under another id hands its report over and ends, saying where."""
    known = await bearings()
    incident.cluster = start.cluster or known.cluster
    incident.view.attributes_on = known.attributes
    incident.ui_url = known.ui_url
    incident.talk.serve(incident.cluster)
    if workflow.info().workflow_id.startswith(names.unresolved_id(incident.cluster, names.TEST_EVENT)):
        return IncidentReport(
            outcome="observed", node=start.node, story=["a test event: it came through, and nothing was looked at"]
        )
    try:
        briefing = await _found(incident, start.node)
    except ActivityError as error:
        if workflow.info().workflow_id.startswith(names.unresolved_id(incident.cluster, "")):
            return IncidentReport(outcome="observed", node=start.node, story=[f"no node of ours: {cause_of(error)}"])
        raise ApplicationError(cause_of(error), type="UnknownNode", non_retryable=True) from error
    right_id = names.incident_id(incident.cluster, briefing.node.instance_id)
    if workflow.info().workflow_id != right_id:
        return await _hand_over(incident, right_id, briefing.node.instance_id)
    incident.begin(briefing)
    incident.view.attributes(Cluster=incident.cluster, Node=briefing.node.name, Phase="opened")
    return None


async def _found(incident: Incident, alias: str) -> Briefing:
    """Find the node. Where inventory or host memory cannot be asked, a person is told, and they are asked until they answer."""
    told = False
    while True:
        try:
            return await briefing_of(incident.cluster, alias)
        except ActivityError as error:
            words = cause_of(error)
            if kind_of(error) in (UnknownNode.__name__, BadInput.__name__):
                raise
        if not told:
            incident.tell("asks a person", f"{alias} cannot be looked up: {words}")
            await _page_not_looked_up(incident, alias, words)
        told = True
        await workflow.sleep(LOOK_UP_AGAIN, summary=f"before {alias} is looked up again")


async def _page_not_looked_up(incident: Incident, alias: str, words: str) -> None:
    page = Page(
        key=f"{incident.tokens.run}/not looked up",
        incident=workflow.info().workflow_id,
        node=alias,
        title=f"{alias}: reported, and cannot be looked up",
        why=[f"inventory or host memory does not answer: {words}", "nothing was done; it is looked up again every few minutes"],
        next_commands=["hotspare doctor"],
    )
    try:
        await workflow.execute_activity_method(NotifyActivities.page, page, summary="page: not looked up", **options.PAGE)
    except ActivityError as error:
        incident.tell("page failed", cause_of(error))


async def briefing_of(cluster: str, alias: str) -> Briefing:
    """Look up a node and what is remembered of it."""
    return await workflow.execute_activity_method(
        BriefingActivities.brief, ResolveNode(cluster=cluster, alias=alias), summary=f"who is {alias}", **options.LOOK_UP
    )


async def _hand_over(incident: Incident, right_id: str, instance_id: str) -> IncidentReport:
    for report in incident.unread:
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=incident.cluster, instance_id=instance_id, report=report),
            summary=f"hand the report over to {right_id}",
            **options.MESSENGER,
        )
    return IncidentReport(outcome="handed over", node=instance_id, story=[f"the incident of this node is {right_id}"])
