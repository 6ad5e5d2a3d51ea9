"""The odds that so many nodes are out at once: failures that come alone or in bursts, each out for its turnaround.

With independent failures and a pool that nobody waits for long, the number out at once is Poisson with mean rate times mean
turnaround, whatever the spread of the turnaround (Palm, 1938). With bursts it is taken as if each turnaround were of the mean
length: the spread only lets the nodes of one burst come back apart, so the odds are on the safe side.
"""

from __future__ import annotations

import math

TINY = 1e-15
"""Odds below which the tail is cut off."""

HUGE = 1e200
"""Unnormalised odds above which they are scaled down, so that large pools do not overflow."""


def poisson_at_most(most: int, mean: float) -> float:
    """The probability of at most `most` events where `mean` are expected."""
    odds = nodes_out(mean, 1.0)
    return min(1.0, math.fsum(odds[: most + 1]))


def nodes_out(mean: float, per_event: float) -> list[float]:
    """The probabilities that 0, 1, 2... nodes are out, where `mean` are on average and an event takes out `per_event` of them.

    How many it takes out is geometric; the sum is worked out by Panjer's recursion (1981).
    """
    events, more = mean / per_event, 1.0 - 1.0 / per_event
    weights, peak = [1.0], 1.0
    deviation = math.sqrt(max(mean, 1.0) * (2 * per_event - 1))
    least = int(mean + 4 * deviation)
    while len(weights) <= least or weights[-1] > TINY * peak:
        n = len(weights)
        before = weights[n - 2] if n > 1 else 0.0
        weights.append((events * (1 - more) + 2 * more * (n - 1)) / n * weights[n - 1] - more * more * (n - 2) / n * before)
        peak = max(peak, weights[-1])
        if peak > HUGE:
            weights, peak = [weight / HUGE for weight in weights], peak / HUGE
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def one_is_free(odds: list[float], pool: int) -> float:
    """The probability that fewer than `pool` nodes are out, so that what fails next finds a spare."""
    return min(1.0, math.fsum(odds[:pool]))


def next_finds_one(odds: list[float], pool: int, per_event: float) -> float:
    """The probability that the next node to fail finds a free spare among `pool`, where `odds` are those of nodes out before.

    Its place among the nodes of its event is geometric too: a node is the more likely met in a large event.
    """
    more = 1.0 - 1.0 / per_event
    return math.fsum(chance * (1.0 - more ** (pool - out)) for out, chance in enumerate(odds[:pool])) if pool > 0 else 0.0


def smallest(odds: list[float], wished: float) -> int:
    """The smallest number that is not exceeded with the wished probability."""
    total = 0.0
    for number, chance in enumerate(odds):
        total += chance
        if total >= wished:
            return number
    return len(odds)
