"""Quarantine in Slurm: the node is drained with a reason that names the incident, so that no new job starts there.

On ParallelCluster a drained idle node is terminated (clustermgtd, setting terminate_drain_nodes), so there the node is set to
FAIL instead: Slurm starts nothing on it either, and clustermgtd only acts on DRAIN and DOWN. Source:
https://github.com/aws/aws-parallelcluster-node, src/slurm_plugin/slurm_resources.py (is_drained, is_state_healthy).
"""

from __future__ import annotations

import re
from datetime import datetime

from activities.errors import BadInput, NodeUnreachable, NotOurs, PreconditionFailed
from activities.inventory import Node
from activities.names import PREFIX
from activities.quarantine import Mark
from activities.settings_jobs import SlurmSettings
from activities.slurm import NodeNames, Slurm, SlurmNode

REASON_LIMIT = 900
"""Characters of the words in a reason. Hotspare default: Slurm keeps more, `sinfo -R` and people do not."""

_REASON = re.compile(rf"{PREFIX} (?P<owner>\S+) (?P<since>\d{{4}}-\S+):(?: (?P<words>.*))?", re.DOTALL)


class SlurmMarks:
    """The mark is the node's state and reason. Whoever drained a node first keeps it; another's reason is never changed."""

    def __init__(self, slurm: Slurm, settings: SlurmSettings) -> None:
        self._slurm = slurm
        self._state = "fail" if settings.flavour == "parallelcluster" else "drain"
        self.drain_replaces = settings.flavour == "parallelcluster"
        self.place = f"{self._state} in Slurm"

    def read(self, node: Node) -> Mark | None:
        found = self._slurm.names().slurm(node)
        return None if found is None or not found.kept_off else _mark(found)

    def write(self, node: Node, mark: Mark) -> None:
        found = _known(self._slurm.names(), node)
        if not found.kept_off:
            self._set(found, self._state, mark)

    def remove(self, node: Node) -> None:
        found = self._slurm.names().slurm(node)
        if found is None or not found.kept_off:
            return
        _mark(found)
        if not found.usable:
            raise NodeUnreachable(
                f"{node.name} is {_states(found)} in Slurm and would get no work; its slurmd must register first"
            )
        self._slurm.change("update", f"nodename={found.name}", "state=resume")

    def marked(self) -> set[str]:
        names = self._slurm.names()
        return {names.inventory_name(name) for name, found in names.by_name.items() if found.kept_off}

    def replace_by_drain(self, node: Node, owner: str) -> None:
        """On ParallelCluster: give the node up. clustermgtd terminates its instance and launches another under its name.

        A destructive step: evidence, budget and slot come first. Raises PreconditionFailed unless the node has this owner's
        mark and no job, NotOurs for another's.
        """
        found = _known(self._slurm.names(), node)
        held = _mark(found) if found.kept_off else None
        if not self.drain_replaces:
            raise PreconditionFailed(f"{node.name}: only ParallelCluster replaces a node that is drained")
        if held is None or held.owner != owner:
            raise PreconditionFailed(f"{node.name} is not quarantined by {owner}, so it is not given up")
        if found.states & {"ALLOCATED", "MIXED", "COMPLETING"}:
            raise PreconditionFailed(f"{node.name} is {_states(found)}: a job is still there; hold it first")
        self._set(found, "drain", held)

    def _set(self, found: SlurmNode, state: str, mark: Mark) -> None:
        self._slurm.change("update", f"nodename={found.name}", f"state={state}", f"reason={reason_of(mark)}")


def reason_of(mark: Mark) -> str:
    """Write a mark as a reason. It never reads Action:Reboot or Action:Replace, which are HyperPod's orders."""
    if not re.fullmatch(r"\S+", mark.owner):
        raise BadInput(f"{mark.owner!r} cannot stand in Slurm's reason: it has white space")
    return f"{PREFIX} {mark.owner} {mark.since.isoformat()}: {' '.join(mark.reason.split())[:REASON_LIMIT]}"


def mark_in(reason: str) -> Mark | None:
    """Read what `reason_of` wrote, None for any other reason."""
    match = _REASON.fullmatch(reason.strip())
    if match is None:
        return None
    try:
        return Mark(owner=match["owner"], reason=match["words"] or "", since=datetime.fromisoformat(match["since"]))
    except ValueError:
        return None


def _mark(found: SlurmNode) -> Mark:
    mark = mark_in(found.reason)
    if mark is None:
        raise NotOurs(
            f"{found.name} is {_states(found)} in Slurm, not by Hotspare: {found.reason[:200] or 'no reason is given'!r}"
        )
    return mark


def _known(names: NodeNames, node: Node) -> SlurmNode:
    found = names.slurm(node)
    if found is None:
        raise BadInput(
            f"Slurm has no node for {node.name} ({node.instance_id}, {node.ip or 'no address'}): neither NodeName, NodeHostName "
            f"nor NodeAddr is its own; Slurm's nodes: {', '.join(sorted(names.by_name)[:20])}"
        )
    return found


def _states(found: SlurmNode) -> str:
    return "+".join(sorted(found.states))
