"""Who holds what Cluster has granted: asked by fixed workflow ids, never by visibility, which lags."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.incidents import IncidentActivities, SurveyHolders
    from workflows import options
    from workflows.cluster_messages import SayHolding
    from workflows.post import post


async def open_holders(cluster: str, instance_ids: list[str]) -> list[str]:
    """Return which incidents and replacements of these nodes are open."""
    seen = await workflow.execute_activity_method(
        IncidentActivities.survey_holders,
        SurveyHolders(cluster=cluster, instance_ids=instance_ids),
        summary=f"which incidents and replacements of {len(instance_ids)} nodes are open",
        **options.MESSENGER,
    )
    return seen.workflow_ids


async def silent_holders(cluster: str, holders: list[str], heard: Callable[[], set[str]], deadline_s: float) -> list[str]:
    """Ask each holder what it holds, wait for the answers, and return those that gave none though they are there."""
    asked = [holder for holder in holders if await post(holder, "say_holding", SayHolding(cluster=cluster))]
    try:
        await workflow.wait_condition(
            lambda: set(asked) <= heard(), timeout=timedelta(seconds=deadline_s), timeout_summary="holders say what they hold"
        )
    except TimeoutError:
        workflow.logger.warning("recovering: not every holder answered in %g s", deadline_s)
    return [holder for holder in asked if holder not in heard()]
