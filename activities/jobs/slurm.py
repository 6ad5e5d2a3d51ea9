"""The job adapter `slurm`: requeue in held state, burn in, and release onto an explicit node list. See docs/slurm.md."""

from __future__ import annotations

from typing import Any

from activities.clock import Clock, SystemClock
from activities.errors import BadInput, CapabilityMissing, CommandFailed, PreconditionFailed
from activities.inventory import Node
from activities.jobs.progress import ProgressCommand
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.jobs.slurm_jobs import JOB, SlurmJob, newest_first, remember
from activities.settings_jobs import JobSettings, SlurmSettings
from activities.slurm import NodeNames, Slurm

POLL_S = 0.5
"""Seconds between looks at a job that is to stop. Hotspare default."""


class SlurmJobs:
    """Batch jobs of one Slurm. Job 7 is called job-7, or 7, here and everywhere in Hotspare; a requeue keeps its id.

    Hotspare restarts these jobs itself (`restarted_by`), although Slurm can: it requeues a job when a node dies, never when ranks
    fail, and then onto nodes that nobody tested. Record 0006 in docs/decisions has the reasons.
    """

    def __init__(self, slurm: Slurm, job: JobSettings, settings: SlurmSettings, clock: Clock | None = None) -> None:
        self._slurm = slurm
        self._progress = ProgressCommand(slurm.access_to_head, job)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._ran_on: dict[str, str] = {}

    def find_on(self, node: Node) -> JobStatus | None:
        names = self._slurm.names()
        there = names.slurm(node)
        if there is None:
            return None
        for job in newest_first(self._jobs()):
            if job.counts and there.name in self._node_set(job):
                return self._status(job, names)
        return None

    def status(self, job: str) -> JobStatus:
        return self._status(self._look(job), self._slurm.names())

    def hold(self, job: str, reason: str) -> JobStatus:
        found = self._look(job)
        if not found.held:
            self._refuse_what_cannot_come_back(found)
            record = {**found.record, "nodes": self._node_set(found), "held": " ".join(reason.split())[:200]}
            noted = self._note(found, record)
            self._stop(found)
            self._await_stop(found.id)
            if not noted:
                self._slurm.change("update", f"jobid={found.id}", remember(found, record))
        return self._status(self._without_left_nodes(self._await_stop(found.id)), self._slurm.names())

    def _note(self, found: SlurmJob, record: dict[str, Any]) -> bool:
        """Note a record in the job. False where Slurm takes none: the job has ended, and must wait again first."""
        try:
            self._slurm.change("update", f"jobid={found.id}", remember(found, record))
        except CommandFailed as error:
            if "already finished" not in str(error):
                raise
            return False
        return True

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        found = self._look(job)
        if found.record.get("token") == token and not (found.held and found.restarts == found.record.get("restarts")):
            return
        if not found.held:
            raise PreconditionFailed(f"job {found.id} is {found.state}; it is released onto named nodes only where it is held")
        names = self._slurm.names()
        wanted = [names.slurm_name(name) for name in nodes]
        if not wanted or len(set(wanted)) != len(wanted):
            raise BadInput(f"job {found.id}: a node list names each node once: {nodes}")
        excluded = self._excluded(found, wanted)
        record = {
            "token": token,
            "restarts": found.restarts,
            "nodes": wanted,
            "excluded": sorted(excluded - self._of_the_user(found)),
        }
        size = [] if found.node_count == len(wanted) else [f"NumNodes={len(wanted)}"]
        self._slurm.change(
            "update",
            f"jobid={found.id}",
            f"ReqNodeList={','.join(wanted)}",
            f"ExcNodeList={','.join(sorted(excluded))}",
            *size,
            remember(found, record),
        )
        self._slurm.change("release", found.id)
        # A released job may not begin for two minutes after its requeue (slurmctld's own delay); it has waited long enough.
        try:
            self._slurm.change("update", f"jobid={found.id}", "StartTime=now")
        except CommandFailed as error:
            if "no longer pending" not in str(error):
                raise

    def settle(self, job: str, nodes: list[str]) -> None:
        """A started job leaves nothing to do."""

    def supply(self, job: str, node: Node) -> None:
        raise CapabilityMissing(f"job {job}: it is released onto a node list that names every node, so none is supplied")

    def take_back(self, job: str, node: Node) -> None:
        """Nothing was supplied, so nothing is to be undone."""

    def leave(self, job: str, node: Node) -> None:
        raise CapabilityMissing(f"job {job}: Slurm stops a job as a whole; only a hold moves it off a node")

    def _stop(self, found: SlurmJob) -> None:
        """Keep a waiting job from starting; requeue any other in held state. One that waits meanwhile is held."""
        if not found.pending:
            try:
                self._slurm.change("requeuehold", found.id)
                return
            except CommandFailed as error:
                if "pending" not in str(error).lower():
                    raise
        self._slurm.change("hold", found.id)

    def _without_left_nodes(self, held: SlurmJob) -> SlurmJob:
        """Have slurmctld forget nodes that it left in a requeued job, whose next start would get no GPU (docs/slurm.md).

        It forgets them when it requeues a job that has ended, and a job that waits ends only by being cancelled. The note before
        it tells a later try that the cancellation is ours.
        """
        if not held.left_nodes:
            return held
        mend = f"scancel {held.id}; scontrol requeuehold {held.id}"
        if others := [job.id for job in self._jobs() if job.depends_on(held.id)]:
            raise PreconditionFailed(
                f"job {held.id}: Slurm left the nodes of its last run in it, so its next start would get no GPU. To clear it, it "
                f"must be cancelled and requeued, which lets jobs that depend on it go on or fail: {', '.join(others)}. Hold "
                f"them (scontrol hold JOB), then: {mend}"
            )
        record = {**held.record, "nodes": self._node_set(held), "cleared": held.restarts}
        self._slurm.change("update", f"jobid={held.id}", remember(held, record))
        self._slurm.cancel(held.id)
        self._slurm.change("requeuehold", held.id)
        again = self._await_stop(held.id)
        if again.left_nodes:
            raise CommandFailed(f"job {held.id}: Slurm still has nodes of its last run in it ({again.nodes}); clear it: {mend}")
        return again

    def _await_stop(self, job: str) -> SlurmJob:
        until = self._clock.now() + self._settings.hold_deadline_s
        while True:
            found = self._look(job)
            steps = self._slurm.steps(job)
            if found.held and not steps:
                return found
            if self._clock.now() >= until:
                left = f", steps {', '.join(steps)}" if steps else ""
                raise CommandFailed(
                    f"job {job} is still {found.state}{left} {self._settings.hold_deadline_s:g} s after it was requeued; look at "
                    f"the epilog and at nodes in COMPLETING: scontrol show job {job}"
                )
            self._clock.wait(POLL_S)

    def _refuse_what_cannot_come_back(self, found: SlurmJob) -> None:
        if found.cancelled_by_somebody:
            raise PreconditionFailed(
                f"job {found.id} was cancelled meanwhile, which is somebody's wish: it is not brought back. "
                f"If it shall come back: scontrol requeuehold {found.id}"
            )
        if not found.batch:
            raise CapabilityMissing(
                f"job {found.id} is no batch job (salloc or srun): Slurm cannot requeue it; submit it with sbatch"
            )
        if not found.requeue and not found.pending:
            raise CapabilityMissing(
                f"job {found.id} was submitted with --no-requeue, so it is not stopped: it would not come back. If it may be "
                f"requeued: scontrol update jobid={found.id} Requeue=1"
            )

    def _excluded(self, found: SlurmJob, wanted: list[str]) -> set[str]:
        """The job's own exclusions, and the nodes that it leaves. PreconditionFailed where its owner excludes a wanted one."""
        own = self._of_the_user(found)
        if clash := own & set(wanted):
            raise PreconditionFailed(f"job {found.id}: its owner excludes {', '.join(sorted(clash))} (ExcNodeList)")
        return own | (set(self._node_set(found)) - set(wanted))

    def _of_the_user(self, found: SlurmJob) -> set[str]:
        return set(self._slurm.expand(found.excluded)) - set(found.record.get("excluded", []))

    def _jobs(self) -> list[SlurmJob]:
        jobs = [SlurmJob(row) for row in self._slurm.jobs()]
        for job in jobs:
            if job.nodes:
                self._ran_on[job.id] = job.nodes
        for gone in set(self._ran_on) - {job.id for job in jobs}:
            self._ran_on.pop(gone, None)
        return jobs

    def _look(self, job: str) -> SlurmJob:
        for found in self._jobs():
            if found.id == job.removeprefix(JOB):
                return found
        raise PreconditionFailed(
            f"Slurm has no job {job.removeprefix(JOB)} any more: an ended job is forgotten after MinJobAge; submit it again"
        )

    def _node_set(self, job: SlurmJob) -> list[str]:
        """Where ranks run, are bound to start or ran: Slurm forgets the last for a requeued job, so hold wrote it down."""
        if job.nodes or job.required:
            return self._slurm.expand(job.nodes or job.required)
        noted = job.record.get("nodes", [])
        return list(noted) if noted else self._slurm.expand(self._ran_on.get(job.id, ""))

    def _status(self, job: SlurmJob, names: NodeNames) -> JobStatus:
        nodes = [names.inventory_name(name) for name in self._node_set(job)]
        state = job.job_state
        told = self._progress.of(job.id)
        return JobStatus(
            job=f"{JOB}{job.id}",
            state=state,
            nodes=nodes,
            ranks_on=None if state is JobState.UNKNOWN else nodes if state is JobState.RUNNING else [],
            step=told.step,
            checkpoint_step=told.checkpoint_step,
            seconds_per_step=told.seconds_per_step,
            run_token=job.run_token,
            restarted_by=RestartedBy.HOTSPARE,
            waits_for=job.waits_for,
            warnings=job.warnings(shows_progress=self._progress.configured),
        )
