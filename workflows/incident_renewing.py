"""The step of an incident that has another instance launched in the place of its retired node."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from checks.model import Action
    from workflows.decisions.facts import Step
    from workflows.decisions.gates import class_of
    from workflows.decisions.owners import OWNER_LAUNCHES, OWNERS
    from workflows.incident import Incident
    from workflows.messages import Provisioned, StartProvision


async def renew(incident: Incident, step: Step) -> None:
    """Start the launch. It goes on by itself when the incident is closed, and tells people how it ended."""
    node = incident.node
    workflow_id = names.provision_id(incident.cluster, node.instance_id)
    start = StartProvision(
        instance_type=node.instance_type,
        cluster=incident.cluster,
        zone=node.zone,
        in_place_of=node.instance_id,
        incident=incident.known.incident,
        approved=Action.REPLACE_NODE in incident.known.approved,
        reason=step.because[0],
        fault_class=class_of(incident.known),
        since=incident.opened_at,
        node=node,
        owned_by=incident.known.owned_by,
    )
    try:
        await workflow.start_child_workflow(
            names.WORKFLOW_PROVISION_SPARE,
            start,
            id=workflow_id,
            parent_close_policy=ParentClosePolicy.ABANDON,
            result_type=Provisioned,
            static_summary=f"another instance in place of {node.name}",
        )
        by_owner = OWNERS[incident.known.owned_by].give_up in OWNER_LAUNCHES
        said = f"{workflow_id} launches another, and terminates {node.name} for it"
        if by_owner:
            said = f"{workflow_id} gives {node.name} back to its {incident.known.owned_by.value}, which launches another"
    except WorkflowAlreadyStartedError:
        said = f"{workflow_id} is at it already"
    incident.learn(renewed=workflow_id)
    incident.tell("renewed", said)
