"""How many spares a group of nodes needs: by how often its nodes fail, and how long each is away from the pool.

The formula for independent failures is the usual one: the smallest k that the nodes out at once do not exceed with the wished
probability. On top come one more, so that a spare is free for what fails next, and those for bursts, for spares that are bad on
arrival, and, where wished, for one whole failure domain.
"""

from __future__ import annotations

import math

from activities.message import Message
from workflows.decisions.spares_odds import next_finds_one, nodes_out, one_is_free, smallest
from workflows.decisions.spares_rates import FailureRate
from workflows.decisions.spares_settings import SpareSettings

Z90 = 1.2815515655446004
"""The 90th centile of the standard normal distribution."""


class PoolNeed(Message):
    """Nodes that share spares: one instance type in one place. `survive` are the nodes of a domain whose loss must be made good.

    `spares` are those there are, `gpus` those of one node, `cost_per_hour` that of one node; None where not known.
    """

    instance_type: str
    place: str
    nodes: int
    rate: FailureRate
    survive: int = 0
    survive_name: str = ""
    spares: int | None = None
    gpus: int = 0
    cost_per_hour: float | None = None


class PoolSize(Message):
    """The answer: how many spares, step by step, and what they cost. `free` is the probability that a spare is free.

    A failure that comes alone finds one as often; `finds_one` is for a node that may fail in a burst. `away_h` is the mean time
    that a failed node is away, `out` how many are out on average.
    """

    need: PoolNeed
    failures_per_day: float
    away_h: float
    out: float
    formula: int
    for_next: int
    for_bursts: int
    for_bad: int
    for_domain: int
    pool: int
    free: float
    finds_one: float
    free_now: float | None = None
    short: int | None = None
    cost_per_hour: float | None = None
    because: list[str] = []


def mean_of(p50_h: float, p90_h: float) -> float:
    """The mean of the lognormal distribution with this median and 90th centile: slow cases weigh more than their number."""
    sigma = math.log(max(p90_h / p50_h, 1.0)) / Z90
    return p50_h * math.exp(sigma * sigma / 2)


def away_h(settings: SpareSettings) -> float:
    """Mean hours from a node's failure to its return, or its successor's arrival, in the pool."""
    repair = mean_of(settings.repair_p50_h, settings.repair_p90_h)
    restock = mean_of(settings.restock_p50_h, settings.restock_p90_h)
    return settings.mended_share * repair + (1 - settings.mended_share) * restock


def plan_pool(need: PoolNeed, settings: SpareSettings) -> PoolSize:
    """Return how many spares these nodes need, and why."""
    away, failures = away_h(settings), need.nodes * need.rate.per_node_day
    out = failures * away / 24.0
    formula = smallest(nodes_out(out, 1.0), settings.probability)
    odds = nodes_out(out, settings.nodes_per_event)
    alone = formula + 1
    bursts = max(alone, smallest(odds, settings.probability) + 1)  # rare failures come in even rarer bursts
    bad = math.ceil(round(bursts * (1 + settings.bad_on_arrival), 9))
    pool = bad + need.survive
    return PoolSize(
        need=need,
        failures_per_day=failures,
        away_h=away,
        out=out,
        formula=formula,
        for_next=alone - formula,
        for_bursts=bursts - alone,
        for_bad=bad - bursts,
        for_domain=need.survive,
        pool=pool,
        free=one_is_free(odds, bursts + need.survive),
        finds_one=next_finds_one(odds, bursts + need.survive, settings.nodes_per_event),
        free_now=None if need.spares is None else one_is_free(odds, need.spares),
        short=None if need.spares is None else max(0, pool - need.spares),
        cost_per_hour=None if need.cost_per_hour is None else pool * need.cost_per_hour,
        because=_because(need, settings, failures, away, out, (formula, bursts, bad)),
    )


def _because(
    need: PoolNeed, settings: SpareSettings, failures: float, away: float, out: float, steps: tuple[int, int, int]
) -> list[str]:
    formula, bursts, bad = steps
    sure = f"{100 * settings.probability:g} %"
    repair = mean_of(settings.repair_p50_h, settings.repair_p90_h)
    restock = mean_of(settings.restock_p50_h, settings.restock_p90_h)
    per_thousand = f"{1000 * need.rate.per_node_day:.3g} per 1,000 node-days"
    mended = f"{100 * settings.mended_share:.0f} % come back within {repair:.2g} h"
    said = [
        f"{need.nodes} nodes fail {failures:.3g} times a day ({per_thousand}: {need.rate.source})",
        f"{mended}, the others are replaced within {restock:.3g} h, on average: {away:.3g} h away",
        f"{out:.3g} nodes are out on average; {formula} or fewer in {sure} of the time, were each to fail by itself",
    ]
    said.append("1 more, so that one is still free for what fails next")
    if bursts > formula + 1:
        said.append(
            f"{bursts - formula - 1} more because failures come in bursts, {settings.nodes_per_event:g} nodes an event on average"
        )
    if bad > bursts:
        said.append(f"{bad - bursts} more because {100 * settings.bad_on_arrival:g} % of spares are bad when they come")
    if need.survive:
        said.append(f"{need.survive} more to make good the loss of {need.survive_name or 'a failure domain'}")
    return said
