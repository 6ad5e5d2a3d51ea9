"""Spares that wait: the sweep's last step begins the tests that are due; work that a spare does meanwhile is ended first."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.inventory import Node, Nodes
    from activities.spare_work import ClearSpare, SpareWorkActivities
    from workflows import options
    from workflows.decide import DecideActivities, decided
    from workflows.decisions.spares_tests import PoolSeen
    from workflows.failures import cause_of, stop_if_cancelled
    from workflows.messages import Qualification, StartQualification
    from workflows.operator_view import OperatorView


async def still_at_work(spare: Node, view: OperatorView) -> str:
    """Have the preemptible work on a spare end; returns why the spare is not known to be idle, empty when it is."""
    try:
        cleared = await workflow.execute_activity_method(
            SpareWorkActivities.clear_spare,
            ClearSpare(node=spare),
            summary=f"evict preemptible work from {spare.name}",
            **options.CLEAR_SPARE,
        )
    except ActivityError as error:
        stop_if_cancelled()
        return f"{spare.name} is not idle: {cause_of(error)}"
    view.tell("idle", cleared.said)
    return ""


async def begin_spare_tests(cluster: str, seen: Nodes, well: list[Node]) -> list[str]:
    """Begin the tests that are due among the spares that looked well; nobody waits for their end. Returns their names."""
    if not any(node.role == names.ROLE_SPARE for node in well):
        return []
    plan = await decided(
        DecideActivities.plan_spare_tests,
        PoolSeen(nodes=well, records=seen.spares, now=workflow.now()),
        "which spares are tested now",
    )
    begun = []
    for node in plan.due:
        start = StartQualification(node=node.instance_id, cluster=cluster, reason=plan.because[node.instance_id])
        try:
            await workflow.start_child_workflow(
                names.WORKFLOW_QUALIFY_SPARE,
                start,
                id=names.qualify_id(cluster, node.instance_id),
                parent_close_policy=ParentClosePolicy.ABANDON,
                result_type=Qualification,
                static_summary=f"test {node.name} while it waits",
            )
        except WorkflowAlreadyStartedError:
            continue
        begun.append(node.name)
    return begun
