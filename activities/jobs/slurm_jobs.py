"""One job as squeue prints it, in the JSON of Slurm 22.05 and of every release since, and what Hotspare has noted in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from activities.jobs.lint import JobShape, Trap, warnings_of
from activities.jobs.protocol import JobState
from activities.names import PREFIX
from activities.slurm import number, words

JOB = "job-"
"""Before the id in a job's name: a bare number reads as nothing in a story."""

_RANKS = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
_FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
"""Ends of a job that has not done its work; TIMEOUT, DEADLINE and CANCELLED are somebody's wish."""
_ENDED = _FAILED | {"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "REVOKED"}
_HELD_FLAGS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})
_HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})
_NOTE = re.compile(rf"(?:^| \| ){PREFIX} (\{{.*\}})$", re.DOTALL)


class SlurmJob:
    """A job's row, read. `record` is what Hotspare has noted in its AdminComment, which a requeue keeps."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row
        self.id = str(row["job_id"])
        self.states = words(row.get("job_state")) | words(row.get("job_state_flags"))
        self.nodes: str = row.get("nodes") or ""
        self.required: str = row.get("required_nodes") or ""
        self.excluded: str = row.get("excluded_nodes") or ""
        self.restarts = number(row.get("restart_cnt")) or 0
        self.requeue = bool(row.get("requeue"))
        self.batch = bool(row.get("batch_flag"))
        self.node_count = number(row.get("node_count"))
        self.reason = str(row.get("state_reason") or "")
        self.admin_comment: str = row.get("admin_comment") or ""
        self.dependency = str(row.get("dependency") or "")
        self.record = _noted(self.admin_comment)

    @property
    def state(self) -> str:
        """Slurm's words for the state."""
        return "+".join(sorted(self.states)) or "unknown"

    @property
    def pending(self) -> bool:
        """Whether the job waits and no rank of an earlier run is left."""
        return "PENDING" in self.states and not self.states & _RANKS

    @property
    def held(self) -> bool:
        """Whether the job waits and nothing but a release starts it."""
        kept = bool(self.states & _HELD_FLAGS) or self._row.get("hold") is True or self.reason in _HELD_REASONS
        return self.pending and kept

    @property
    def left_nodes(self) -> bool:
        """Whether slurmctld left nodes, and with them GPUs, of the last run in a job that waits; a start would get none."""
        return self.held and bool(self.nodes)

    @property
    def cancelled_by_somebody(self) -> bool:
        """Whether the job was cancelled, and not by ourselves on the way to a requeue."""
        return "CANCELLED" in self.states and self.record.get("cleared") != self.restarts

    def depends_on(self, job: str) -> bool:
        """Whether this job waits for something that another one does or does not."""
        return "PENDING" in self.states and job in re.findall(r":(\d+)", self.dependency)

    @property
    def job_state(self) -> JobState:
        """The state as every adapter has it. A job that is completing still has ranks, or its epilog on the nodes."""
        if self.states & _RANKS:
            return JobState.RUNNING
        if self.held:
            return JobState.HELD
        return JobState.STOPPED if self.pending or self.states & _ENDED else JobState.UNKNOWN

    @property
    def counts(self) -> bool:
        """Whether the job is one to come back: it runs, waits, or has failed."""
        return self.job_state in (JobState.RUNNING, JobState.HELD) or self.pending or bool(self.states & _FAILED)

    @property
    def run_token(self) -> str:
        """Token of the resume that made the present run; a later requeue is not its doing, and a held job has no run yet."""
        ours = not self.held and self.restarts == self.record.get("restarts")
        return str(self.record.get("token", "")) if ours else ""

    @property
    def waits_for(self) -> str:
        """Why a job that should run does not."""
        return f"Slurm: {self.reason}" if self.pending and self.reason not in ("", "None") else ""

    def warnings(self, *, shows_progress: bool) -> list[str]:
        """Why this job will not come back by itself."""
        traps = []
        if not self.batch:
            traps.append(
                Trap(
                    "this job will not come back by itself: Slurm requeues batch jobs only, and it is none",
                    "submit it with sbatch",
                )
            )
        elif not self.requeue:
            traps.append(
                Trap(
                    "this job will not come back by itself: it was submitted with --no-requeue, or JobRequeue=0 holds",
                    f"submit it with --requeue, or scontrol update jobid={self.id} Requeue=1",
                )
            )
        return warnings_of(JobShape("Slurm", None, "--requeue", shows_progress=shows_progress, traps=traps))


def newest_first(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Running jobs, then waiting ones, then failed ones; in each the newest first."""
    order = {JobState.RUNNING: 0, JobState.HELD: 1, JobState.STOPPED: 2, JobState.UNKNOWN: 3}
    return sorted(jobs, key=lambda job: (order[job.job_state], not job.pending, -int(job.id)))


def remember(job: SlurmJob, record: dict[str, Any]) -> str:
    """Return the argument of scontrol that notes a record in the job, after what others have written there."""
    others = _NOTE.sub("", job.admin_comment)
    note = f"{PREFIX} {json.dumps(record, separators=(',', ':'))}"
    return f"AdminComment={others} | {note}" if others else f"AdminComment={note}"


def _noted(comment: str) -> dict[str, Any]:
    match = _NOTE.search(comment)
    try:
        record = json.loads(match[1]) if match else {}
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
