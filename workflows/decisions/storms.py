"""Is a fault one node's own, or part of an event that shows on many? What is part of one disrupts no node.

A job that crashed shows on every node of the job, a switch on every node behind it, a roll-out on every node it has reached.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.message import Message
from checks.catalog.loading import FAULT_CLASSES
from checks.diagnosis.storm_question import REMEMBERED, REMEMBERED_S, NodeFault, storm_around
from workflows.cluster_messages import Ask, FleetView, SeenFault
from workflows.decisions.room import domains
from workflows.decisions.settings import ClusterSettings

OFTEN_SHARED = frozenset({"application", "link", "fabric", "unreachable"})
"""Fault classes that are looked at for a moment before they are taken for one node's own."""

ALL_BEHIND_ONE_SWITCH = frozenset({"link", "fabric", "unreachable"})
"""Fault classes that a switch, a rack or a zone gives to every node behind it."""


class StormSeen(Message):
    """One event on many nodes. `kind`: application, fabric, rollout, fleet; `scope` bounds who belongs to it, as in a freeze."""

    kind: str
    scope: str
    reason: str


def worth_remembering(recent: list[SeenFault], now: datetime) -> list[SeenFault]:
    """Return the sightings that may still belong together, the newest, so that the books stay small."""
    return [seen for seen in recent if now - seen.at <= timedelta(seconds=REMEMBERED_S)][-REMEMBERED:]


def storm_among(recent: list[SeenFault], ask: Ask, view: FleetView, limits: ClusterSettings, now: datetime) -> StormSeen | None:
    """Return the event that the fault of `ask` belongs to, by who else reported what and when; None for its own."""
    since = now - timedelta(seconds=limits.storm_window_s)
    alike = [seen for seen in recent if seen.fault_class == ask.fault_class and seen.at >= since]
    return (
        _of_the_job(alike, ask, limits)
        or _of_a_domain(alike, ask, view, limits)
        or _of_the_fleet(alike, ask, view, limits)
        or _of_a_roll_out(recent, ask, view, limits)
    )


def _of_the_job(alike: list[SeenFault], ask: Ask, limits: ClusterSettings) -> StormSeen | None:
    nodes = {seen.instance_id for seen in alike if ask.job and seen.job == ask.job}
    if ask.fault_class != "application" or len(nodes) < limits.storm_nodes:
        return None
    reason = f"{len(nodes)} nodes of job {ask.job} show application faults{_within(limits)}: the job crashed, not its nodes"
    return StormSeen(kind="application", scope=f"job:{ask.job}", reason=reason)


def _of_a_domain(alike: list[SeenFault], ask: Ask, view: FleetView, limits: ClusterSettings) -> StormSeen | None:
    """The smallest domain that explains it: NVLink domain before rack before placement group before zone."""
    if ask.fault_class not in ALL_BEHIND_ONE_SWITCH:
        return None
    for place in reversed(domains(ask)):
        nodes = {seen.instance_id for seen in alike if place in seen.domains}
        there = view.domains.get(place, view.nodes)
        if _is_of(place, len(nodes), there, limits):
            what = f"{len(nodes)} of {there} nodes of {place} show {ask.fault_class}"
            return StormSeen(
                kind="fabric", scope=place, reason=f"{what}{_within(limits)}: what they share is in question, not that many nodes"
            )
    return None


def _is_of(place: str, nodes: int, there: int, limits: ClusterSettings) -> bool:
    """Trays of one NVLink domain share its switches: two with link faults at once have one cause, whatever their share."""
    if place.startswith("nvlink:"):
        return nodes >= limits.storm_nvlink_nodes
    return nodes >= limits.storm_domain_nodes and 100.0 * nodes / max(1, there) >= limits.storm_domain_percent


def _of_the_fleet(alike: list[SeenFault], ask: Ask, view: FleetView, limits: ClusterSettings) -> StormSeen | None:
    nodes = {seen.instance_id for seen in alike}
    share = 100.0 * len(nodes) / max(1, view.nodes)
    many = share >= limits.storm_percent or len(nodes) >= limits.storm_nodes_at_most
    if len(nodes) < limits.storm_nodes or not many:
        return None
    what = f"{len(nodes)} of {view.nodes} nodes show {ask.fault_class}"
    return StormSeen(kind="fleet", scope="cluster", reason=f"{what}{_within(limits)}: one event, not that many broken nodes")


def _of_a_roll_out(recent: list[SeenFault], ask: Ask, view: FleetView, limits: ClusterSettings) -> StormSeen | None:
    """Nodes that came up with the same fault one after the other, over hours: an image, a driver, a setting."""
    faults = [_fault(seen) for seen in recent if seen.fault_class == ask.fault_class and seen.fault_class in FAULT_CLASSES]
    answer = storm_around(ask.instance_id, faults, max(1, view.nodes))
    if answer.kind != "rollout" or len(answer.nodes) < limits.storm_nodes:
        return None
    return StormSeen(kind="rollout", scope="cluster", reason=answer.reason)


def _fault(seen: SeenFault) -> NodeFault:
    racks = [place for place in seen.domains if place.startswith("rack:")]
    return NodeFault(
        node=seen.instance_id,
        fault_class=seen.fault_class,
        code=seen.code,
        at=seen.at.timestamp(),
        uptime_s=seen.uptime_s,
        domain=racks[0] if racks else "",
        job=seen.job,
    )


def _within(limits: ClusterSettings) -> str:
    return f" within {limits.storm_window_s:g} s"
