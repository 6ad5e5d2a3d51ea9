"""What an adapter must do for a job system. How to add one: see README.md in this folder."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from activities.inventory import Node
from activities.message import Message


class JobState(StrEnum):
    """RUNNING: ranks exist. STOPPED: provably no rank, no GPU in use. HELD: stopped, kept from starting. UNKNOWN: cannot tell."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    HELD = "HELD"
    UNKNOWN = "UNKNOWN"


class RestartedBy(StrEnum):
    """Who restarts the job after a failure. Where it is not `hotspare`, we never do."""

    HOTSPARE = "hotspare"
    CONTROLLER = "controller"
    IN_JOB = "in_job"


class JobStatus(Message):
    """One look at a job. `step` and `checkpoint_step` are counters of the training loop, None where not known.

    `run_token` is the token of the resume that made the present run, empty if none did. `nodes` is the node set: where ranks run
    or, when they do not, where they ran or are bound to start. `ranks_on` are the nodes on which a rank runs at this moment, None
    where the job system cannot tell (then a running job has one on each of `nodes`). `starting_on` are those of them where it has
    its place but does not work: its process is not up, or was started again a moment ago. `restarts_left` is what is left of the
    budget of whoever restarts the job, None without a bound or where not known. `controller` names who that is ("JobSet train",
    "Kueue"). `held_for` is our reason where we hold a job that its controller would start; `ended` how it
    ended for good, after which its controller starts it no more. `waits_for` says why ranks that should
    run do not ("2 pods cannot be scheduled: ..."). `warnings` are the linter's: why this job will not come back by itself, each
    with the setting that mends it.
    """

    job: str
    state: JobState
    nodes: list[str] = []
    step: int | None = None
    checkpoint_step: int | None = None
    run_token: str = ""
    restarted_by: RestartedBy = RestartedBy.HOTSPARE
    seconds_per_step: float | None = None
    ranks_on: list[str] | None = None
    starting_on: list[str] = []
    restarts_left: int | None = None
    controller: str = ""
    held_for: str = ""
    ended: str = ""
    waits_for: str = ""
    warnings: list[str] = []

    @property
    def ours(self) -> bool:
        """Whether Hotspare may hold and start the job: nobody else restarts it, or we hold it against its controller."""
        return self.restarted_by is RestartedBy.HOTSPARE or (self.state is JobState.HELD and bool(self.held_for))

    def may_have_ranks_on(self, node_name: str) -> bool:
        """Whether a rank of the job runs on a node or, where nothing can be seen of the node, may."""
        return node_name in self.ranks_on if self.ranks_on is not None else self.runs_on(node_name)

    def runs_on(self, node_name: str) -> bool:
        """Whether a rank of the job works on a node now. One that crashes and is started again and again does not."""
        there = node_name in (self.nodes if self.ranks_on is None else self.ranks_on)
        return self.state is JobState.RUNNING and there and node_name not in self.starting_on


class JobAdapter(Protocol):
    """One job system. Node lists are inventory node names. Raises NodeUnreachable, BadInput (unreadable answer), NotOurs."""

    def find_on(self, node: Node) -> JobStatus | None:
        """Return the job that has the node in its node set, running or not, or None."""
        ...

    def status(self, job: str) -> JobStatus:
        """Look at a job."""
        ...

    def hold(self, job: str, reason: str) -> JobStatus:
        """Stop the job and keep it stopped; returns when provably stopped. Holding a held job is no error."""
        ...

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        """Start the job from its last good checkpoint on exactly these nodes, once per token."""
        ...

    def settle(self, job: str, nodes: list[str]) -> None:
        """Do what a resume onto these nodes still had to do when the job had started and the worker that made it died."""
        ...

    def supply(self, job: str, node: Node) -> None:
        """Let this job, and no other, use a node, where its controller restarts it; asked again while the job's ranks wait.

        CapabilityMissing where a resume names the nodes.
        """
        ...

    def take_back(self, job: str, node: Node) -> None:
        """Undo `supply`: the node is a free spare again, which no job may use. Nothing where nothing was supplied.

        With an empty job: whichever job it was supplied to.
        """
        ...

    def leave(self, job: str, node: Node) -> None:
        """Move the job's ranks off a node, where its controller starts them again elsewhere; asked again until none runs there.

        The controller may count it as a restart. CapabilityMissing where only a hold stops the job.
        """
        ...
