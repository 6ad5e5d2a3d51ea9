"""The end of an incident that was cancelled: what is ours and safe to undo is undone.

Each part is tried whatever became of the others. What could not be undone is a person's: it is paged, and the incident ends.
"""

from __future__ import annotations

from collections.abc import Awaitable

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from workflows import incident_closing as closing
    from workflows import incident_steps as steps
    from workflows.decisions.cancelling import cancel_plan
    from workflows.decisions.facts import Step, StepKind
    from workflows.failures import cause_of
    from workflows.incident import Incident
    from workflows.incident_people import page, pages_are_out


async def stand_down(incident: Incident) -> None:
    """Undo, remember, and say what is left. A node that has not passed a test stays quarantined for a person."""
    plan = cancel_plan(incident.known)
    incident.hear_cancel(workflow.cancellation_reason() or "")
    left: list[str] = []
    await _part(left, "what was asked of Cluster is not withdrawn", incident.talk.withdraw_all())
    if plan.give_up_job:
        step = Step(kind=StepKind.GIVE_UP_NODE, because=["the incident was cancelled"])
        await _part(left, f"the recovery of {incident.known.job} was not told", steps.give_up_node(incident, step))
    if plan.lift_quarantine:
        await _part(left, "the quarantine was not lifted", steps.lift_quarantine(incident))
    kept = plan.lift_quarantine and incident.known.quarantined
    node = "the node stays quarantined, for a person" if kept else plan.node
    end = Step(kind=StepKind.CLOSE, outcome="cancelled", because=["cancelled by a person", node])
    await closing.tell_end(incident, end)
    await _part(left, "what Cluster has granted was not given back", closing.give_all_back(incident))
    await _part(left, "host memory does not know of this incident", closing.remember(incident, end))
    if left:
        await page(incident, f"cancelled, but not all was undone: {'; '.join(left)}", "cancelled, not all undone")
    await pages_are_out(incident)


async def _part(left: list[str], otherwise: str, undo: Awaitable[object]) -> None:
    try:
        await undo
    except ActivityError as error:
        left.append(f"{otherwise} ({cause_of(error)})")
