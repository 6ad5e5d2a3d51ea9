"""What workflows ask of the activities on training jobs, and what those answer."""

from __future__ import annotations

from activities.inventory import Node
from activities.jobs.protocol import JobStatus
from activities.message import Message


class FindJob(Message):
    """Ask for the job that has the node in its node set."""

    cluster: str
    node: Node


class FoundJob(Message):
    """The job's status, or None when no job has the node."""

    status: JobStatus | None = None


class LookAtJob(Message):
    """Ask for a job's status by its name."""

    job: str


class HoldJob(Message):
    """Stop a job and keep it stopped. `take_over`: also one that its controller restarts, because that one has not managed.

    `unless_controlled`: a job that its controller restarts is left alone, and its status is the answer. With neither: NotOurs.
    """

    job: str
    reason: str
    take_over: bool = False
    unless_controlled: bool = False


class ResumeJob(Message):
    """Start a job from its last good checkpoint on exactly these nodes (inventory names), once per token."""

    job: str
    nodes: list[str]
    token: str


class AwaitProgress(Message):
    """Wait until the run that `token` made has stepped past `beyond_step`.

    Without `deadline_s` the setting job.progress_deadline_s holds.
    """

    job: str
    token: str
    beyond_step: int
    deadline_s: float | None = None


class SupplyOfNode(Message):
    """A node that was supplied to a job, or may have been. An empty `job` means whichever job that was."""

    job: str
    node: Node


class AwaitController(Message):
    """Wait until a job's controller has it running again: without the nodes `out`, past `beyond_step`.

    The nodes `supply` are given to this job while it waits; each has passed its tests. Without `deadline_s` the setting
    job.controller_deadline_s holds.
    """

    job: str
    supply: list[str] = []
    out: list[str] = []
    beyond_step: int
    deadline_s: float | None = None


class AwaitBoundary(Message):
    """Wait until the job leaves a node by itself, or has written a checkpoint later than `checkpoint_step`."""

    job: str
    node_name: str
    checkpoint_step: int | None = None
    deadline_s: float


class AwaitRank(Message):
    """Wait until a rank of the job runs on a node."""

    job: str
    node_name: str
    deadline_s: float
