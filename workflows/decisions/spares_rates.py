"""How often a node fails so that a spare must stand in: published rates with their source, and the rate that was seen here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from activities.errors import BadInput
from activities.host_memory import ClosedIncident
from activities.message import Message
from workflows.decisions.spares_odds import poisson_at_most

NEEDS_NO_SPARE = frozenset({"", "none", "application", "memory_contained", "configuration", "unknown_code"})
"""Fault classes that do not take a node out."""

NOTHING_OUT = frozenset({"nothing found", "observed", "part of a storm", "left alone", "monitor failed"})
"""Outcomes after which the node was not out."""

CONFIDENCE = 0.95
"""Of the interval that is shown beside an observed rate."""


class FailureRate(Message):
    """Failures per node and day that take the node out. `faults` were counted over `node_days`; both None for published rates."""

    name: str
    per_node_day: float
    source: str
    faults: int | None = None
    node_days: float | None = None
    low: float | None = None
    high: float | None = None


_SOURCES = {
    "llama-3": (2.96e-3, "Llama 3 405B, 2,048 nodes, 54 days, 78 % of 419 interruptions (arXiv:2407.21783)"),
    "rsc-1": (6.50e-3, "Meta RSC-1, A100, jobs above 128 GPUs (arXiv:2410.21680)"),
    "rsc-2": (2.34e-3, "Meta RSC-2, A100, jobs above 128 GPUs (arXiv:2410.21680)"),
    "infinite-hbd": (3.24e-3, "InfiniteHBD-Trace, 400 servers, faults of one day merged"),
    "opt-175b": (1.56e-2, "OPT-175B logbook, about 2 of 128 nodes a day (metaseq, 10 % update)"),
}
PUBLISHED = {name: FailureRate(name=name, per_node_day=rate, source=source) for name, (rate, source) in _SOURCES.items()}
"""Rates that were published, per node of 8 GPUs."""

DEFAULT_RATE = "rsc-1"
"""Taken where nothing is known of this cluster. Hotspare default: the higher of the rates with thousands of nodes behind them."""


def named_rate(name: str) -> FailureRate:
    """Return a published rate by its name, or one given as a number per node and day. Raises BadInput."""
    if name in PUBLISHED:
        return PUBLISHED[name]
    try:
        given = float(name)
    except ValueError:
        given = -1.0
    if not 0 < given < 1:
        raise BadInput(
            f"{name!r} is no failure rate; known are {', '.join(PUBLISHED)}, or a number per node and day such as 0.003"
        )
    return FailureRate(name="given", per_node_day=given, source="given on the command line")


def takes_out(closed: ClosedIncident) -> bool:
    """Whether the incident was a fault that takes its node out."""
    return closed.fault_class not in NEEDS_NO_SPARE and closed.outcome not in NOTHING_OUT


def observed_rate(closed: Sequence[ClosedIncident], nodes: int, since: datetime, now: datetime) -> FailureRate | None:
    """Return the rate seen since `since`, or since the first incident that is remembered; None where nothing is remembered.

    Every node counts as there all the time: a fleet that has grown looks a little better than it is.
    """
    within = [one for one in closed if one.closed_at >= since]
    if not within or nodes < 1:
        return None
    begin = max(since, min(one.opened_at for one in within))
    node_days = nodes * max((now - begin).total_seconds(), 3600.0) / 86400.0
    faults = sum(1 for one in within if takes_out(one))
    low, high = interval(faults)
    return FailureRate(
        name="observed",
        per_node_day=faults / node_days,
        source=f"{faults} faults that took a node out, since {begin:%Y-%m-%d}",
        faults=faults,
        node_days=node_days,
        low=low / node_days,
        high=high / node_days,
    )


def chosen_rate(observed: FailureRate | None, published: FailureRate, faults_needed: int) -> FailureRate:
    """Return what is seen here once it is enough, else the published rate with the reason in its source."""
    if observed is not None and observed.faults is not None and observed.faults >= faults_needed:
        return observed
    seen = 0 if observed is None else observed.faults
    why = f"{seen} faults seen here, {faults_needed} are needed"
    return published.model_copy(update={"source": f"{published.source}; {why}"})


def interval(faults: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a Poisson mean (Garwood, 1936) after `faults` were counted."""
    tail = (1 - confidence) / 2
    low = 0.0 if faults == 0 else _where(lambda mean: 1 - poisson_at_most(faults - 1, mean) >= tail, faults)
    return low, _where(lambda mean: poisson_at_most(faults, mean) <= tail, faults)


def _where(reached: Callable[[float], bool], faults: int) -> float:
    """The smallest mean at which a rising condition holds, by halving."""
    low, high = 0.0, 10.0 + 4.0 * faults
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
