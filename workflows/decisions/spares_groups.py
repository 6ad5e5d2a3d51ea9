"""Which nodes share a pool of spares: those of one instance type in one place; and the largest domain that can go at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from activities.inventory import Node
from activities.names import ROLE_SPARE, ROLE_WORKER, is_kept_out
from workflows.decisions.spares_pool import PoolNeed
from workflows.decisions.spares_rates import FailureRate


class Place(StrEnum):
    """Kinds of places."""

    CLUSTER = "cluster"
    ZONE = "zone"
    PLACEMENT_GROUP = "placement-group"
    RACK = "rack"
    NVLINK = "nvlink"


NAME_OF: dict[Place, Callable[[Node], str]] = {
    Place.CLUSTER: lambda node: "",
    Place.ZONE: lambda node: node.zone,
    Place.PLACEMENT_GROUP: lambda node: node.placement_group,
    Place.RACK: lambda node: node.spine,
    Place.NVLINK: lambda node: node.nvlink_domain,
}


def groups_of(
    nodes: Sequence[Node],
    rates: Callable[[str], FailureRate],
    costs: Mapping[str, float],
    within: Place = Place.ZONE,
    survive: Place | None = None,
) -> list[PoolNeed]:
    """Return what each group of working nodes needs spares for. Trays of an NVLink domain can only be replaced within it.

    A spare that is retired or drained counts as none.
    """
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        if node.role in (ROLE_WORKER, ROLE_SPARE):
            place = node.nvlink_domain or NAME_OF[within](node)
            groups.setdefault((node.instance_type, place), []).append(node)
    needs = []
    for (instance_type, place), members in sorted(groups.items()):
        working = [node for node in members if node.role == ROLE_WORKER]
        name, size = largest_domain(working, survive)
        needs.append(
            PoolNeed(
                instance_type=instance_type,
                place=place,
                nodes=len(working),
                rate=rates(instance_type),
                survive=size,
                survive_name=name,
                spares=sum(1 for node in members if node.role == ROLE_SPARE and not is_kept_out(node.fate)),
                gpus=max((node.gpus for node in members), default=0),
                cost_per_hour=costs.get(instance_type),
            )
        )
    return [need for need in needs if need.nodes]


def largest_domain(nodes: Sequence[Node], kind: Place | None) -> tuple[str, int]:
    """Return the domain of this kind that has the most of these nodes; none where the kind is not known of them."""
    if kind is None:
        return "", 0
    sizes = Counter(name for node in nodes if (name := NAME_OF[kind](node)))
    if not sizes:
        return "", 0
    name, size = min(sizes.items(), key=lambda item: (-item[1], item[0]))
    return f"{kind.value} {name}", size
