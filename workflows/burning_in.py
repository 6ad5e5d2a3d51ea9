"""Starting a burn-in as a child, from an incident or from a job's recovery."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities import names
    from checks.model import Verdict
    from workflows.failures import cause_of
    from workflows.messages import BurnInReport, StartBurnIn
    from workflows.tokens import Tokens

IDS_TRIED = 5
"""Ids tried for one burn-in: after a reset the child of the earlier run may still be ending under the id that comes first."""


async def burn_in_child(start: StartBurnIn, key: str, summary: str, tokens: Tokens) -> BurnInReport:
    """Burn in, and return the report. A burn-in that failed as a workflow is UNKNOWN: it says nothing about any node."""
    for _ in range(IDS_TRIED):
        try:
            report: BurnInReport = await workflow.execute_child_workflow(
                names.WORKFLOW_BURN_IN,
                start,
                id=names.burn_in_id(start.cluster, f"{key}/{tokens.next_name()}"),
                parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                result_type=BurnInReport,
                static_summary=summary,
            )
            return report
        except WorkflowAlreadyStartedError:
            continue
        except ChildWorkflowError as error:
            return BurnInReport(verdict=Verdict.UNKNOWN, cause="could_not_run", because=[cause_of(error)])
    return BurnInReport(verdict=Verdict.UNKNOWN, cause="could_not_run", because=["earlier burn-ins have every id"])
