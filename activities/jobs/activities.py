"""Training jobs as workflows see them: find, hold, resume once, prove progress. The adapter does the talking."""

from __future__ import annotations

from collections.abc import Callable

from temporalio import activity

from activities.clock import Clock, SystemClock, beat, waited_before
from activities.effects import refuse_if_late
from activities.errors import DeadlinePassed, NotOurs, PreconditionFailed, as_application_error
from activities.inventory import Inventory, Node
from activities.jobs.messages import (
    AwaitBoundary,
    AwaitController,
    AwaitProgress,
    AwaitRank,
    FindJob,
    FoundJob,
    HoldJob,
    LookAtJob,
    ResumeJob,
    SupplyOfNode,
)
from activities.jobs.protocol import JobAdapter, JobState, JobStatus
from activities.jobs.training_proof import TrainingProof
from activities.quarantine import QuarantineMarks
from activities.settings_jobs import JobSettings


class JobActivities:
    """The job behind one adapter. Nothing is resumed onto a quarantined node, over a running job or against its controller."""

    def __init__(
        self,
        adapter: JobAdapter,
        inventory: Inventory,
        marks: QuarantineMarks,
        settings: JobSettings,
        clock: Clock | None = None,
    ) -> None:
        self._adapter = adapter
        self._inventory = inventory
        self._marks = marks
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def find_job(self, request: FindJob) -> FoundJob:
        """Find the job on a node."""
        with as_application_error():
            return FoundJob(status=self._adapter.find_on(request.node))

    @activity.defn
    def look_at_job(self, request: LookAtJob) -> JobStatus:
        """Look at a job."""
        with as_application_error():
            return self._adapter.status(request.job)

    @activity.defn
    def hold_job(self, request: HoldJob) -> JobStatus:
        """Stop a job and keep it stopped; answers when it is provably stopped, or was left to its controller as asked."""
        with as_application_error():
            status = self._adapter.status(request.job)
            if request.unless_controlled and not status.ours:
                return status
            if not request.take_over:
                _refuse_others(status)
            if status.state is JobState.HELD and status.ours:
                return status
            refuse_if_late()
            held = self._adapter.hold(request.job, request.reason)
            if held.state not in (JobState.HELD, JobState.STOPPED):
                raise PreconditionFailed(
                    f"job {request.job} is {held.state.value} after its hold; it must be stopped before anything else"
                )
            return held

    @activity.defn
    def resume_job(self, request: ResumeJob) -> JobStatus:
        """Resume a stopped job once; a run that already carries the token is the answer."""
        with as_application_error():
            status = self._adapter.status(request.job)
            if status.run_token == request.token:
                self._adapter.settle(request.job, request.nodes)
                return status
            _refuse_others(status)
            if status.state not in (JobState.STOPPED, JobState.HELD):
                raise PreconditionFailed(f"job {request.job} is {status.state.value}, so it is not resumed; hold it first")
            self._refuse_quarantined(request)
            self._refuse_pooled(request, status.nodes)
            refuse_if_late()
            self._adapter.resume(request.job, request.nodes, request.token)
            return self._adapter.status(request.job)

    @activity.defn
    def await_progress(self, request: AwaitProgress) -> JobStatus:
        """Wait until the step counter rises past the checkpoint under the token: the proof that the job trains again."""
        proof = TrainingProof(request.beyond_step)

        def stepped(status: JobStatus) -> bool:
            return proof.complete(status, counts=status.run_token == request.token)

        with as_application_error():
            deadline_s = self._settings.progress_deadline_s if request.deadline_s is None else request.deadline_s
            return self._await(request.job, stepped, deadline_s, f"stepped past {request.beyond_step}", request.token)

    @activity.defn
    def await_rank(self, request: AwaitRank) -> JobStatus:
        """Wait until a rank of the job runs on a node: the proof that a replacement is used."""

        def runs_there(status: JobStatus) -> bool:
            return status.runs_on(request.node_name)

        with as_application_error():
            return self._await(request.job, runs_there, request.deadline_s, f"a rank on {request.node_name}")

    @activity.defn
    def await_boundary(self, request: AwaitBoundary) -> JobStatus:
        """Wait until stopping the job costs little: it has ended, left the node, or just written a checkpoint."""

        def at_boundary(status: JobStatus) -> bool:
            if status.state in (JobState.STOPPED, JobState.HELD) or request.node_name not in status.nodes:
                return True
            return (status.checkpoint_step or 0) > (request.checkpoint_step or 0)

        with as_application_error():
            return self._await(request.job, at_boundary, request.deadline_s, "at a checkpoint or its end")

    @activity.defn
    def await_controller(self, request: AwaitController) -> JobStatus:
        """Wait for the proof that the job trains again by its controller's doing: its step counter moves, past the checkpoint.

        Each look gives it what it waits for. Ends early (PreconditionFailed) when the controller has given the job up.
        """
        with as_application_error():
            supplied = [self._inventory.resolve("", name) for name in request.supply]
            bad = [self._inventory.resolve("", name) for name in request.out]
            proof = TrainingProof(request.beyond_step)

            def trains(status: JobStatus) -> bool:
                self._refuse_ended(status)
                self._hand(request.job, status, supplied, bad)
                return proof.complete(status, counts=not any(status.may_have_ranks_on(node.name) for node in bad))

            deadline_s = self._settings.controller_deadline_s if request.deadline_s is None else request.deadline_s
            return self._await(request.job, trains, deadline_s, f"trained past {request.beyond_step} by its controller")

    @activity.defn
    def take_back_node(self, request: SupplyOfNode) -> None:
        """Make a node that was supplied to a job a free spare again."""
        with as_application_error():
            refuse_if_late()
            self._adapter.take_back(request.job, request.node)

    def _hand(self, job: str, status: JobStatus, supplied: list[Node], bad: list[Node]) -> None:
        """Let the job use what is supplied, and move its ranks off what is out."""
        missing = [node for node in supplied if not status.runs_on(node.name)]
        if missing and (owners := self._marks.owners(missing)):
            raise PreconditionFailed(f"{_who(owners)}; it is not supplied to job {job}")
        for node in supplied:
            refuse_if_late()
            self._adapter.supply(job, node)
        for node in bad:
            if status.may_have_ranks_on(node.name):
                refuse_if_late()
                self._adapter.leave(job, node)

    def _refuse_ended(self, status: JobStatus) -> None:
        if status.ended:
            raise PreconditionFailed(f"job {status.job} has ended ({status.ended}): {status.controller} starts it no more")

    def _await(self, job: str, done: Callable[[JobStatus], bool], deadline_s: float, what: str, token: str = "") -> JobStatus:
        """Poll the job; ends early when a run that was seen under `token` has stopped, for it will not step any more."""
        before, since, ran = waited_before(), self._clock.now(), False
        while True:
            status = self._adapter.status(job)
            if done(status):
                return status
            ours = bool(token) and status.run_token == token
            if ours and ran and status.state in (JobState.STOPPED, JobState.HELD):
                raise PreconditionFailed(f"job {job} stopped again at step {status.step} before it {what}")
            ran = ran or (ours and status.state is JobState.RUNNING)
            waited = before + self._clock.now() - since
            if waited >= deadline_s:
                raise DeadlinePassed(
                    f"job {job}: not {what} within {deadline_s:.0f} s; it is {status.state.value} at step {status.step}"
                    f"{f'; it waits: {status.waits_for}' if status.waits_for else ''}"
                )
            beat(waited)
            self._clock.wait(self._settings.poll_s)

    def _refuse_quarantined(self, request: ResumeJob) -> None:
        owners = self._marks.owners([self._inventory.resolve("", name) for name in request.nodes])
        if owners:
            raise PreconditionFailed(f"{_who(owners)}; job {request.job} is not resumed there")

    def _refuse_pooled(self, request: ResumeJob, before: list[str]) -> None:
        """A newcomer that has gone back to the pool meanwhile may be promised to somebody else."""
        newcomers = [self._inventory.resolve("", name) for name in request.nodes if name not in before]
        pooled = [node.name for node in newcomers if self._marks.in_pool(node)]
        if pooled:
            raise PreconditionFailed(f"{', '.join(pooled)} is back in the pool of spares; job {request.job} is not resumed there")


def _who(owners: dict[str, str]) -> str:
    return "; ".join(f"{name} is quarantined by {owner}" for name, owner in sorted(owners.items()))


def _refuse_others(status: JobStatus) -> None:
    if not status.ours:
        raise NotOurs(f"job {status.job} is restarted by its {status.restarted_by.value}; Hotspare neither holds nor resumes it")
