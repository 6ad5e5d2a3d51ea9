"""What the control side knows of a node before anyone looks at it: its inventory entry and its host record, in one look-up."""

from __future__ import annotations

from temporalio import activity

from activities.errors import as_application_error
from activities.host_memory import HostMemory, HostRecord, without_faults
from activities.inventory import Inventory, Node, ResolveNode
from activities.message import Message


class Briefing(Message):
    """A node and what is remembered of it."""

    node: Node
    record: HostRecord


class BriefingActivities:
    """One look-up instead of two: an incident's history stays short."""

    def __init__(self, inventory: Inventory, memory: HostMemory) -> None:
        self._inventory = inventory
        self._memory = memory

    @activity.defn
    def brief(self, request: ResolveNode) -> Briefing:
        """Find the node behind an alias and recall its host record. Raises UnknownNode with the nearest names."""
        with as_application_error():
            node = self._inventory.resolve(request.cluster, request.alias)
            return Briefing(node=node, record=without_faults(self._memory.recall(node.instance_id)))
