"""Letters between workflows: recorded, confirmed by the server, and one event each.

A letter is sent by a local activity that holds the client. It has left when the call returns, so closing or continue-as-new
loses nothing; one that is sent again after a worker's death is told apart by the ids inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.incidents import ClusterLetter, IncidentActivities, Letter
    from activities.message import Message
    from workflows import options


async def post(workflow_id: str, signal: str, message: Message) -> bool:
    """Signal a workflow; returns False when none runs under this id."""
    with _like_any_activity("post"):
        answer = await workflow.execute_local_activity_method(
            IncidentActivities.post,
            Letter(workflow_id=workflow_id, signal=signal, payload=message.model_dump(mode="json")),
            summary=f"{signal} to {workflow_id}",
            **options.LETTER,
        )
    return answer.delivered


async def post_to_cluster(cluster: str, signal: str, message: Message) -> None:
    """Signal Cluster, which is started when it does not run."""
    with _like_any_activity("post_to_cluster"):
        await workflow.execute_local_activity_method(
            IncidentActivities.post_to_cluster,
            ClusterLetter(cluster=cluster, signal=signal, payload=message.model_dump(mode="json")),
            summary=f"{signal} to cluster/{cluster}",
            **options.LETTER,
        )


@contextmanager
def _like_any_activity(activity_type: str) -> Iterator[None]:
    """Raise ActivityError for a failed letter: the SDK raises bare what a local activity raised, past all who handle it."""
    try:
        yield
    except ApplicationError as error:
        raise ActivityError(
            f"{activity_type}: {error.message}",
            scheduled_event_id=0,
            started_event_id=0,
            identity="",
            activity_type=activity_type,
            activity_id="",
            retry_state=None,
        ) from error
