"""Launches group runs of all_reduce_perf with srun, as one job of Slurm on the group's nodes.

Slurm starts nothing on a drained node. One that we have drained is resumed for a moment, behind a reservation that keeps
everybody else off, and drained again as soon as the job has it: the job runs on, and the mark is what it was. Should Hotspare die
in that moment, the reservation stays, so nobody gets the node; the next try, or the end of the run, takes it up from there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from activities.clients.launching import around, filled, run_with_output, words_of
from activities.clock import Clock, SystemClock, beat
from activities.errors import CapabilityMissing, HotspareError, PreconditionFailed
from activities.inventory import Node
from activities.names import PREFIX, is_incident
from activities.node_access import DetachedRun, NodeAccess
from activities.quarantine import Mark
from activities.settings_burn_in import BurnInSettings
from activities.slurm import Slurm
from activities.slurm_marks import SlurmMarks

LOOK_S = 0.5
"""Seconds between looks at a job that is about to start. Hotspare default."""

FENCE_MARGIN_S = 600.0
"""How long a reservation outlasts its run, if nobody takes it away. Hotspare default: an absent worker is back by then."""


class SrunLauncher:
    """`BurnInLauncher` by srun on the launch host. The job is known by a name made of the run id."""

    def __init__(
        self,
        access_to_host: Callable[[], NodeAccess],
        slurm: Slurm,
        marks: SlurmMarks,
        settings: BurnInSettings,
        clock: Clock | None = None,
    ) -> None:
        self._access_to_host, self._slurm, self._marks = access_to_host, slurm, marks
        self._settings = settings
        self._clock = clock or SystemClock()

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None:
        names = self._slurm.names()
        called = [names.slurm_name(node.name) for node in nodes]
        job = job_name(run_id)
        drained = self._drained(nodes, broken_off=job in self._slurm.reservations())
        more = {
            "SLURM_JOB_NAME": job,
            "SLURM_TIMELIMIT": str(_minutes(deadline_s)),
            **({"SLURM_RESERVATION": job} if drained else {}),
        }
        words = words_of(self._settings, nodes, called) | {"{start_s}": str(math.ceil(self._settings.slurm_start_s))}
        command = filled(self._settings.srun_command, words)
        line = around(self._settings, command, run_id, nodes, more)
        limit_s = deadline_s + self._settings.slurm_start_s
        if not drained:
            self._access_to_host().start(run_id, line, limit_s)
            return
        self._reserve(job, called)
        try:
            for node, _ in drained:
                self._marks.remove(node)
            self._access_to_host().start(run_id, line, limit_s)
            self._until_begun(job)
        except BaseException:
            self._drain_again(drained)
            self._free(job)
            raise
        self._drain_again(drained)
        self._slurm.change("update", f"reservationname={job}", f"duration={_minutes(limit_s + FENCE_MARGIN_S)}")

    def poll(self, run_id: str, nodes: Sequence[Node] = ()) -> DetachedRun:
        run = run_with_output(self._access_to_host(), run_id, self._settings)
        if run.known and run.exit_status is not None:
            self._end(job_name(run_id))
        return run

    def kill(self, run_id: str, nodes: Sequence[Node] = ()) -> None:
        try:
            self._access_to_host().kill(run_id)
        finally:
            self._end(job_name(run_id))

    def _drained(self, nodes: list[Node], *, broken_off: bool) -> list[tuple[Node, Mark]]:
        """Return the nodes that we keep new work off, with their marks. Raises NotOurs for what somebody else has drained.

        Only a try that was `broken_off`, as its reservation shows, has left nodes without the mark that they had. What is known
        of a node's quarantine otherwise may be older than its lifting.
        """
        lost = _lost_mark if broken_off else _no_mark
        found = [(node, mark) for node in nodes if (mark := self._marks.read(node) or lost(node)) is not None]
        if found and self._marks.drain_replaces:
            raise CapabilityMissing(
                f"{', '.join(node.name for node, _ in found)}: on ParallelCluster a quarantined node is in FAIL, where Slurm "
                'starts nothing, and is not taken out of it for a test; set burn_in.launcher = "mpirun", or test it alone'
            )
        return found

    def _drain_again(self, drained: list[tuple[Node, Mark]]) -> None:
        """Put every mark back; a node with which that fails keeps no other from having its own."""
        failed: list[Exception] = []
        for node, mark in drained:
            try:
                self._marks.write(node, mark)
            except HotspareError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _reserve(self, job: str, names: list[str]) -> None:
        """Keep everybody else off the nodes, for as long as it takes; one of an earlier try holds on."""
        if job in self._slurm.reservations():
            return
        self._slurm.change(
            "create",
            "reservation",
            f"reservationname={job}",
            f"users={self._slurm.user()}",
            f"nodes={','.join(names)}",
            "starttime=now",
            "duration=infinite",
            "flags=ignore_jobs",
        )

    def _until_begun(self, job: str) -> None:
        """Wait until the job has its nodes; one that gets none says so itself."""
        until = self._clock.now() + self._settings.slurm_start_s
        while self._clock.now() < until and "RUNNING" not in self._slurm.states_named(job):
            beat()
            self._clock.wait(LOOK_S)

    def _end(self, job: str) -> None:
        """End what Slurm still has of the run, and take its reservation away once every node has its mark."""
        self._slurm.cancel_named(job)
        self._drain_what_was_left(job)
        self._free(job)

    def _drain_what_was_left(self, job: str) -> None:
        """Give the marks back that a start took away and then died: its reservation has no end yet, so nobody has the nodes."""
        if not (fenced := self._slurm.endless_on(job)):
            return
        names = self._slurm.names()
        nodes = [node for name in fenced if (node := names.node(name)) is not None and is_incident(node.quarantine)]
        self._drain_again([(node, mark) for node in nodes if (mark := _lost_mark(node)) is not None])
        self._slurm.change("update", f"reservationname={job}", f"endtime=now+{math.ceil(FENCE_MARGIN_S / 60)}minutes")

    def _free(self, job: str) -> None:
        """Take a reservation away, where there is one; one in use goes by itself when its time is up."""
        if job in self._slurm.reservations():
            try:
                self._slurm.change("delete", f"reservationname={job}")
            except HotspareError as error:
                if "in use" not in str(error).lower() and "busy" not in str(error).lower():
                    raise


def job_name(run_id: str) -> str:
    """The name of a run's job and reservation."""
    return f"{PREFIX}-burn-in-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def _no_mark(node: Node) -> Mark | None:
    return None


def _lost_mark(node: Node) -> Mark | None:
    """The mark of a node that is quarantined and has none: an earlier try was broken off while it was away."""
    if not node.quarantine:
        return None
    if not is_incident(node.quarantine):
        raise PreconditionFailed(f"{node.name} is quarantined by {node.quarantine}, which is not ours")
    return Mark(owner=node.quarantine, reason="quarantined before a group run", since=datetime.now(UTC))
