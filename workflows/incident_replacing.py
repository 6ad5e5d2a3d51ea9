"""The step of an incident that gets a spare in place of its node and gives it to the job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.incidents import NodeIn
    from workflows.cluster_messages import AskKind, SayHolding
    from workflows.decisions.facts import Spare, Step
    from workflows.failures import cause_of
    from workflows.incident import Incident
    from workflows.incident_gate import may_disrupt
    from workflows.incident_steps import answer_job
    from workflows.messages import Replacement, StartReplacement
    from workflows.post import post


WAITED = 0.5
"""Share of the time for a replacement in which a spare is waited for. Hotspare default: one that comes late is still tested."""


async def replace(incident: Incident, step: Step) -> None:
    """Get a spare in place of the node, and give it to the job."""
    if not await may_disrupt(incident, "the replacement"):
        return
    outcome = await _replacement(incident, step)
    await incident.talk.give_back(AskKind.REPAIR_SLOT)
    if not outcome.ready or outcome.spare is None:
        incident.learn(spare=Spare.NONE_FREE, spare_reason=outcome.reason)
        incident.tell("no spare", outcome.reason)
        return
    incident.replacement = outcome
    incident.learn(spare=Spare.READY, spare_name=outcome.spare.name, spare_reason=outcome.reason)
    incident.tell("replaced", f"{outcome.spare.name} stands in for {incident.node.name}: {outcome.reason}")
    if incident.known.job_controller:
        return  # it is proven first: whoever starts the job does so at once
    await answer_job(
        incident,
        NodeIn(
            incident=incident.known.incident,
            instance_id=outcome.spare.instance_id,
            node_name=outcome.spare.name,
            replaces=incident.node.instance_id,
        ),
    )


async def _replacement(incident: Incident, step: Step) -> Replacement:
    start = StartReplacement(
        node=incident.node.instance_id,
        cluster=incident.cluster,
        incident=incident.known.incident,
        job=incident.known.job,
        reason=step.because[0],
        unwanted=incident.unwanted_spares,
        supplies=bool(incident.known.job_controller),
        impact=incident.known.gpus_waiting,
        wait_s=step.deadline_s * WAITED if step.waits else 0.0,
    )
    replace_id = names.replace_id(incident.cluster, incident.node.instance_id)
    await _earlier_replacement_ends(incident, step)
    incident.replacement = None
    try:
        child = await workflow.start_child_workflow(
            names.WORKFLOW_REPLACE_NODE,
            start,
            id=replace_id,
            parent_close_policy=ParentClosePolicy.ABANDON,
            result_type=Replacement,
            static_summary=f"a spare in place of {incident.node.name}",
        )
    except WorkflowAlreadyStartedError:
        return await _adopted(incident, step, replace_id)
    incident.replace_child = child
    if not await _told_of_replacement(incident, step, child.done):
        child.cancel()
        return _no_spare(incident, step)
    if incident.replacement is not None:
        return incident.replacement
    try:
        ended: Replacement = await child
        return ended
    except ChildWorkflowError as error:
        return Replacement(replaced=incident.node.instance_id, reason=cause_of(error))


async def _adopted(incident: Incident, step: Step, replace_id: str) -> Replacement:
    """A replacement of this node runs already, begun by an earlier run of this incident: hear from it, start no other."""
    asked = SayHolding(cluster=incident.cluster)
    told = await post(replace_id, "say_ready", asked) and await _told_of_replacement(incident, step, lambda: False)
    return incident.replacement if told and incident.replacement is not None else _no_spare(incident, step)


async def _told_of_replacement(incident: Incident, step: Step, ended: Callable[[], bool]) -> bool:
    try:
        await workflow.wait_condition(
            lambda: incident.replacement is not None or ended(),
            timeout=timedelta(seconds=step.deadline_s),
            timeout_summary=f"a spare for {incident.node.name} passes its checks",
        )
    except TimeoutError:
        return False
    return True


def _no_spare(incident: Incident, step: Step) -> Replacement:
    return Replacement(replaced=incident.node.instance_id, reason=f"no spare was ready within {step.deadline_s / 60:.0f} minutes")


async def _earlier_replacement_ends(incident: Incident, step: Step) -> None:
    """Wait until a replacement that was cancelled has undone itself: the id is free only then."""
    child = incident.replace_child
    if child is None or child.done():
        return
    try:
        await workflow.wait_condition(
            child.done, timeout=timedelta(seconds=step.deadline_s), timeout_summary="the earlier replacement is undone"
        )
    except TimeoutError:
        incident.tell("replacement", "the earlier replacement has not ended")
