"""One all-reduce run over a group of nodes: start it detached, poll it, judge its output, kill it on cancel."""

from __future__ import annotations

from typing import Protocol

from activities.inventory import Node
from activities.message import Message
from activities.node_access import DetachedRun
from checks.model import Verdict


class GroupTest(Message):
    """Run the all-reduce over `nodes` as one group. `run_id` makes it resumable: the same id is never run twice."""

    cluster: str
    run_id: str
    nodes: list[Node]
    deadline_s: float = 600.0


class GroupTestResult(Message):
    """Judgement of a group run. `cause` is a word of the judges: healthy, low_bandwidth, data_corruption, hang, could_not_run..."""

    verdict: Verdict
    cause: str
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    floor_source: str = ""
    wrong: int | None = None
    evidence: str = ""


class BurnInLauncher(Protocol):
    """Starts `all_reduce_perf` over a group of nodes. Raises NodeUnreachable (of the launch host), CapabilityMissing."""

    def start(self, run_id: str, nodes: list[Node], deadline_s: float) -> None: ...

    def poll(self, run_id: str) -> DetachedRun: ...

    def kill(self, run_id: str) -> None: ...
