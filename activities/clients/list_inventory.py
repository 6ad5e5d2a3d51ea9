"""The inventory of a cluster whose nodes are named in the settings file. Their state and our tags are still read from EC2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from activities.clients.aliases import KnownNode
from activities.clients.cached_inventory import CachedInventory
from activities.clients.tag_inventory import known_node
from activities.ec2 import Ec2Client
from activities.errors import BadInput, UnknownNode
from activities.settings import ListedNode


class ListInventory(CachedInventory):
    """`Inventory` by list. It has one cluster; asking for another is a mistake. A listed instance that is gone is left out."""

    def __init__(
        self,
        ec2: Ec2Client,
        cluster: str,
        listed: Sequence[ListedNode],
        cache_s: float = 10.0,
        now: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(cluster, cache_s, now)
        self._ec2, self._listed = ec2, listed
        names = [entry.name for entry in listed]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"[inventory] nodes: listed more than once: {', '.join(twice)}")

    def _look(self, cluster: str) -> Sequence[KnownNode]:
        if cluster != self._cluster:
            raise BadInput(f"the settings file lists the nodes of cluster {self._cluster}, not of {cluster}")
        found = [entry for listed in self._listed if (entry := self._entry(listed)) is not None]
        return [entry for entry in found if entry.node.state not in ("shutting-down", "terminated")]

    def _entry(self, listed: ListedNode) -> KnownNode | None:
        try:
            seen = known_node(self._ec2.describe(listed.instance_id))
        except UnknownNode:
            return None
        node = seen.node.model_copy(update={"name": listed.name, "host": listed.host, "role": listed.role})
        return KnownNode(node, (seen.node.name, *seen.more_names))
