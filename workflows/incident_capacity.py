"""The steps of an incident about EC2's capacity: what a stop would give up, and the wait of a stopped node to start."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.capacity import CapacityActivities, LookAtSlot, StartNode
    from activities.ec2 import Disrupted
    from activities.errors import NoCapacity
    from checks.model import Action
    from workflows import options
    from workflows.decisions.capacity import slot_in_words
    from workflows.decisions.facts import Step
    from workflows.failures import cause_of, kind_of
    from workflows.incident import Incident
    from workflows.incident_repairs import came_up


async def look_at_slot(incident: Incident, step: Step) -> None:
    """See what a stop would give up. What cannot be read is unknown, and a person is asked."""
    slot = await workflow.execute_activity_method(
        CapacityActivities.look_at_slot,
        LookAtSlot(cluster=incident.cluster, node=incident.node),
        summary=f"the capacity that {incident.node.name} runs in",
        **options.LOOK_UP,
    )
    incident.learn(slot=slot, slot_at=workflow.now())
    incident.tell("slot", slot_in_words(slot))


async def await_capacity(incident: Incident, step: Step) -> None:
    """Wait a while, then try to start the stopped node again. A word, or what the job says, ends the wait."""
    incident.view.attributes(Phase="awaiting capacity")
    try:
        await workflow.wait_condition(
            lambda: bool(incident.interrupted() or incident.failed_burn_in or incident.talk.has_strays()),
            timeout=timedelta(seconds=step.pause_s),
            timeout_summary=f"{incident.node.name} waits for capacity: {incident.known.no_capacity[:150]}",
        )
    except TimeoutError:
        await _try(incident, step)


async def _try(incident: Incident, step: Step) -> None:
    request = StartNode(node=incident.node, token=incident.tokens.next(), quarantined_by=incident.known.incident)
    try:
        started = await workflow.execute_activity_method(
            CapacityActivities.start_node, request, summary=f"start {incident.node.name}", **options.DISRUPT
        )
    except ActivityError as error:
        if kind_of(error) != NoCapacity.__name__:
            raise
        incident.learn(no_capacity=cause_of(error))
        return
    incident.learn(no_capacity="", no_capacity_since=None)
    said = f"start of {incident.node.name}: {'done now' if started.made_now else 'it runs already'}"
    await came_up(incident, Action.POWER_CYCLE, step, Disrupted(made_now=started.made_now, said=said))
