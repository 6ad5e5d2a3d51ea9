"""Quarantine: no new work on a node, nothing evicted. It has an owner (an incident), and only that owner lifts it.

It is marked twice: an EC2 tag, and a mark that the job launcher honours (`LauncherMarks`): a file on the head node, a cordon of
Kubernetes, a drain of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from temporalio import activity

from activities import names
from activities.ec2 import Ec2Client
from activities.effects import refuse_if_late
from activities.errors import BadInput, CommandFailed, NotOurs, as_application_error
from activities.inventory import Inventory, Node
from activities.message import Message
from activities.node_access import AccessTo

QUARANTINE_DIR = "/etc/hotspare/quarantined.d"
"""Folder on the head node; a file named as the node means that no job may start on it."""

HEAD_DEADLINE_S = 20.0
"""Seconds for one look or write on the head node. Hotspare default."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

READ = f'f="${{HOTSPARE_HOST_ROOT:-}}{QUARANTINE_DIR}/$1"; [ ! -e "$f" ] || cat "$f"'
LIST = f'd="${{HOTSPARE_HOST_ROOT:-}}{QUARANTINE_DIR}"; [ ! -d "$d" ] || ls "$d"'
REMOVE = f'rm -f "${{HOTSPARE_HOST_ROOT:-}}{QUARANTINE_DIR}/$1"'
WRITE = f"""d="${{HOTSPARE_HOST_ROOT:-}}{QUARANTINE_DIR}"; mkdir -p "$d" || exit 1
t="$d/.$1.$$"; printf '%s\n' "$2" > "$t" || exit 1
ln "$t" "$d/$1" 2>/dev/null || [ -e "$d/$1" ]; s=$?; rm -f "$t"; exit $s"""
"""Shell for the head node. `ln` fails on an existing name, so of two writers one wins and neither leaves half a file."""


class QuarantineNode(Message):
    """Take a node out of service for `incident`."""

    node: Node
    incident: str
    reason: str


class LiftQuarantine(Message):
    """Put a node back into service; refused (NotOurs) unless `incident` owns the quarantine."""

    node: Node
    incident: str


class QuarantineState(Message):
    """Who holds the node out, empty if nobody; and since when where known. Without an owner `reason` says who else does."""

    owner: str = ""
    reason: str = ""
    since: datetime | None = None


class Mark(Message):
    """What the launcher's mark says: who keeps work off the node, why, since when."""

    owner: str
    reason: str
    since: datetime


class LauncherMarks(Protocol):
    """What keeps the job launcher off a node. Each mark names its owner; one that we did not write is never changed."""

    place: str
    """Where the mark is, as a reason names it: "file on the head node", "cordon"."""

    def read(self, node: Node) -> Mark | None:
        """Return the mark, or None. Raises NotOurs, with the words found, where somebody else keeps work off the node."""
        ...

    def write(self, node: Node, mark: Mark) -> None:
        """Keep new work off the node, evicting nothing. A mark that is there already stays as it is, whoever wrote it."""
        ...

    def remove(self, node: Node) -> str | None:
        """Let work onto the node again where the mark is ours; nothing where there is none. A spare stays out of others' reach.

        Returns who else keeps work off the node still, where that is known to have come in addition.
        Raises TransientError while the launcher would not use the node anyway (not Ready, GPUs not allocatable).
        """
        ...

    def marked(self) -> set[str]:
        """Return the names, as the inventory has them, of all nodes that something keeps work off, whoever did it."""
        ...


class HeadFileMarks:
    """The mark as a file on the head node that the launcher of the job adapter `command` honours."""

    place = "file on the head node"

    def __init__(self, head: str, access_to: AccessTo, inventory: Inventory, sudo: bool = False) -> None:
        self._head = head
        self._access_to = access_to
        self._inventory = inventory
        self._sudo = ["sudo", "-n"] if sudo else []

    def marked(self) -> set[str]:
        return {line for line in self._ask_head([LIST, "sh"], "the quarantine files").splitlines() if line}

    def read(self, node: Node) -> Mark | None:
        text = self._on_head(READ, node).strip()
        if not text:
            return None
        try:
            return Mark.model_validate_json(text)
        except ValueError as error:
            raise NotOurs(
                f"the quarantine file of {node.name} on {self._head} was not written by Hotspare: {text[:200]!r}"
            ) from error

    def write(self, node: Node, mark: Mark) -> None:
        self._on_head(WRITE, node, mark.model_dump_json())

    def remove(self, node: Node) -> None:
        self._on_head(REMOVE, node)

    def _on_head(self, script: str, node: Node, *arguments: str) -> str:
        if not _SAFE_NAME.fullmatch(node.name):
            raise BadInput(f"{node.name!r} cannot be a file name, so it cannot be quarantined on {self._head}; rename the node")
        return self._ask_head([script, "sh", node.name, *arguments], f"the quarantine file of {node.name}")

    def _ask_head(self, words: list[str], what: str) -> str:
        head = self._inventory.resolve("", self._head)
        answer = self._access_to(head).run([*self._sudo, "sh", "-c", *words], HEAD_DEADLINE_S)
        if answer.exit_status != 0:
            raise CommandFailed(
                f"{what} on {head.name}: {answer.stderr.strip()[-300:]}; "
                f"the user needs to write {QUARANTINE_DIR} (or set [access] sudo = true)"
            )
        return answer.stdout


