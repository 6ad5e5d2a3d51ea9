"""The page about a job whose recovery has come to a person."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.notify import NotifyActivities, Page
    from workflows import options
    from workflows.decisions.node_set import NodeSet
    from workflows.failures import cause_of


async def page_about_job(job: str, state: str, why: str, node_set: NodeSet, key: str) -> str:
    """Send the page; returns what went wrong with it, empty when it went out."""
    nodes = node_set.nodes()
    commands = ["hotspare status", *(f"hotspare why {name}" for name in node_set.nodes_out())]
    page = Page(
        key=key,
        incident=workflow.info().workflow_id,
        node=job,
        title=f"{job} {state}",
        why=[why],
        next_commands=[*commands, f"hotspare burn-in {' '.join(nodes)}"] if nodes else commands,
    )
    try:
        await workflow.execute_activity_method(NotifyActivities.page, page, summary=f"page: {job}", **options.PAGE)
    except ActivityError as error:
        return cause_of(error)
    return ""
