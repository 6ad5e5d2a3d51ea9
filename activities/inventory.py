"""Who the nodes are: one inventory resolves every alias (name, IP, host:port) to the EC2 instance id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from temporalio import activity

from activities.errors import as_application_error
from activities.host_records import SpareRecord
from activities.message import Message


class Node(Message):
    """One node of the cluster as the inventory knows it.

    `instance_id` is the key everywhere. `host` is what the SSH configuration calls it. `spine` is the network spine or
    rack where known, `zone` the availability zone: a spare near the job is chosen by them; with `placement_group` they are the
    failure domains. So is `nvlink_domain`, the UltraServer whose trays share NVLink: a job on its nodes can use no others. `pool`
    is the tag, else the instance type. `quarantine`, `lease`, `fate` and `opt_out` (why the node is to be left alone) are the
    values of our tags, empty where not set; so are `replaces` and `stood_back` (for whom other healers stand back). `image` is
    the AMI that the instance was launched from, `group` the Auto Scaling group that it is a member of, `owner` whose it is by its
    tags (`activities.owners`). `reservation` is the capacity reservation or Capacity Block that the instance runs in.
    """

    instance_id: str
    name: str
    ip: str = ""
    host: str = ""
    role: str = "worker"
    instance_type: str = ""
    zone: str = ""
    spine: str = ""
    state: str = "running"
    gpus: int = 0
    quarantine: str = ""
    lease: str = ""
    fate: str = ""
    placement_group: str = ""
    nvlink_domain: str = ""
    pool: str = ""
    opt_out: str = ""
    image: str = ""
    group: str = ""
    owner: str = ""
    stood_back: str = ""
    replaces: str = ""
    reservation: str = ""
    launched_at: datetime | None = None

    def domains(self) -> list[str]:
        """The failure domains that the node is in, as limits, freezes and reasons name them."""
        return domains_of(self.zone, self.placement_group, self.spine, self.nvlink_domain)

    def pool_name(self) -> str:
        """The pool that the node belongs to: its tag, else its instance type."""
        return self.pool or self.instance_type


def domains_of(zone: str, placement_group: str, spine: str, nvlink_domain: str = "") -> list[str]:
    """Name the failure domains of a place, the largest first; what is not known is no domain."""
    kinds = (("zone", zone), ("placement-group", placement_group), ("rack", spine), ("nvlink", nvlink_domain))
    return [f"{kind}:{name}" for kind, name in kinds if name]


class ResolveNode(Message):
    """`alias` is any name of the node: instance id, node name, short host name, IP, or IP:port."""

    cluster: str
    alias: str


class ListNodes(Message):
    """Ask for the nodes of a cluster; empty `roles` means all but the head node. `spares`: what is known of the spares too."""

    cluster: str
    roles: list[str] = []
    spares: bool = False


class Nodes(Message):
    """The answer to `ListNodes`. `spares` is what host memory has of the spares, where that was asked for and could be read."""

    nodes: list[Node] = []
    spares: list[SpareRecord] = []


class Inventory(Protocol):
    """Where nodes are looked up."""

    def resolve(self, cluster: str, alias: str) -> Node:
        """Return the one node with this alias. Raises UnknownNode (with the nearest names) or BadInput (ambiguous).

        An empty `cluster` means the inventory's own, here and in `list`.
        """
        ...

    def list(self, cluster: str) -> list[Node]:
        """Return every node of the cluster, head nodes included, terminated ones not."""
        ...


class InventoryActivities:
    """Look-ups by workflows."""

    def __init__(self, inventory: Inventory, known: Callable[[Sequence[Node]], list[SpareRecord]] | None = None) -> None:
        """`known` tells what is remembered of the spares among nodes."""
        self._inventory = inventory
        self._known = known

    @activity.defn
    def resolve_node(self, request: ResolveNode) -> Node:
        """Find the node behind an alias."""
        with as_application_error():
            return self._inventory.resolve(request.cluster, request.alias)

    @activity.defn
    def list_nodes(self, request: ListNodes) -> Nodes:
        """List the cluster's nodes by role."""
        with as_application_error():
            nodes = self._inventory.list(request.cluster)
        wanted = request.roles or ["worker", "spare"]
        known = self._known(nodes) if request.spares and self._known else []
        return Nodes(nodes=[node for node in nodes if node.role in wanted], spares=known)
