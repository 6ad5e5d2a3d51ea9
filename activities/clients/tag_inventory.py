"""The inventory of clusters whose instances carry the tag hotspare:cluster; asked of EC2, and kept for some seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

from activities import names
from activities.clients.aliases import KnownNode
from activities.clients.cached_inventory import CachedInventory
from activities.ec2 import Ec2Client, InstanceView
from activities.inventory import Node
from activities.owners import owner_by_tags
from checks.catalog import expected_gpus

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a name must look like to be a host, a file and a word of a command: a tag may hold anything, such as -oProxyCommand=..."""


class TagInventory(CachedInventory):
    """`Inventory` by tag. `cluster` is the one that an empty cluster name means."""

    def __init__(self, ec2: Ec2Client, cluster: str, cache_s: float, now: Callable[[], float] = monotonic) -> None:
        super().__init__(cluster, cache_s, now)
        self._ec2 = ec2

    def _look(self, cluster: str) -> Sequence[KnownNode]:
        return with_own_names([known_node(view) for view in self._ec2.describe_cluster(cluster)])


def with_own_names(found: Sequence[KnownNode]) -> list[KnownNode]:
    """Give each node a name of its own: all members of an Auto Scaling group may have one Name tag, and names tell nodes apart.

    A name that several have, or that is no host name, stays an alias; the node is called by its private DNS name, else its id.
    """
    times = Counter(entry.node.name.lower() for entry in found)
    shorts = Counter(short.lower() for entry in found if (short := _short(entry)))
    named = []
    for entry in found:
        name, short = entry.node.name, _short(entry)
        if times[name.lower()] == 1 and _SAFE_NAME.fullmatch(name):
            named.append(entry)
            continue
        free = short and shorts[short.lower()] == 1 and (short == name or not times[short.lower()])
        node = entry.node.model_copy(update={"name": short if free else entry.node.instance_id})
        named.append(KnownNode(node, (name, *entry.more_names)))
    return named


def _short(entry: KnownNode) -> str:
    return entry.more_names[0].split(".", 1)[0] if entry.more_names else ""


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
