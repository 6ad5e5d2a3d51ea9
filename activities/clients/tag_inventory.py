"""The inventory of clusters whose instances carry the tag hotspare:cluster; asked of EC2, and kept for some seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from activities import names
from activities.clients.aliases import KnownNode
from activities.clients.cached_inventory import CachedInventory
from activities.ec2 import Ec2Client, InstanceView
from activities.inventory import Node
from activities.owners import owner_by_tags
from checks.catalog import expected_gpus


class TagInventory(CachedInventory):
    """`Inventory` by tag. `cluster` is the one that an empty cluster name means."""

    def __init__(self, ec2: Ec2Client, cluster: str, cache_s: float, now: Callable[[], float] = monotonic) -> None:
        super().__init__(cluster, cache_s, now)
        self._ec2 = ec2

    def _look(self, cluster: str) -> Sequence[KnownNode]:
        return [known_node(view) for view in self._ec2.describe_cluster(cluster)]


def known_node(view: InstanceView) -> KnownNode:
    """Build the inventory entry of an instance. Its name is the Name tag, else the short private DNS name, else the id."""
    tags = view.tags
    short = view.private_dns.split(".", 1)[0]
    node = Node(
        instance_id=view.instance_id,
        name=tags.get("Name", "") or short or view.instance_id,
        ip=view.private_ip,
        role=tags.get(names.TAG_ROLE, names.ROLE_WORKER),
        instance_type=view.instance_type,
        zone=view.zone,
        spine=tags.get(names.TAG_SPINE, ""),
        state=view.state,
        gpus=expected_gpus(view.instance_type) or 0,
        quarantine=tags.get(names.TAG_QUARANTINE, ""),
        lease=tags.get(names.TAG_LEASE, ""),
        fate=tags.get(names.TAG_FATE, ""),
        placement_group=view.placement_group,
        nvlink_domain=tags.get(names.TAG_NVLINK, ""),
        pool=tags.get(names.TAG_POOL, ""),
        opt_out=tags.get(names.TAG_OPT_OUT, ""),
        image=view.image_id,
        group=tags.get(names.AWS_TAG_GROUP, ""),
        owner=owner_by_tags(tags, view.operator).value,
        stood_back=tags.get(names.TAG_STOOD_BACK, ""),
        replaces=tags.get(names.TAG_REPLACES, ""),
        reservation=view.capacity_reservation,
        launched_at=view.launched_at,
    )
    return KnownNode(node, (view.private_dns,) if view.private_dns else ())
