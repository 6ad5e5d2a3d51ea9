"""What incidents and replacements leave on nodes while they run: read in one look, so that what was left behind can be told.

Only nodes that bear a trace are told of; their tags are read anew, because an inventory may be some seconds old.
"""

from __future__ import annotations

from temporalio import activity

from activities import names
from activities.ec2 import Ec2Client
from activities.errors import HotspareError, NotOurs, as_application_error
from activities.host_memory import HostMemory
from activities.inventory import Inventory, Node
from activities.jobs.protocol import JobAdapter
from activities.message import Message
from activities.quarantine import QuarantineMarks


class FindTraces(Message):
    """Look for traces on the nodes of a cluster; with `only`, on these instances alone."""

    cluster: str
    only: list[str] = []


class Trace(Message):
    """A node with a trace of ours, or of somebody else.

    `mark` is the owner that the file on the head node names, empty without a file; `foreign_mark`: there is one that is not
    ours. `remembered` is the fate that host memory has. `job` has the node in its node set: empty for none, None where nobody
    could say.
    """

    node: Node
    mark: str = ""
    foreign_mark: bool = False
    remembered: str = ""
    job: str | None = ""


class StrayMark(Message):
    """A quarantine file on the head node for a name that no node has."""

    node_name: str
    owner: str


class Traces(Message):
    """Everything found. `marks_unread` says why the head node could not be read; empty: it was, or there is none to read."""

    nodes: list[Trace] = []
    strays: list[StrayMark] = []
    has_marks: bool = True
    marks_unread: str = ""


class ReconcileActivities:
    """Looks for traces; changes nothing."""

    def __init__(
        self, ec2: Ec2Client, inventory: Inventory, marks: QuarantineMarks, memory: HostMemory, jobs: JobAdapter
    ) -> None:
        self._ec2 = ec2
        self._inventory = inventory
        self._marks = marks
        self._memory = memory
        self._jobs = jobs

    @activity.defn
    def find_traces(self, request: FindTraces) -> Traces:
        """Return every node with a tag or file that an incident or a replacement writes, and instances that do not come up."""
        with as_application_error():
            nodes = [node for node in self._inventory.list(request.cluster) if node.role != names.ROLE_HEAD]
            marked, unread = self._marked()
            known = {node.name for node in nodes}
            wanted = [node for node in nodes if not request.only or node.instance_id in request.only]
            bearing = [node for node in wanted if _bears_a_trace(node) or node.name in marked]
            return Traces(
                nodes=[self._trace(node, marked) for node in bearing],
                strays=[stray for name in sorted(marked - known) if (stray := self._stray(name)) is not None],
                has_marks=self._marks.at_launcher,
                marks_unread=unread,
            )

    def _marked(self) -> tuple[set[str], str]:
        try:
            return self._marks.marked(), ""
        except HotspareError as error:  # one blind spot does not hide the rest
            return set(), str(error)

    def _trace(self, node: Node, marked: set[str]) -> Trace:
        fresh = self._fresh(node)
        owner, foreign = self._mark_of(fresh.name) if node.name in marked else ("", False)
        return Trace(
            node=fresh,
            mark=owner,
            foreign_mark=foreign,
            remembered=self._memory.recall(node.instance_id).fate,
            job=self._job_of(fresh) if fresh.lease else "",
        )

    def _fresh(self, node: Node) -> Node:
        seen = self._ec2.describe(node.instance_id)
        tags = {
            "role": names.TAG_ROLE,
            "quarantine": names.TAG_QUARANTINE,
            "lease": names.TAG_LEASE,
            "replaces": names.TAG_REPLACES,
            "fate": names.TAG_FATE,
            "stood_back": names.TAG_STOOD_BACK,
        }
        told = {field: seen.tags.get(tag, "") for field, tag in tags.items()}
        return node.model_copy(update={**told, "role": told["role"] or node.role, "state": seen.state})

    def _mark_of(self, name: str) -> tuple[str, bool]:
        """Return the owner that a file names, and whether it is a file that somebody else wrote."""
        try:
            mark = self._marks.mark(Node(instance_id="", name=name))
        except NotOurs:
            return "", True
        return (mark.owner, False) if mark else ("", False)

    def _stray(self, name: str) -> StrayMark | None:
        owner, foreign = self._mark_of(name)
        return None if foreign or not owner else StrayMark(node_name=name, owner=owner)

    def _job_of(self, node: Node) -> str | None:
        try:
            found = self._jobs.find_on(node)
        except HotspareError:
            return None
        return found.job if found else ""


def _bears_a_trace(node: Node) -> bool:
    returned = node.role == names.ROLE_SPARE and node.replaces
    return bool(node.quarantine or node.lease or node.stood_back or returned or node.state == "pending")
