"""A world of planted faults for the burn-in's plan: slow nodes, flaky ones, bad paths, and runs that noise spoils."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from checks.model import Verdict
from workflows.decisions.burn_in_plan import BurnInFacts, BurnInNext, plan_next
from workflows.decisions.burn_in_runs import RunDone, paths
from workflows.decisions.burn_in_settings import BurnInLimits

RAILS = 8
"""Network adapters of a node, one a GPU."""


@dataclass
class World:
    """What is wrong, and how reliably a run shows it. A bad path shows where its ends are neighbours in the ring."""

    bad: set[str] = field(default_factory=set)
    bad_paths: set[frozenset[str]] = field(default_factory=set)
    flaky: dict[str, float] = field(default_factory=dict)
    """Nodes that are slow in only so large a part of the runs."""
    bad_rails: dict[int, set[str]] = field(default_factory=dict)
    """Rails whose switch is slow, and the nodes behind it: it shows where two of them run together."""
    bad_adapters: dict[str, int] = field(default_factory=dict)
    """Nodes with one slow network adapter, and its rail."""
    noise: float = 0.0
    """Part of the runs that fail though nothing is wrong with them."""
    random: Random = field(default_factory=lambda: Random(1))

    def fails(self, ring: list[str]) -> bool:
        """Whether one run of this ring fails."""
        if self.bad & set(ring) or self.bad_paths & set(paths(ring)):
            return True
        if any(self.slow_rail(ring, rail) for rail in range(RAILS)):
            return True
        if any(self.random.random() < self.flaky[node] for node in ring if node in self.flaky):
            return True
        return self.random.random() < self.noise

    def slow_rail(self, ring: list[str], rail: int) -> bool:
        """Whether one rail is slow between these nodes."""
        behind = self.bad_rails.get(rail, set()) & set(ring)
        return len(ring) > 1 and (len(behind) > 1 or any(self.bad_adapters.get(node) == rail for node in ring))

    def run_over(self, rail: int, ring: list[str], number: int) -> RunDone:
        """What the all-reduce over one rail measures."""
        rate = (21.0 if self.slow_rail(ring, rail) else 47.0) * (1 + self.random.uniform(-0.01, 0.01))
        return RunDone(round=number, nodes=ring, verdict=Verdict.UNKNOWN, cause="measured", rail=rail, busbw_gbs=rate)

    def run(self, ring: list[str], number: int) -> RunDone:
        """What the all-reduce says of one group."""
        if self.fails(ring):
            return RunDone.model_construct(
                round=number, nodes=ring, verdict=Verdict.CRITICAL, cause="low_bandwidth", evidence="230 GB/s"
            )
        return RunDone.model_construct(round=number, nodes=ring, verdict=Verdict.OK, cause="healthy", evidence="470 GB/s")


@dataclass
class Played:
    """A plan followed to its end."""

    plan: BurnInNext
    runs: list[RunDone]

    @property
    def rounds(self) -> int:
        return self.runs[-1].round

    @property
    def rounds_after_the_first_failure(self) -> int:
        """Rounds after the first group run failed, to the confirmed list and a passing group of the rest."""
        return self.rounds - 1


def names(count: int) -> list[str]:
    """node-1 and so on."""
    return [f"node-{number}" for number in range(1, count + 1)]


def play(
    nodes: list[str],
    world: World,
    limits: BurnInLimits | None = None,
    fresh: list[str] | None = None,
    switches: dict[str, str] | None = None,
    rails: int = 0,
    every_pair: bool = False,
) -> Played:
    """Follow the plan to its end, checking what every round must keep."""
    bounds = limits or BurnInLimits()
    runs: list[RunDone] = []
    while True:
        facts = BurnInFacts.model_construct(
            nodes=nodes,
            runs=runs,
            fresh=fresh or [],
            switches=switches or {},
            elapsed_s=0.0,
            rails=rails,
            every_pair=every_pair,
        )
        plan = plan_next(facts, bounds)
        if plan.done:
            return Played(plan, runs)
        number = runs[-1].round + 1 if runs else 1
        assert plan.groups, "a round without groups would never end"
        assert len(plan.groups) <= bounds.side_by_side
        flat = [node for group in plan.groups for node in group]
        assert len(flat) == len(set(flat)), "the groups of a round are disjoint"
        over_rails = len({run.round for run in runs if run.rail is not None})
        assert over_rails <= bounds.rail_rounds
        assert number <= bounds.rounds + over_rails + 1 + (bounds.pair_rounds if every_pair else 0)
        if plan.rails:
            assert over_rails < bounds.rail_rounds
            runs += [world.run_over(rail, group, number) for group, rail in zip(plan.groups, plan.rails, strict=True)]
        else:
            runs += [world.run(group, number) for group in plan.groups]
