"""The sweep's last step: tests of spares that wait are begun, one by one, each in a workflow of its own."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.inventory import Node, Nodes
    from workflows.decide import DecideActivities, decided
    from workflows.decisions.spares_tests import PoolSeen
    from workflows.messages import Qualification, StartQualification


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
