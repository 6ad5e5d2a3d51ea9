"""What `hotspare spares plan` plans for: so many nodes, or those of the cluster with the failure rate that was seen here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from activities.errors import BadInput
from activities.host_memory import ClosedIncident
from activities.inventory import Node
from activities.names import ROLE_HEAD
from checks.catalog import expected_gpus
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.spares_groups import Place, groups_of
from workflows.decisions.spares_pool import PoolNeed
from workflows.decisions.spares_rates import DEFAULT_RATE, PUBLISHED, FailureRate, chosen_rate, named_rate, observed_rate
from workflows.decisions.spares_settings import SpareSettings

MOST_INCIDENTS = 5_000
"""Closed incidents that are read for the observed rate, newest first. Hotspare default: many times what a quarter brings."""

SURVIVED = (Place.RACK.value, Place.PLACEMENT_GROUP.value, Place.ZONE.value)
"""Kinds of domains whose loss a pool can be made to survive."""


@dataclass(frozen=True)
class Wish:
    """What a person said on the command line: whose rate, where a spare must be, what is to be survived, what a node costs."""

    rate: str = ""
    within: Place = Place.ZONE
    survive: str = ""
    cost: float | None = None

    @property
    def survive_nodes(self) -> int | None:
        """The number of nodes to survive, where it was given as one."""
        return int(self.survive) if self.survive.isdigit() else None


def need_of(nodes: int, instance_type: str, wish: Wish, costs: dict[str, float]) -> PoolNeed:
    """Return the need of so many nodes, without looking at any cluster."""
    size = wish.survive_nodes
    if wish.survive and size is None:
        raise BadInput(f"--survive {wish.survive}: without a cluster to look at, give the number of nodes of the domain")
    return PoolNeed(
        instance_type=instance_type,
        place="",
        nodes=nodes,
        rate=named_rate(wish.rate or DEFAULT_RATE),
        survive=size or 0,
        survive_name=f"{size} nodes at once" if size else "",
        gpus=expected_gpus(instance_type) or 0,
        cost_per_hour=costs.get(instance_type) if wish.cost is None else wish.cost,
    )


def needs_of_cluster(settings: Settings, wish: Wish) -> list[PoolNeed]:
    """Return the need of each group of the cluster's nodes. Raises BadInput where there are none."""
    given = named_rate(wish.rate) if wish.rate else None
    number = wish.survive_nodes
    if wish.survive and number is None and wish.survive not in SURVIVED:
        raise BadInput(f"--survive {wish.survive}: known are {', '.join(SURVIVED)}, or a number of nodes")
    wiring = Wiring(settings)
    try:
        nodes = wiring.inventory.list(settings.name)
        closed = [] if given else [one for one in wiring.memory.incidents(limit=MOST_INCIDENTS) if one.cluster == settings.name]
    finally:
        wiring.close()
    kind = Place(wish.survive) if wish.survive in SURVIVED else None
    costs = dict(settings.spares.cost_per_hour)
    if wish.cost is not None:
        costs = dict.fromkeys((node.instance_type for node in nodes), wish.cost)
    seen = SeenHere(settings.spares, nodes, closed, datetime.now(UTC))
    needs = groups_of(nodes, lambda instance_type: given or seen.rate_of(instance_type), costs, wish.within, kind)
    if not needs:
        raise BadInput(f"cluster {settings.name} has no working nodes to plan for; or plan without it: --nodes 2048")
    if number:
        needs = [need.model_copy(update={"survive": number, "survive_name": f"{number} nodes at once"}) for need in needs]
    return needs


@dataclass(frozen=True)
class SeenHere:
    """The failures that host memory has of this cluster."""

    settings: SpareSettings
    nodes: Sequence[Node]
    closed: Sequence[ClosedIncident]
    now: datetime

    def rate_of(self, instance_type: str) -> FailureRate:
        """The rate of an instance type. Incidents of instances that are gone count for each: too many rather than too few."""
        types = {node.instance_id: node.instance_type for node in self.nodes}
        mine = [one for one in self.closed if types.get(one.instance_id, instance_type) == instance_type]
        count = sum(1 for node in self.nodes if node.instance_type == instance_type and node.role != ROLE_HEAD)
        seen = observed_rate(mine, count, self.now - timedelta(days=self.settings.observed_days), self.now)
        return chosen_rate(seen, PUBLISHED[DEFAULT_RATE], self.settings.faults_needed)
