"""What Cluster has seen of the fleet: its nodes, its spares, the leases on them, and when that was."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities import names
    from activities.host_records import SpareRecord
    from activities.inventory import InventoryActivities, ListNodes, Node
    from workflows import options
    from workflows.cluster_messages import FleetView
    from workflows.decisions.fleet_view import fleet_view

FLEET_AGE = timedelta(seconds=30)
"""How old the view of fleet and spares may be. Hotspare default: a storm costs two look-ups a minute."""


class Fleet:
    """The fleet as it was seen last."""

    def __init__(self) -> None:
        self.spares: list[Node] = []
        self.known: list[SpareRecord] = []
        self.nodes: list[Node] = []
        self.everybody: list[str] = []
        self.leased: set[str] = set()
        self.view = FleetView()
        self._seen_at = workflow.now() - 2 * FLEET_AGE

    def is_stale(self) -> bool:
        """Whether the last look is too old to judge by."""
        return workflow.now() - self._seen_at > FLEET_AGE

    async def look(self, cluster: str) -> None:
        """Look at the inventory. Raises ActivityError when it cannot be read."""
        seen = await workflow.execute_activity_method(
            InventoryActivities.list_nodes,
            ListNodes(cluster=cluster, spares=True),
            summary="the fleet and its spares",
            **options.LOOK_UP,
        )
        self.spares = [node for node in seen.nodes if node.role == names.ROLE_SPARE]
        self.known = seen.spares
        self.nodes = seen.nodes
        self.everybody = [node.instance_id for node in seen.nodes]
        self.leased = {node.instance_id for node in seen.nodes if node.lease}
        self.view = fleet_view(seen.nodes)
        self._seen_at = workflow.now()
