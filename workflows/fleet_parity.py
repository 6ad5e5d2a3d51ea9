"""The end of a sweep: the nodes that are well are compared with each other, and a person hears who differs, once a day."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.inventory import Node
    from activities.node import Seen
    from activities.notify import NotifyActivities, Page
    from activities.parity import CompareFleet, DifferencesTold, ParityActivities, ParityReport
    from workflows import options
    from workflows.failures import cause_of

LINES = 20
"""Lines of the page. Hotspare default: what a person reads; `hotspare status` has the rest."""


async def compare_configurations(cluster: str, nodes: list[Node], found: dict[str, list[Seen]], ui_url: str) -> ParityReport:
    """Compare the nodes and page about those that differ, or on which `found` has something.

    Nothing is done to them, and a failure fails no sweep.
    """
    try:
        report = await workflow.execute_activity_method(
            ParityActivities.compare_fleet,
            CompareFleet(cluster=cluster, instance_ids=[node.instance_id for node in nodes], found=found),
            summary="who is set up otherwise than its peers",
            **options.LOOK_UP,
        )
        if report.count and not report.told:
            await _tell(cluster, report, ui_url)
        return report
    except ActivityError as error:
        workflow.logger.warning("the configurations were not compared: %s", cause_of(error))
        return ParityReport()


async def _tell(cluster: str, found: ParityReport, ui_url: str) -> None:
    info = workflow.info()
    lines = [f"{one.node_name}: {difference}" for one in found.differing for difference in one.differences]
    more = [f"and {len(lines) - LINES} more differences"] if len(lines) > LINES else []
    page = Page(
        key=found.token,
        incident=info.workflow_id,
        node=found.differing[0].node_name,
        title=f"configuration of {found.count} {'node' if found.count == 1 else 'nodes'} is not as it should be",
        why=[*lines[:LINES], *more, *found.undecided, "nothing was done to them: a node is never replaced for its configuration"],
        next_commands=["hotspare status"],
        ui_link=f"{ui_url}/namespaces/{info.namespace}/workflows/{info.workflow_id}" if ui_url else "",
    )
    await workflow.execute_activity_method(
        NotifyActivities.page, page, summary=f"page: configuration of {cluster}", **options.PAGE
    )
    await workflow.execute_activity_method(
        ParityActivities.differences_told, DifferencesTold(token=found.token), summary="a person was told", **options.LOOK_UP
    )
