"""What Cluster tells people: that the breaker has opened, that disruptions wait. One page, whatever number of nodes waits."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.notify import NotifyActivities, Page
    from workflows import options
    from workflows.cluster_messages import Ask, BreakerState, ClusterState
    from workflows.failures import cause_of

QUEUE_PATIENCE = timedelta(minutes=20)
"""How long an ask waits before people are told. Hotspare default: a reboot and its re-test end within it."""

TELL_AGAIN = timedelta(hours=1)
"""Between pages about a queue that stays. Hotspare default."""

ASKS_SHOWN = 8
"""Waiting nodes that a page names. Hotspare default: what fits on a telephone."""


def pages_for(state: ClusterState) -> list[Page]:
    """Return what people are to be told now."""
    pages = []
    breaker = state.breaker
    if breaker.state is BreakerState.OPEN and not breaker.told and breaker.since is not None:
        why = [f"the breaker has opened: {breaker.reason}", "nothing new is disrupted; what is being healed goes on"]
        pages.append(_page(f"breaker/{breaker.since:%Y%m%dT%H%M%S}", "the breaker is open", why))
    waiting = _waiting_long(state.queue)
    told_at = state.queue_told_at
    if waiting and (told_at is None or workflow.now() - told_at >= TELL_AGAIN):
        nodes = ", ".join(ask.node_name or ask.instance_id for ask in waiting[:ASKS_SHOWN])
        more = f" and {len(waiting) - ASKS_SHOWN} more" if len(waiting) > ASKS_SHOWN else ""
        why = [f"{len(waiting)} disruptions wait, the most important first: {nodes}{more}", "hotspare status says for what"]
        pages.append(_page(f"queue/{workflow.now():%Y%m%dT%H%M}", f"{len(waiting)} nodes wait to be healed", why))
    return pages


def noted(state: ClusterState) -> ClusterState:
    """Return the books with the note that people were told of what stands there now."""
    told_at = workflow.now() if _waiting_long(state.queue) else state.queue_told_at
    return state.model_copy(update={"breaker": state.breaker.model_copy(update={"told": True}), "queue_told_at": told_at})


def untold(state: ClusterState) -> ClusterState:
    """Return the books without that note, so that it is told again."""
    return state.model_copy(update={"breaker": state.breaker.model_copy(update={"told": False}), "queue_told_at": None})


async def send(pages: list[Page], ui_url: str) -> None:
    """Send the pages. A dead pager is logged and stops nothing; the page itself is in the pager's log."""
    info = workflow.info()
    link = f"{ui_url}/namespaces/{info.namespace}/workflows/{info.workflow_id}" if ui_url else ""
    for page in pages:
        try:
            await workflow.execute_activity_method(
                NotifyActivities.page,
                page.model_copy(update={"ui_link": link}),
                summary=f"page: {page.title}",
                **options.PAGE,
            )
        except ActivityError as error:
            workflow.logger.error("page failed: %s", cause_of(error))


def _waiting_long(queue: list[Ask]) -> list[Ask]:
    return [ask for ask in queue if ask.asked_at is not None and workflow.now() - ask.asked_at >= QUEUE_PATIENCE]


def _page(key: str, title: str, why: list[str]) -> Page:
    keeper = workflow.info().workflow_id
    return Page(key=f"{keeper}/{key}", incident=keeper, node="", title=title, why=why, next_commands=["hotspare status"])
