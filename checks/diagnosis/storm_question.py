"""Asks of a node's fault: is it the node's own, or its part in one event on many nodes? Pure, over a bounded list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from checks.catalog.loading import FAULT_CLASSES
from checks.diagnosis.storms import APPLICATION_ONLY, ROLL_OUT_GAP_S, Sighting, Storm, find_storms
from checks.model import Action

REMEMBERED_S = ROLL_OUT_GAP_S
"""How long a sighting is of use, seconds: a roll-out takes node after node. Source: as `ROLL_OUT_GAP_S`."""

REMEMBERED = 512
"""Sightings kept at most, the newest. Hotspare default: one per node of a large job, about 100 KB."""

_ASKS_NOTHING = frozenset({"none", "configuration"})


@dataclass(frozen=True)
class NodeFault:
    """One fault of one node as Cluster remembers it.

    `at` is Unix time (s); `uptime_s` seconds since boot at that time, None where not known. `domain` is what the node shares with
    others behind one switch (NVLink domain, rack), `job` the job on it; empty where not known.
    """

    node: str
    fault_class: str
    code: Optional[int]
    at: float
    uptime_s: Optional[float] = None
    domain: str = ""
    job: str = ""
    kind: str = "xid"

    def __post_init__(self) -> None:
        if self.fault_class not in FAULT_CLASSES:
            raise ValueError(f"{self.fault_class!r} is no fault class")


@dataclass(frozen=True)
class StormAnswer:
    """What the fault of a node is part of. `kind`: application, fabric, rollout, or empty for a fault of its own.

    `action` is what the whole event asks for, NONE for a fault of its own. `suspect` is the node that may have begun it, if any:
    that one goes on with its own diagnosis.
    """

    kind: str
    action: Action
    suspect: str
    reason: str
    nodes: tuple[str, ...] = ()

    @property
    def alone(self) -> bool:
        """Whether it is a fault of the node's own."""
        return not self.kind


def storm_around(node: str, faults: Iterable[NodeFault], looked_at: int) -> StormAnswer:
    """Say what the newest fault of `node` is part of, judged beside those of others among `looked_at` nodes.

    Job-level faults are laid together only within one job, or where a job is not known. A hardware fault of the node's own stays
    its own, whatever its job left behind elsewhere.
    """
    given = list(faults)
    mine = max((fault for fault in given if fault.node == node), key=lambda fault: fault.at, default=None)
    if mine is None:
        return StormAnswer("", Action.NONE, "", f"nothing was seen on {node}")
    near = [fault for fault in given if not _job_level(fault) or not mine.job or fault.job in ("", mine.job)]
    seen = [(fault, _sighting(fault)) for fault in near]
    storms = find_storms([one for _, one in seen], looked_at, {fault.node: fault.domain for fault in near if fault.domain})
    own = {id(one) for fault, one in seen if fault is mine}
    storm = next((storm for storm in storms if own & {id(one) for one in storm.sightings}), None)
    if storm is None:
        return StormAnswer("", Action.NONE, "", _alone(mine, storms))
    reason = "; ".join(storm.because)
    return StormAnswer(storm.kind, storm.action, storm.suspect, reason, storm.nodes)


def worth_keeping(faults: Sequence[NodeFault], now: float) -> tuple[NodeFault, ...]:
    """Return what is worth keeping: of each fault of a node the newest sighting, none too old, no more than `REMEMBERED`.

    The same fault a thousand times takes the place of one. `now` is Unix time (s).
    """
    newest: dict[tuple[str, str, Optional[int], str], NodeFault] = {}
    for fault in sorted(faults, key=lambda fault: fault.at):
        if now - fault.at <= REMEMBERED_S:
            newest[fault.node, fault.kind, fault.code, fault.fault_class] = fault
    return tuple(sorted(newest.values(), key=lambda fault: fault.at)[-REMEMBERED:])


def _job_level(fault: NodeFault) -> bool:
    return fault.fault_class == "application" or (fault.kind == "xid" and fault.code in APPLICATION_ONLY)


def _sighting(fault: NodeFault) -> Sighting:
    action = Action.NONE if fault.fault_class in _ASKS_NOTHING else Action.RUN_DIAGNOSTICS
    signal = fault.fault_class if fault.code is None else ""
    return Sighting(fault.node, fault.kind, fault.code, fault.fault_class, action, fault.at, fault.uptime_s, signal)


def _alone(mine: NodeFault, storms: Sequence[Storm]) -> str:
    blamed = next((storm for storm in storms if storm.suspect == mine.node), None)
    if blamed is None:
        return "no other node shows the like at the time"
    return f"it is the node's own, and may have ended a job on {len(blamed.nodes)} nodes: {blamed.because[-1]}"
