"""What the control side knows of a node before anyone looks at it: its inventory entry and its host record, in one look-up."""

from __future__ import annotations

from temporalio import activity

from activities.errors import as_application_error
from activities.giving_up import NoReplacer, Replacer
from activities.healers import Healers
from activities.host_memory import HostMemory, HostRecord, without_faults
from activities.inventory import Inventory, Node, ResolveNode
from activities.message import Message
from activities.owners import Owner, owner_of


class Briefing(Message):
    """A node, what is remembered of it, who else repairs it, and whether pods are moved off it before it restarts.

    `owner`: why nobody but its owner may disrupt or replace it, empty where Hotspare may. `doubts`: why it is not known of some
    of `healers` whether they are there. `drain_replaces`: whoever runs the cluster replaces a node that is drained.
    """

    node: Node
    record: HostRecord
    healers: list[str] = []
    owner: str = ""
    drains: bool = False
    doubts: list[str] = []
    owned_by: Owner = Owner.EC2
    drain_replaces: bool = False


class BriefingActivities:
    """One look-up instead of two: an incident's history stays short."""

    def __init__(
        self,
        inventory: Inventory,
        memory: HostMemory,
        healers: Healers,
        drains: bool = False,
        replacer: Replacer | None = None,
    ) -> None:
        self._inventory = inventory
        self._memory = memory
        self._healers = healers
        self._drains = drains
        self._replacer = replacer or NoReplacer()

    @activity.defn
    def brief(self, request: ResolveNode) -> Briefing:
        """Find the node behind an alias and recall its host record. Raises UnknownNode with the nearest names."""
        with as_application_error():
            node = self._inventory.resolve(request.cluster, request.alias)
            found = self._healers.found(node)
            return Briefing(
                node=node,
                record=without_faults(self._memory.recall(node.instance_id)),
                healers=[healer.words for healer in found],
                owner=next((healer.owns for healer in found if healer.owns), ""),
                drains=self._drains,
                owned_by=owner_of(node.owner, [healer.kind for healer in found]),
                drain_replaces=self._replacer.drain_replaces,
                doubts=[healer.doubt for healer in found if healer.doubt],
            )
