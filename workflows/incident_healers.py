"""The steps of an incident about other healers of its node: they stand back before it restarts, and are let go afterwards."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.healers import HealerActivities, ReleaseHealers, StandBack
    from workflows import options
    from workflows.decisions.facts import Step
    from workflows.failures import cause_of
    from workflows.incident import Incident
    from workflows.incident_people import page


async def stand_back(incident: Incident, step: Step) -> None:
    """Have whoever else repairs the node leave it alone. One that cannot be told leaves no rung that restarts the node."""
    others = incident.known.others.model_copy(update={"asked": True, "refused": ""})
    incident.learn(others=others)
    try:
        answer = await workflow.execute_activity_method(
            HealerActivities.stand_back,
            StandBack(node=incident.node, incident=incident.known.incident),
            summary=f"{' and '.join(others.found)}: leave {incident.node.name} alone",
            **options.STAND_BACK,
        )
    except ActivityError as error:
        why = cause_of(error)
        incident.learn(others=others.model_copy(update={"told": False, "refused": why}))
        incident.tell("not standing back", why)
        await page(incident, f"{incident.node.name} is not restarted: {why}", "another healer does not stand back")
        return
    incident.learn(others=others.model_copy(update={"told": True}))
    incident.tell("stands back", answer.said)


async def release(incident: Incident) -> None:
    """Let the others look after a node that serves. In an ill one they would serve, or replace, what a person is to see."""
    others = incident.known.others
    if not others.asked:
        return
    if incident.known.quarantined:
        incident.tell(
            "stands back", f"{' and '.join(others.found)}: until {incident.node.name} serves again, or a person ends it"
        )
        return
    try:
        answer = await workflow.execute_activity_method(
            HealerActivities.release_healers,
            ReleaseHealers(node=incident.node, incident=incident.known.incident),
            summary=f"{' and '.join(others.found)}: {incident.node.name} is yours again",
            **options.STAND_BACK,
        )
    except ActivityError as error:
        why = cause_of(error)
        incident.tell("not released", why)
        await page(incident, f"{incident.node.name} serves, and another healer still stands back: {why}", "healer not released")
        return
    incident.learn(others=others.model_copy(update={"asked": False, "told": False}))
    incident.tell("released", answer.said)
