"""The recovery of a job that its controller restarts: Hotspare gives it proven nodes, keeps bad ones out, and watches it train.

It never restarts the job itself while the controller may. Only when that one has not managed within its deadline is the job taken
over: held against its controller, burned in and resumed like one of ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.errors import DeadlinePassed
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import AwaitController, LookAtJob
    from activities.jobs.protocol import JobStatus
    from workflows import options
    from workflows.decisions.node_set import NodeSet
    from workflows.failures import cause_of, kind_of
    from workflows.job_page import page_about_job
    from workflows.operator_view import OperatorView
    from workflows.tokens import Tokens


class ControlledJob:
    """One job of a controller, under one recovery."""

    def __init__(self, job: str, node_set: NodeSet, view: OperatorView, tokens: Tokens) -> None:
        self._job = job
        self._set = node_set
        self._view = view
        self._tokens = tokens
        self._warned: list[str] = []

    async def look(self) -> JobStatus:
        """Look at the job, and tell people what its controller will not do for it."""
        status = await workflow.execute_activity_method(
            JobActivities.look_at_job, LookAtJob(job=self._job), summary=f"who restarts {self._job}", **options.JOB
        )
        self._set.begin(status.nodes)
        self._view.tell("left to its controller", f"{status.controller or status.restarted_by.value} restarts {self._job}")
        await self._warn(status)
        return status

    async def _warn(self, status: JobStatus) -> None:
        """A budget that runs out, or a job that will not come back by itself, is a person's before it has happened."""
        new = [words for words in status.warnings if words not in self._warned]
        if not new:
            return
        self._warned += new
        self._view.tell("warning", "; ".join(new))
        key = f"{self._tokens.run}/warning/{self._tokens.next()}"
        problem = await page_about_job(self._job, "may not come back by itself", "; ".join(new), self._set, key)
        if problem:
            self._view.tell("page failed", problem)

    async def trains_again(self, before: JobStatus, every_node_answered: Callable[[], Awaitable[None]]) -> JobStatus | None:
        """Supply what is proven and wait for the step counter; None when the controller has not managed in its time.

        A node that falls out meanwhile is answered for before the wait goes on.
        """
        while True:
            self._set.read_news()
            await every_node_answered()
            if self._set.news():
                continue
            handle = self._watch(before.checkpoint_step or 0)
            if not await self._ended(handle):
                handle.cancel()
                continue
            try:
                return await handle
            except ActivityError as error:
                if kind_of(error) != DeadlinePassed.__name__:
                    raise
                self._view.tell("taking over", cause_of(error))
                return None

    def _watch(self, beyond_step: int) -> workflow.ActivityHandle[JobStatus]:
        request = AwaitController(job=self._job, supply=self._set.newcomers(), out=self._set.replaced(), beyond_step=beyond_step)
        self._tell_supplied()
        return workflow.start_activity_method(
            JobActivities.await_controller, request, summary=f"{self._job} trains past step {beyond_step}", **options.WATCH
        )

    async def _ended(self, watch: workflow.ActivityHandle[JobStatus]) -> bool:
        """Wait for the end of the watch, or for another node that falls out."""
        await workflow.wait_condition(lambda: watch.done() or self._set.news())
        return watch.done()

    def _tell_supplied(self) -> None:
        for words in self._set.proofs():
            self._view.tell("supplied", words)
