"""The steps of an incident that wait for people: the question, and the pages."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.notify import NotifyActivities, Page
    from workflows import options
    from workflows.cluster_messages import AskKind
    from workflows.decisions.facts import Step
    from workflows.failures import cause_of
    from workflows.incident import Incident


async def ask_person(incident: Incident, step: Step) -> None:
    """Page, and wait for a word. Holds the quarantine and no repair slot; unanswered, it pages again and never disrupts."""
    try:
        await incident.talk.give_back(AskKind.REPAIR_SLOT)
    except ActivityError as error:  # that Cluster cannot be told is no reason not to tell a person
        incident.tell("not given back", cause_of(error))
    incident.learn(asked_rung=step.rung.value if step.rung else "", asked_since=incident.known.asked_since or workflow.now())
    incident.view.attributes(WaitsForPerson=True)
    if step.page not in incident.known.paged:
        incident.tell("asks a person", step.because[0])
        await page(incident, step.because[0], step.page, waits=True)
    try:
        await workflow.wait_condition(
            lambda: bool(incident.words or incident.unread or incident.talk.has_strays()),
            timeout=timedelta(seconds=step.deadline_s),
            timeout_summary=f"a person answers: {step.because[0]}",
        )
    except TimeoutError:
        incident.try_again()
        incident.learn(paged=[one for one in incident.known.paged if one != step.page])
        incident.tell("unanswered", "nobody answered; the quarantine stays, and the question is asked again")
    incident.view.attributes(WaitsForPerson=False)


async def page(incident: Incident, why: str, key: str, *, again: bool = False, waits: bool = False) -> None:
    """Send a page, once per key unless `again`. It goes out beside the work: a dead pager holds up nothing but the closing."""
    if key in incident.known.paged and not again:
        return
    incident.learn(paged=[*(one for one in incident.known.paged if one != key), key])
    name = incident.node.name
    commands = [f"hotspare why {name}"]
    if incident.known.asked_rung:
        commands += [f"hotspare approve {name}", f"hotspare skip {name}", f"hotspare take-over {name}"]
    elif waits:
        commands += [f"hotspare hand-back {name}", f"hotspare take-over {name}", f"hotspare escalate {name}"]
    elif incident.known.quarantined:
        commands += [f"hotspare report {name}"]
    info = workflow.info()
    message = Page(
        key=f"{incident.tokens.run}/{key}",
        incident=incident.known.incident,
        node=name,
        title=f"{name}: {key}",
        why=[why, *(incident.known.opinion.because if incident.known.opinion else [])],
        next_commands=commands,
        ui_link=f"{incident.ui_url}/namespaces/{info.namespace}/workflows/{info.workflow_id}" if incident.ui_url else "",
    )
    incident.paging.append(workflow.start_activity_method(NotifyActivities.page, message, summary=f"page: {key}", **options.PAGE))
    if not incident.pages_beside:
        await pages_are_out(incident)


async def pages_are_out(incident: Incident) -> None:
    """Wait until every page was taken or given up. One that failed is told in the story."""
    going, incident.paging = incident.paging, []
    for page_sent in going:
        try:
            await page_sent
        except ActivityError as error:
            incident.tell("page failed", cause_of(error))