class QuarantineMarks:
    """Reads and writes both marks of a node's quarantine: the EC2 tag, and that of the job launcher where there is one."""

    def __init__(self, ec2: Ec2Client, launcher: LauncherMarks | None) -> None:
        self._ec2 = ec2
        self._launcher = launcher

    def owner(self, node: Node) -> str:
        """Return who holds the node out by either mark, empty if nobody."""
        mark = self.mark(node)
        return self.tag(node) or (mark.owner if mark else "")

    def owners(self, nodes: list[Node]) -> dict[str, str]:
        """Return who holds out which of these nodes, by node name, with one look at the launcher's marks for all of them.

        Tags come from the inventory, which may be some seconds old, so one that says "quarantined" is read again.
        """
        marked = self.marked()
        suspects = [node for node in nodes if node.name in marked or node.quarantine or not self.at_launcher]
        owners = {node.name: self._owner_or_who_else(node) for node in suspects}
        return {name: owner for name, owner in owners.items() if owner}

    def _owner_or_who_else(self, node: Node) -> str:
        try:
            return self.owner(node)
        except NotOurs as error:
            return f"somebody else ({error})"

    @property
    def at_launcher(self) -> bool:
        """Whether there is a launcher whose marks keep jobs off nodes."""
        return self._launcher is not None

    @property
    def place(self) -> str:
        """Where the launcher's mark is, for reasons."""
        return self._launcher.place if self._launcher else ""

    def marked(self) -> set[str]:
        """Return the names of nodes that the launcher keeps jobs off, whoever told it so."""
        return self._launcher.marked() if self._launcher else set()

    def tag(self, node: Node) -> str:
        """Return the incident that the tag names, empty if none."""
        return self._ec2.describe(node.instance_id).tags.get(names.TAG_QUARANTINE, "")

    def in_pool(self, node: Node) -> bool:
        """Whether the node is a spare. The inventory may be some seconds old, so one that says so is read again."""
        if node.role != names.ROLE_SPARE:
            return False
        return self._ec2.describe(node.instance_id).tags.get(names.TAG_ROLE, "") == names.ROLE_SPARE

    def set_tag(self, node: Node, owner: str) -> None:
        self._ec2.set_tags(node.instance_id, {names.TAG_QUARANTINE: owner})

    def remove_tag(self, node: Node) -> None:
        self._ec2.remove_tags(node.instance_id, [names.TAG_QUARANTINE])

    def mark(self, node: Node) -> Mark | None:
        """Return the launcher's mark, or None. Raises NotOurs for one that is somebody else's."""
        return self._launcher.read(node) if self._launcher else None

    def write_mark(self, node: Node, mark: Mark) -> None:
        """Write the launcher's mark unless there is one already: whoever came first keeps it."""
        if self._launcher:
            self._launcher.write(node, mark)

    def remove_mark(self, node: Node) -> str:
        """Remove the launcher's mark; returns who else keeps work off the node still, empty if nobody is known to."""
        return (self._launcher.remove(node) or "") if self._launcher else ""


class QuarantineActivities:
    """Takes nodes out of service and puts them back. The launcher's mark comes first and the tag last, so the tag proves both."""

    def __init__(self, marks: QuarantineMarks, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._marks = marks
        self._now = now

    @activity.defn
    def quarantine_node(self, request: QuarantineNode) -> QuarantineState:
        """Take a node out of service; NotOurs when somebody else holds it out."""
        with as_application_error():
            node = request.node
            self._refuse_others(node, request.incident)
            self._marks.write_mark(node, Mark(owner=request.incident, reason=request.reason, since=self._now()))
            mark = self._refuse_others(node, request.incident)
            refuse_if_late()
            if self._marks.tag(node) != request.incident:
                self._marks.set_tag(node, request.incident)
            return _state(request.incident, mark)

    @activity.defn
    def lift_quarantine(self, request: LiftQuarantine) -> QuarantineState:
        """Put a node back into service; NotOurs when the quarantine is not the incident's."""
        with as_application_error():
            self._refuse_others(request.node, request.incident)
            refuse_if_late()
            left = self._marks.remove_mark(request.node)
            if self._marks.tag(request.node):
                self._marks.remove_tag(request.node)
            return QuarantineState(reason=left)

    def _refuse_others(self, node: Node, incident: str) -> Mark | None:
        mark, tag = self._marks.mark(node), self._marks.tag(node)
        for place, owner in (("EC2 tag", tag), (self._marks.place, mark.owner if mark else "")):
            if owner not in ("", incident):
                raise NotOurs(f"{node.name} is quarantined by {owner} ({place}), not by {incident}; it was left alone")
        return mark


def _state(owner: str, mark: Mark | None) -> QuarantineState:
    if mark is None:
        return QuarantineState(owner=owner)
    return QuarantineState(owner=owner, reason=mark.reason, since=mark.since)
