"""What clean runs of the same machines, size and software teach: their median and spread, the floor from it, and drift."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from checks.judges.floors import FAIL_SHARE, WARN_SHARE, Floor
from checks.judges.nccl_software import Software

LEAST_SPREAD = 0.005
"""Least share of the median that the spread counts as. Hotspare default: ten runs may agree by chance, the next may not."""


@dataclass(frozen=True)
class LearnedRules:
    """When clean runs count, and how far below their median is too far. Both distances must be passed, share and spread.

    Hotspare defaults: ten runs give a median that one odd run does not move; the shares are those of the shipped floors; five
    times the median absolute deviation is 3.4 standard deviations of a normal spread, three times it is 2.
    """

    least_runs: int = 10
    fail_share: float = FAIL_SHARE
    warn_share: float = WARN_SHARE
    fail_spreads: float = 5.0
    warn_spreads: float = 3.0


@dataclass(frozen=True)
class Learned:
    """Median and median absolute deviation (MAD) of clean runs, GB/s, with the floor that follows."""

    runs: int
    median: float
    mad: float
    floor: Floor

    @property
    def spread(self) -> float:
        """The MAD, or the least that it counts as."""
        return max(self.mad, LEAST_SPREAD * self.median)

    def drift(self, measured: float) -> str:
        """Say how far a run is from the clean ones: in per cent for people, in MADs for how unusual that is."""
        share = measured / self.median - 1
        side = "under" if share < 0 else "over"
        far = abs(measured - self.median) / self.spread
        return f"{abs(share):.0%} {side} the median of {self.runs} clean runs, {far:.1f} MAD"


LearnedBy = Callable[[Software, int, int], Optional[Learned]]
"""Finds what was learned for a run: its software, ranks and largest message in bytes. None where too few runs are known."""


def learned_from(values: Sequence[float], rules: Optional[LearnedRules] = None) -> Optional[Learned]:
    """Learn from the bandwidths of clean runs, GB/s; None where they are too few."""
    by = rules or LearnedRules()
    if len(values) < by.least_runs:
        return None
    median = statistics.median(values)
    mad = statistics.median(abs(value - median) for value in values)
    spread = max(mad, LEAST_SPREAD * median)
    source = f"learned: median {median:g} of {len(values)} clean runs, MAD {mad:.2g}"
    floor = Floor(
        round(min(by.fail_share * median, median - by.fail_spreads * spread), 2),
        round(min(by.warn_share * median, median - by.warn_spreads * spread), 2),
        source,
    )
    return Learned(len(values), median, mad, floor)


def with_learned(fixed: Optional[Floor], learned: Optional[Learned]) -> Optional[Floor]:
    """Join a fixed floor and a learned one: the higher of each. What was learned never lowers what is fixed."""
    if learned is None or fixed is None:
        return learned.floor if learned else fixed
    fail, warn = max(fixed.fail_gbs, learned.floor.fail_gbs), max(fixed.warn_gbs, learned.floor.warn_gbs)
    if (fail, warn) == (fixed.fail_gbs, fixed.warn_gbs):
        return fixed
    source = learned.floor.source
    return Floor(fail, warn, source if fail > fixed.fail_gbs else f"{fixed.source}; warns by what was {source}")
