"""RecoverJob: one job, from the first node that falls out to the step counter that moves again.

    hold → every node that is out is answered for → burn in the node set → resume once → prove progress → tell the incidents

The job never resumes on a node that has not passed the burn-in of its node set. One that its controller restarts is left to it
(`workflows.controlled_job`), on nodes that were proven before.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.errors import NotOurs, PreconditionFailed
    from activities.incidents import FailedBurnIn, IncidentActivities, JobResumed, NodeGivenUp, NodeIn, NodeOut, OpenIncident
    from activities.jobs.activities import JobActivities
    from activities.jobs.messages import AwaitProgress, HoldJob, ResumeJob
    from activities.jobs.protocol import JobStatus
    from activities.node import Report
    from checks.model import Verdict
    from workflows import options
    from workflows.burning_in import burn_in_child
    from workflows.controlled_job import ControlledJob
    from workflows.decide import Bearings, bearings
    from workflows.decisions.gates import passes
    from workflows.decisions.node_set import NodeSet
    from workflows.decisions.wrong_results import trained_wrong, which_checkpoint
    from workflows.failures import cause_of, kind_of
    from workflows.job_page import page_about_job
    from workflows.messages import BurnInReport, NodeVerdict, StartBurnIn, StartRecovery
    from workflows.operator_view import Line, OperatorView
    from workflows.owed_answers import LOOK_EVERY, OwedAnswers
    from workflows.post import post
    from workflows.tokens import Tokens


class GivenUp(Exception):
    """The recovery ends with a person, for the reason given."""


@workflow.defn
class RecoverJob:
    """Bring one job back, once."""

    @workflow.init
    def __init__(self, start: StartRecovery) -> None:
        self._job = start.job
        self._cluster = start.cluster
        self._known: Bearings
        self._tokens = Tokens()
        self._view = OperatorView()
        self._set = NodeSet()
        self._owed = OwedAnswers(self._job, self._view.tell)
        self._began = workflow.now()
        self._held: JobStatus | None = None
        self._resumed: JobStatus | None = None
        self._resuming = False
        self._wrong: list[str] = []
        if start.node_out is not None:
            self._set.out(start.node_out)

    @workflow.run
    async def run(self, start: StartRecovery) -> JobResumed:
        """Recover until nothing new has fallen out meanwhile."""
        self._known = known = await bearings()
        self._cluster = start.cluster or known.cluster
        self._view.attributes_on = known.attributes
        self._view.attributes(Cluster=self._cluster, Job=self._job, Phase="holding")
        try:
            while True:
                end = await self._one_recovery()
                await self._tell_incidents(end)
                if not self._set.news():
                    self._view.attributes(Phase="closed", Outcome="resumed" if end.resumed else "with a person")
                    return end
        except (asyncio.CancelledError, FailureError) as error:
            if is_cancelled_exception(error):
                await self._tell_incidents(await self._hand_to_person("the recovery was cancelled by a person"))
                raise asyncio.CancelledError from error
            raise

    async def _one_recovery(self) -> JobResumed:
        try:
            return await self._recover()
        except (GivenUp, FailureError) as error:
            return await self._hand_to_person(str(error) if isinstance(error, GivenUp) else cause_of(error))

    async def _recover(self) -> JobResumed:
        self._set.read_news()
        status = await self._hold_unless_controlled()
        if status is None:
            end = await self._left_to_its_controller()
            if end is not None:
                return end
            status = self._is_held(await self._ask_to_hold(take_over=True))
        for number in range(1, self._known.burn_in_rounds + 1):
            await self._every_node_answered()
            nodes = self._set.nodes()
            report = await self._burn_in(nodes, number)
            self._wrong += self._trained_wrong(report)
            if not passes(report.verdict):
                await self._send_out(report, number)
            elif self._wrong:
                raise GivenUp(which_checkpoint(self._wrong, status.checkpoint_step))
            elif nodes == self._set.nodes() and not self._set.unanswered():
                # What fell out until now is answered for by this resume; only what falls out after it is a reason for another.
                self._set.read_news()
                end = await self._resume(status, nodes)
                if end is not None:
                    return end
                await self._somebody_falls_out(
                    "the resume was refused for a node that is quarantined or back in the pool, and no incident speaks for it"
                )
        raise GivenUp(f"{self._known.burn_in_rounds} burn-ins did not end with a node set that passes")

    async def _left_to_its_controller(self) -> JobResumed | None:
        """Let the job's controller restart it; None when it has not, and we are to take over."""
        job = ControlledJob(self._job, self._set, self._view, self._tokens)
        before = await job.look()
        if self._held is None or self._resumed is not None:
            self._held = before
        moved = await job.trains_again(before, self._every_node_answered)
        return self._trains(moved) if moved is not None else None

    async def _hold_unless_controlled(self) -> JobStatus | None:
        """Hold the job; None, and nothing is stopped, where its controller restarts it."""
        try:
            status = await self._ask_to_hold()
        except ActivityError as error:
            # The answer of a worker of an earlier release, which still stands in histories.
            if kind_of(error) != NotOurs.__name__ or not workflow.patched("a controller restarts the job"):
                raise
            return None
        return self._is_held(status) if status.ours else None

    async def _ask_to_hold(self, take_over: bool = False) -> JobStatus:
        """Stop the job, provably, before anything is done to its nodes."""
        self._resuming = False
        return await workflow.execute_activity_method(
            JobActivities.hold_job,
            HoldJob(job=self._job, reason=self._set.reason(), take_over=take_over, unless_controlled=not take_over),
            summary=f"take over {self._job}" if take_over else f"hold {self._job}, unless its controller restarts it",
            **options.JOB,
        )

    def _is_held(self, status: JobStatus) -> JobStatus:
        self._set.begin(status.nodes)
        if self._held is None or self._resumed is not None:
            self._held = status
        self._view.tell("held", f"{self._job} holds no GPU; step {status.step}, last checkpoint {status.checkpoint_step}")
        return status

    async def _every_node_answered(self) -> None:
        """Wait until each incident has said what comes in place of its node."""
        waiting = self._set.unanswered()
        if waiting:
            self._view.tell("waiting", f"for what comes in place of {', '.join(waiting)}")
        until = workflow.now() + timedelta(seconds=self._known.node_deadline_s)
        while not await self._answered_within(min(LOOK_EVERY, until - workflow.now())):
            if workflow.now() >= until:
                raise GivenUp(f"nothing came in place of {', '.join(self._set.unanswered())}") from None
            await self._owed.look(self._cluster, self._set)
        if self._set.given_up:
            raise GivenUp("; ".join(self._set.given_up))
        self._view.tell("node set", ", ".join(self._set.nodes()))

    async def _answered_within(self, wait: timedelta) -> bool:
        try:
            await workflow.wait_condition(
                lambda: not self._set.unanswered(), timeout=wait, timeout_summary=f"nodes for {self._job}"
            )
        except TimeoutError:
            return False
        return True

    async def _burn_in(self, nodes: list[str], number: int) -> BurnInReport:
        """Burn in the whole node set: the gate before every resume."""
        fresh = [node for node in nodes if self._held is not None and node not in self._held.nodes]
        start = StartBurnIn(cluster=self._cluster, nodes=nodes, fresh=fresh, reason=f"before {self._job} resumes")
        report = await burn_in_child(start, self._job, f"burn-in {number} of {self._job}: {', '.join(nodes)}", self._tokens)
        self._view.tell("burn-in", f"{report.verdict.value} {report.cause} in {report.runs} runs: {'; '.join(report.because)}")
        return report

    def _trained_wrong(self, report: BurnInReport) -> list[str]:
        trained_on = self._held.nodes if self._held is not None else []
        return trained_wrong(report.corrupt, trained_on, {one.node_name: one.evidence for one in report.nodes})

    async def _somebody_falls_out(self, why: str) -> None:
        """What stopped us is about a node whose incident may be about to speak: wait for it a little."""
        if self._set.unanswered():
            return
        try:
            await workflow.wait_condition(
                self._set.news,
                timeout=timedelta(seconds=self._known.incident_speaks_s),
                timeout_summary="an incident speaks for the node",
            )
        except TimeoutError:
            raise GivenUp(why) from None

    async def _send_out(self, report: BurnInReport, number: int) -> None:
        """Take the nodes that failed out of the set: each gets its own incident, which answers with another node."""
        bad = [verdict for verdict in report.nodes if verdict.verdict is Verdict.CRITICAL]
        if not bad:
            why = f"the burn-in does not say which node is to blame: {report.cause}; {'; '.join(report.because)}"
            why += f". Next: {report.next}" if report.next else ""
            await self._somebody_falls_out(why)
        for verdict in bad:
            if not await self._supplier_told(verdict):
                await self._open_incident(verdict, number)

    async def _supplier_told(self, verdict: NodeVerdict) -> bool:
        """Have whoever supplied the node answer again; returns whether that settles it: a spare gets its own incident too."""
        supplier = self._set.supplied_by(verdict.instance_id)
        failed = FailedBurnIn(job=self._job, instance_id=verdict.instance_id, evidence=verdict.evidence)
        told = supplier is not None and await post(supplier.incident, "failed_burn_in", failed)
        if not told:
            self._set.keep(verdict.instance_id, verdict.node_name)
        self._set.await_answer(verdict.instance_id, verdict.node_name)
        return told and supplier is not None and supplier.replaces == verdict.instance_id

    async def _open_incident(self, verdict: NodeVerdict, number: int) -> None:
        report = Report(
            source=workflow.info().workflow_id,
            key=f"{self._tokens.run}/burn-in/{number}/{verdict.instance_id}",
            what=f"{verdict.node_name} failed the burn-in: {verdict.evidence}",
            burn_in_failed=True,
            seen_at=workflow.now(),
        )
        await workflow.execute_activity_method(
            IncidentActivities.open_incident,
            OpenIncident(cluster=self._cluster, instance_id=verdict.instance_id, report=report),
            summary=f"incident for {verdict.node_name}, which failed the burn-in",
            **options.MESSENGER,
        )

    async def _resume(self, status: JobStatus, nodes: list[str]) -> JobResumed | None:
        """Start the job once on the proven nodes, and believe it when the step counter has passed the checkpoint.

        None when it was refused for a node that has been quarantined meanwhile.
        """
        token = self._tokens.next()
        self._view.attributes(Phase="resuming")
        try:
            await workflow.execute_activity_method(
                JobActivities.resume_job,
                ResumeJob(job=self._job, nodes=nodes, token=token),
                summary=f"resume {self._job} on {', '.join(nodes)}",
                **options.JOB,
            )
        except ActivityError as error:
            words = cause_of(error)
            if kind_of(error) != PreconditionFailed.__name__:
                raise
            self._view.tell("not resumed", words)
            return None
        self._resuming = True
        self._view.tell("resumed", f"on {', '.join(nodes)} from checkpoint {status.checkpoint_step}")
        return await self._prove(token, status)

    async def _prove(self, token: str, status: JobStatus) -> JobResumed:
        moved = await workflow.execute_activity_method(
            JobActivities.await_progress,
            AwaitProgress(job=self._job, token=token, beyond_step=status.checkpoint_step or 0),
            summary=f"{self._job} steps past {status.checkpoint_step or 0}",
            **options.WATCH,
        )
        return self._trains(moved)

    def _trains(self, moved: JobStatus) -> JobResumed:
        self._resumed = moved
        lost_steps, minutes = self._lost()
        self._view.tell("trains again", f"step {moved.step}; {minutes:.1f} minutes of training lost")
        return JobResumed(
            job=self._job, resumed=True, nodes=moved.nodes, step=moved.step, lost_steps=lost_steps, lost_minutes=round(minutes, 2)
        )

    def _lost(self) -> tuple[int | None, float]:
        """Return the steps to be done again, and the minutes of training lost: standstill plus those steps."""
        held = self._held
        minutes = (workflow.now() - self._began).total_seconds() / 60
        if held is None or held.step is None or held.checkpoint_step is None:
            return None, minutes
        steps = max(0, held.step - held.checkpoint_step)
        return steps, minutes + steps * (held.seconds_per_step or 0.0) / 60

    async def _hand_to_person(self, why: str) -> JobResumed:
        self._view.tell("with a person", why)
        state = "was resumed and does not progress" if self._resuming else "stays held" if self._held else "could not be held"
        problem = await page_about_job(self._job, state, why, self._set, f"{self._tokens.run}/given-up/{self._tokens.next()}")
        if problem:
            self._view.tell("page failed", problem)
        return JobResumed(job=self._job, resumed=False, reason=why)

    async def _tell_incidents(self, end: JobResumed) -> None:
        for incident in self._set.settle():
            try:
                if not await post(incident, "job_resumed", end):
                    self._view.tell("not told", f"{incident} has ended")
            except ActivityError as error:  # it waits no longer than its own deadline, and a person is told then
                self._view.tell("not told", f"{incident}: {cause_of(error)}")

    @workflow.signal(description="A node of the job is out, or the job must restart")
    def node_out(self, message: NodeOut) -> None:
        self._set.out(message)

    @workflow.signal(description="A node may be used")
    def node_in(self, message: NodeIn) -> None:
        self._set.come_in(message)

    @workflow.signal(description="Nothing comes in place of a node")
    def node_given_up(self, message: NodeGivenUp) -> None:
        self._set.give_up(message)

    @workflow.query(description="The story so far")
    def story(self) -> list[Line]:
        return self._view.lines
