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

    `run_token` is the token of the resume that made the present run, empty if none did.
    """

    job: str
    state: JobState
    nodes: list[str] = []
    step: int | None = None
    checkpoint_step: int | None = None
    run_token: str = ""
    restarted_by: RestartedBy = RestartedBy.HOTSPARE
    seconds_per_step: float | None = None


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
