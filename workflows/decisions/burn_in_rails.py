"""What runs over single rails show: which rail is slow on every node, and which for one node alone.

A rail is the network adapter with the same index on every node, and the switch behind it; a fault of one slows all eight GPUs.
Runs over one rail, one GPU a node, are compared with each other: no floor is published for them. They are made where nobody can
be blamed without them, before a person is asked, and where a person wants to see everything; never while a job could go on.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from checks.judges import judgement as causes
from workflows.decisions.burn_in_runs import NOT_ABOUT_NODES, RunDone, passed
from workflows.decisions.burn_in_settings import BurnInLimits

NOT_OF_A_RAIL = (causes.DATA_CORRUPTION, causes.GPU_ERROR, causes.HANG, causes.TOOL_TIMEOUT)
"""Failures that no network adapter makes; and hangs, in which a run over one rail would stand as long while a person waits."""


class RailRun(NamedTuple):
    """One group to be run over one rail."""

    group: list[str]
    rail: int


class RailRuns:
    """The runs over single rails so far, and what they say: pure, from the runs alone."""

    def __init__(self, runs: Sequence[RunDone], rails: int, limits: BurnInLimits) -> None:
        self._limits, self._rails = limits, rails
        self._tried: dict[int, list[frozenset[str]]] = defaultdict(list)
        self._rates: dict[int, dict[frozenset[str], float]] = defaultdict(dict)
        for run in runs:
            if run.rail is not None:
                self._tried[run.rail].append(frozenset(run.nodes))
                rate = _rate(run)
                if rate is not None:
                    self._rates[run.rail][frozenset(run.nodes)] = rate
        measured = {run.round: False for run in runs if run.rail is not None}
        measured |= {run.round: True for run in runs if run.rail is not None and _rate(run) is not None}
        self.rounds = len(measured)
        self.blind = not all(measured.values())
        """Whether a whole round measured nothing: the launcher cannot run a single rail."""

    @property
    def reference(self) -> float:
        """What a rail carries: the median of the faster half of them, each by its best run. 0 where too few were measured."""
        best = sorted(max(rates.values()) for rates in self._rates.values() if rates)
        return statistics.median(best[len(best) // 2 :]) if len(best) > max(1, self._rails // 2) else 0.0

    def slow_for(self, group: Sequence[str]) -> list[int]:
        """The rails on which this group was slow while others carried more."""
        members = frozenset(group)
        return [rail for rail, rates in sorted(self._rates.items()) if self._is_slow(rates.get(members))]

    def slow_everywhere(self) -> dict[int, str]:
        """The rails that were slow in every group that tried them, in as many as a proof takes, with the evidence."""
        found = {}
        for rail, rates in sorted(self._rates.items()):
            slow = [rate for rate in rates.values() if self._is_slow(rate)]
            if slow and len(slow) == len(rates) and (len(slow) >= self._limits.proofs or self._only_one_group):
                found[rail] = f"{max(slow):.3g} GB/s in {len(slow)} groups, where a rail carries {self.reference:.3g}"
        return found

    def next_common(self, groups: Sequence[list[str]], room: int) -> list[RailRun]:
        """Which rail each group tries, where one rail is suspected in all groups: each once, the slow ones again elsewhere."""
        wanted: list[RailRun] = []
        free = list(groups)
        for rail in sorted(range(self._rails), key=lambda rail: len(self._tried[rail])):
            again = rail in self._suspects and len(self._rates[rail]) < self._limits.proofs
            if self._tried[rail] and not again:
                continue
            group = next((one for one in free if frozenset(one) not in self._tried[rail]), None)
            if group is not None and len(wanted) < room:
                free.remove(group)
                wanted.append(RailRun(group, rail))
        return wanted

    def next_each(self, groups: Sequence[list[str]], room: int) -> list[RailRun]:
        """The next rail of each group, where each may have another: rail by rail, the groups side by side."""
        wanted: list[RailRun] = []
        for group in groups:
            rail = next((rail for rail in range(self._rails) if frozenset(group) not in self._tried[rail]), None)
            if rail is not None and len(wanted) < room:
                wanted.append(RailRun(group, rail))
        return wanted

    def _is_slow(self, rate: float | None) -> bool:
        return rate is not None and rate < self._limits.rail_share * self.reference

    @property
    def _suspects(self) -> set[int]:
        return {rail for rail, rates in self._rates.items() if any(self._is_slow(rate) for rate in rates.values())}

    @property
    def _only_one_group(self) -> bool:
        return len({group for groups in self._tried.values() for group in groups}) == 1


def _rate(run: RunDone) -> float | None:
    """What a rail carried, GB/s: nothing where its connection broke, None where the run tells nothing."""
    return 0.0 if run.busbw_gbs is None and run.cause == causes.NETWORK_ERROR else run.busbw_gbs


def is_common(runs: Sequence[RunDone], limits: BurnInLimits) -> bool:
    """Whether a cause that all nodes share is likely: so many disjoint groups failed, and no group of several ever passed."""
    groups = [run for run in runs if len(run.nodes) > 1 and run.cause not in NOT_ABOUT_NODES]
    if any(passed(run) or run.cause in NOT_OF_A_RAIL for run in groups):
        return False
    failed = Counter(run.round for run in groups)
    return max(failed.values(), default=0) >= limits.common_groups


def groups_for_rails(nodes: Sequence[str], rails: int) -> list[list[str]]:
    """Cut the nodes into disjoint groups of one size, as many as there are rails where they suffice."""
    count = max(1, min(len(nodes) // 2, rails))
    size = len(nodes) // count
    return [list(nodes[at * size : (at + 1) * size]) for at in range(count)]


def beside_good_ones(bad: Sequence[str], good: Sequence[str], paths: Sequence[Sequence[str]]) -> list[list[str]]:
    """Each bad node beside a good one of its own; the ends of a bad path beside each other."""
    ends = {end for path in paths for end in path}
    partners = [node for node in good if node not in ends]
    pairs = [[node, partner] for node, partner in zip([node for node in bad if node not in ends], partners, strict=False)]
    return pairs + [list(path) for path in paths]
