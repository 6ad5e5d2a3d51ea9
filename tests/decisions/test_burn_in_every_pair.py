"""The burn-in that a person asks for with --diagnose: every pair is tried, so a bad path is found wherever it is."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from checks.model import Verdict
from tests.decisions.burn_in_world import Played, World, names, play
from workflows.decisions.burn_in_plan import BurnInFacts, plan_next
from workflows.decisions.burn_in_runs import RunDone
from workflows.decisions.burn_in_settings import BurnInLimits


def diagnose(nodes: list[str], world: World, limits: BurnInLimits | None = None) -> Played:
    """Follow the plan to its end. Every round has groups, as many as may run at once, and no node in two of them."""
    bounds = limits or BurnInLimits()
    runs: list[RunDone] = []
    while True:
        plan = plan_next(BurnInFacts(nodes=nodes, runs=runs, every_pair=True), bounds)
        if plan.done:
            return Played(plan, runs)
        flat = [node for group in plan.groups for node in group]
        assert 0 < len(plan.groups) <= bounds.side_by_side
        assert len(flat) == len(set(flat))
        number = runs[-1].round + 1 if runs else 1
        runs += [world.run(group, number) for group in plan.groups]


def pairs_of(played: Played) -> list[frozenset[str]]:
    return [frozenset(run.nodes) for run in played.runs if len(run.nodes) == 2]


@pytest.mark.parametrize("count", [3, 4, 7, 8, 16, 31, 32])
def test_every_pair_of_healthy_nodes_is_tried_once_in_as_many_rounds_as_a_tournament_has(count: int) -> None:
    nodes = names(count)
    played = diagnose(nodes, World())
    assert (played.plan.verdict, played.plan.bad) == (Verdict.OK, {})
    assert sorted(map(sorted, pairs_of(played))) == sorted(sorted(pair) for pair in combinations(nodes, 2))
    assert played.rounds == 1 + count - 1 + count % 2


def test_a_bad_path_between_nodes_that_are_no_neighbours_is_found_though_the_group_passes() -> None:
    played = diagnose(names(8), World(bad_paths={frozenset({"node-2", "node-6"})}))
    assert played.runs[0].verdict is Verdict.OK
    assert (played.plan.verdict, played.plan.bad_paths) == (Verdict.CRITICAL, [["node-2", "node-6"]])
    assert list(played.plan.bad) == ["node-6"]
    assert pairs_of(played).count(frozenset({"node-2", "node-6"})) == 2
    assert len(set(pairs_of(played))) == 28


def test_a_plan_without_the_wish_stops_at_the_group_that_passes() -> None:
    group = RunDone(round=1, nodes=names(8), verdict=Verdict.OK, cause="healthy")
    assert plan_next(BurnInFacts(nodes=names(8), runs=[group])).done
    assert not plan_next(BurnInFacts(nodes=names(8), runs=[group], every_pair=True)).done


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_whatever_is_planted_is_found_and_nobody_else_is_accused(at_once: int) -> None:
    random = Random(7)
    limits = BurnInLimits(side_by_side=at_once, pair_rounds=500)
    for _ in range(150):
        nodes = names(random.randint(5, 14))
        bad = set(random.sample(nodes, random.choice([0, 0, 1, 2])))
        good = [node for node in nodes if node not in bad]
        ends = random.sample(good, 2 * random.choice([0, 1, min(2, len(good) // 2)]))
        if len(good) - len(ends) // 2 < 3:
            continue
        bad_paths = {frozenset(ends[at : at + 2]) for at in range(0, len(ends), 2)}
        played = diagnose(nodes, World(bad=set(bad), bad_paths=bad_paths), limits)
        assert {frozenset(path) for path in played.plan.bad_paths} == bad_paths, (nodes, bad, bad_paths)
        assert bad <= played.plan.bad.keys() <= bad | set(ends)
        assert len(played.plan.bad) == len(bad) + len(bad_paths)


def test_the_rounds_for_pairs_are_bounded_and_the_verdict_is_that_of_what_was_tried() -> None:
    played = diagnose(names(40), World(), BurnInLimits(rounds=4, pair_rounds=2))
    assert (played.plan.verdict, played.rounds) == (Verdict.OK, 6)
    assert len(pairs_of(played)) == 5 * 20


def test_a_pair_that_fails_once_and_passes_then_is_no_bad_path() -> None:
    world = World()
    spoilt: list[list[str]] = []

    def fails(ring: list[str]) -> bool:
        if len(ring) == 2 and not spoilt:
            spoilt.append(ring)
            return True
        return False

    world.fails = fails  # type: ignore[method-assign]
    played = diagnose(names(6), world)
    assert (played.plan.verdict, played.plan.cause, played.plan.bad) == (Verdict.UNKNOWN, "intermittent", {})
    assert spoilt[0][0] in played.plan.because[0]


def test_a_bad_path_that_the_group_uses_though_not_in_the_order_of_a_ring_is_found_where_a_plain_plan_asks_a_person() -> None:
    path = {"node-2", "node-6"}
    world = World()
    world.fails = lambda ring: path <= set(ring)  # type: ignore[method-assign]
    assert play(names(8), world).plan.cause == "undecided"
    played = diagnose(names(8), world)
    assert (played.plan.cause, played.plan.bad_paths) == ("bad_nodes", [sorted(path)])
    rest = set(names(8)) - played.plan.bad.keys()
    assert any(set(run.nodes) == rest and run.verdict is Verdict.OK for run in played.runs)
