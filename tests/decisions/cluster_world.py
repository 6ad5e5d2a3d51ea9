"""The world beside the books of Cluster: who really is out, who repairs, who has which spare; and the limits, worked out anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from activities.inventory import Node
from workflows.cluster_messages import Alone, Answer, Ask, AskKind, BreakerState, ClusterState, FleetView, Grant, Holding
from workflows.decisions.settings import ClusterSettings

SHARED = ("application", "link", "fabric", "unreachable")
"""Fault classes that wait for company."""


def instance(number: int) -> Node:
    """Return one of the fleet: racks of four, two zones, a placement group over half of them, two pools."""
    return Node(
        instance_id=f"i-{number}",
        name=f"node-{number}",
        zone="ab"[number % 2],
        spine=f"r{number // 4}",
        placement_group="near" if number < 6 else "",
        pool="large" if number % 3 else "small",
    )


def places(node: Node) -> list[str]:
    """The failure domains of a node, as guards name them."""
    named = [("zone", node.zone), ("placement-group", node.placement_group), ("rack", node.spine)]
    return [f"{kind}:{name}" for kind, name in named if name]


@dataclass
class World:
    """What is so, whatever the books say. `held` are grants that arrived and were not given back, by request id."""

    limits: ClusterSettings
    now: datetime
    nodes: list[Node]
    spares: list[Node]
    opted_out: set[str] = field(default_factory=set)
    asks: dict[str, Ask] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    held: dict[str, Answer] = field(default_factory=dict)
    tagged: dict[str, str] = field(default_factory=dict)

    def view(self) -> FleetView:
        """What Cluster sees of the fleet."""
        domains = [place for node in self.nodes for place in places(node)]
        pools = [node.pool for node in self.nodes]
        return FleetView(
            nodes=len(self.nodes),
            domains={name: domains.count(name) for name in domains},
            pools={name: pools.count(name) for name in pools},
            opted_out=dict.fromkeys(sorted(self.opted_out), "a person debugs it"),
        )

    def inventory(self) -> list[Node]:
        """The spares with the lease tags that their holders wrote."""
        return [spare.model_copy(update={"lease": self.tagged.get(spare.instance_id, "")}) for spare in self.spares]

    def hear(self, answer: Answer) -> None:
        """The asker hears an answer: a grant is held, a refusal takes a grant back, a storm ends the wait."""
        ask = self.asks.get(answer.request_id)
        if ask is None:
            return
        (self.waiting.add if answer.queued else self.waiting.discard)(ask.request_id)
        if not answer.granted:
            self.held.pop(ask.request_id, None)
        elif ask.kind is not AskKind.ALONE:
            self._closed_earlier(ask)
            self.held[ask.request_id] = answer

    def _closed_earlier(self, ask: Ask) -> None:
        """Incidents of one node follow each other: what an earlier one asked for is not wanted any more."""
        if ask.kind in (AskKind.SPARE, AskKind.PARTNER):
            return
        for key in [key for key in self.held if key != ask.request_id and self.is_of(key, ask.kind, ask.instance_id)]:
            self.forget(key)

    def is_of(self, key: str, kind: AskKind, instance_id: str) -> bool:
        """Whether a request is of this kind and node."""
        return (self.asks[key].kind, self.asks[key].instance_id) == (kind, instance_id)

    def forget(self, key: str) -> None:
        """A request is over."""
        for book in (self.asks, self.held):
            book.pop(key, None)
        self.waiting.discard(key)

    def holdings(self) -> dict[str, Holding]:
        """What each holder would say it holds."""
        found: dict[str, list[Grant]] = {}
        for key, answer in self.held.items():
            found.setdefault(self.asks[key].asker, []).append(self._grant(self.asks[key], answer))
        return {asker: Holding(asker=asker, grants=grants) for asker, grants in found.items()}

    @staticmethod
    def _grant(ask: Ask, answer: Answer) -> Grant:
        assert answer.granted_at
        return Grant(
            request_id=ask.request_id,
            asker=ask.asker,
            kind=ask.kind,
            instance_id=ask.instance_id,
            spare_id=answer.spare.instance_id if answer.spare else "",
            granted_at=answer.granted_at,
            job=ask.job,
            domains=places(instance(int(ask.instance_id[2:]))),
            pool=ask.pool,
            partners=[node.instance_id for node in answer.partners],
        )

    def leased(self) -> list[str]:
        """The spares that are held, one entry per holder."""
        return [answer.spare.instance_id for answer in self.held.values() if answer.spare]

    def lent(self) -> list[str]:
        """The spares that are lent to a burn-in."""
        return [node.instance_id for answer in self.held.values() for node in answer.partners]

    def others(self, ask: Ask) -> list[Ask]:
        """Who else really has what `ask` asks for, one per node."""
        found = {
            self.asks[key].instance_id: self.asks[key]
            for key in self.held
            if self.asks[key].kind is ask.kind and self.asks[key].instance_id != ask.instance_id
        }
        return list(found.values())


def too_many(ask: Ask, others: list[tuple[list[str], str, str]], world: World) -> bool:
    """Whether a limit stands against `ask` while `others` (domains, job, pool of each node) have the like."""
    limits, view = world.limits, world.view()
    if ask.kind is AskKind.REPAIR_SLOT:
        return len(others) >= limits.max_repairs
    if ask.accused:
        return False
    if len(others) >= limits.max_nodes_out or len(others) >= _at_least_one(limits.max_percent_out, view.nodes):
        return True
    for place in places(instance(int(ask.instance_id[2:]))):
        there = sum(place in domains for domains, _, _ in others)
        share = _at_least_one(limits.max_percent_out_per_domain, view.domains[place])
        if there >= limits.max_nodes_out_per_domain or there >= share:
            return True
    of_job = sum(job == ask.job for _, job, _ in others)
    if ask.job and of_job >= limits.max_nodes_out_per_job:
        return True
    usable = view.pools[ask.pool] - sum(pool == ask.pool for _, _, pool in others)
    return ask.pool in limits.min_usable and usable - 1 < limits.min_usable[ask.pool]


def _at_least_one(percent: float, nodes: int) -> int:
    return max(1, int(percent * nodes // 100))


def in_force(ask: Ask, state: ClusterState, world: World) -> bool:
    """Whether a freeze, a window, an opt-out, the breaker or the wait for company stands against `ask`, limits apart."""
    return bool(
        frozen(ask, state, world.now)
        or (ask.kind is AskKind.REPAIR_SLOT and not window_open(world))
        or (ask.instance_id in world.opted_out and not ask.accused)
        or breaker_stands(ask, state)
        or waits_for_company(ask, world)
    )


def frozen(ask: Ask, state: ClusterState, now: datetime) -> bool:
    """Whether a freeze reaches the node."""
    node = instance(int(ask.instance_id[2:]))
    mine = {"cluster", f"node:{node.instance_id}", f"job:{ask.job}", f"pool:{node.pool}", *places(node)}
    return any(freeze.until > now and freeze.scope in mine for freeze in state.freezes)


def window_open(world: World) -> bool:
    """The only window that the model has: 22 to 6 o'clock, each day."""
    return not world.limits.windows or world.now.hour >= 22 or world.now.hour < 6


def breaker_stands(ask: Ask, state: ClusterState) -> bool:
    """Open it stands against everybody, half-open against all but the one that is tried."""
    breaker = state.breaker
    half = breaker.state is BreakerState.HALF_OPEN and breaker.trial not in ("", ask.instance_id)
    return breaker.state is BreakerState.OPEN or half


def waits_for_company(ask: Ask, world: World) -> bool:
    """Whether the fault is of a kind that is often shared, and has not waited long enough."""
    if ask.kind not in (AskKind.ALONE, AskKind.NODE_OUT) or ask.accused or ask.fault_class not in SHARED:
        return False
    assert ask.asked_at
    return world.now - ask.asked_at < timedelta(seconds=world.limits.alone_wait_s)


def is_storm(answer: Answer) -> bool:
    """Whether the answer lays the fault to an event on many nodes."""
    return answer.alone is Alone.STORM
