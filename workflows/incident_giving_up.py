"""The step of an incident that gives its node up by a drain, where the cluster replaces what is drained."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.errors import NotOurs
    from activities.giving_up import AwaitGone, DrainForReplacement, GivingUpActivities
    from workflows import options
    from workflows.cluster_messages import AskKind
    from workflows.decisions.facts import Step
    from workflows.failures import cause_of, kind_of
    from workflows.incident import Incident
    from workflows.incident_gate import may_disrupt


async def replace_by_drain(incident: Incident, step: Step) -> None:
    """Drain the node and see its instance gone. A drain that is refused leaves the node quarantined, for a person."""
    if not await may_disrupt(incident, "the drain that has it replaced"):
        return
    try:
        if await _drained(incident):
            await _see_it_gone(incident, step)
    finally:
        await incident.talk.give_back(AskKind.REPAIR_SLOT)


async def _drained(incident: Incident) -> bool:
    node = incident.node
    request = DrainForReplacement(node=node, incident=incident.known.incident, evidence=incident.known.evidence_uri)
    try:
        given = await workflow.execute_activity_method(
            GivingUpActivities.drain_for_replacement,
            request,
            summary=f"drain {node.name}: its cluster replaces it",
            **options.GIVE_UP,
        )
    except ActivityError as error:
        if kind_of(error) == NotOurs.__name__:
            raise  # somebody else's node now: a person sorts it out
        incident.learn(not_drained=f"the drain was refused: {cause_of(error)}")
        incident.tell("not drained", cause_of(error))
        return False
    incident.tell("drained", given.said)
    return True


async def _see_it_gone(incident: Incident, step: Step) -> None:
    """A drain is no replacement until the instance is seen to go."""
    node = incident.node
    try:
        seen = await workflow.execute_activity_method(
            GivingUpActivities.await_gone,
            AwaitGone(node=node, deadline_s=step.deadline_s),
            summary=f"the instance of {node.name} is terminated",
            **options.until_gone(step.deadline_s),
        )
    except ActivityError as error:
        incident.learn(not_drained=f"it was drained and not replaced: {cause_of(error)}")
        incident.tell("not replaced", cause_of(error))
        return
    incident.fate = names.FATE_REPLACED
    incident.strike = True
    tried_in_vain = False if incident.known.disrupted else None
    await incident.talk.give_back(AskKind.NODE_OUT, healed=tried_in_vain)
    incident.learn(settled=True)
    incident.tell("given up", f"{seen.said}; its cluster launches another; what was seen: {incident.known.evidence_uri}")
