"""How an incident begins: its input read, its node identified, a report under a wrong id handed over."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.briefing import Briefing, BriefingActivities
    from activities.incidents import IncidentActivities, OpenIncident, StartIncident
    from activities.inventory import ResolveNode
    from activities.node import Report
    from workflows import options
    from workflows.decide import bearings
    from workflows.failures import cause_of
    from workflows.incident import Incident
    from workflows.messages import IncidentReport


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
    try:
        briefing = await briefing_of(incident.cluster, start.node)
    except ActivityError as error:
        if workflow.info().workflow_id.startswith(names.unresolved_id(incident.cluster, "")):
            return IncidentReport(outcome="observed", node=start.node, story=[f"no node of ours: {cause_of(error)}"])
        raise ApplicationError(cause_of(error), type="UnknownNode", non_retryable=True) from error
    right_id = names.incident_id(incident.cluster, briefing.node.instance_id)
    if workflow.info().workflow_id != right_id:
        return await _hand_over(incident, right_id, briefing.node.instance_id)
    incident.begin(briefing.node, briefing.record)
    incident.view.attributes(Cluster=incident.cluster, Node=briefing.node.name, Phase="opened")
    return None


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
