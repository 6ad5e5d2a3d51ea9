"""Rails in the burn-in: one that is slow on every node is told and no node accused; one adapter is told as its node's."""

from __future__ import annotations

from random import Random

import pytest

from checks.model import Verdict
from tests.decisions.burn_in_world import RAILS, World, names, play
from workflows.decisions.burn_in_plan import BurnInFacts, plan_next
from workflows.decisions.burn_in_runs import RunDone
from workflows.decisions.burn_in_settings import BurnInLimits

WIDE = BurnInLimits(side_by_side=1024, nodes_out=1000)


def over_rails(runs: list[RunDone]) -> list[RunDone]:
    return [run for run in runs if run.rail is not None]


@pytest.mark.parametrize(("count", "most"), [(4, 5), (8, 3), (16, 2), (64, 2), (2048, 2)])
def test_a_rail_whose_switch_is_slow_is_found_in_few_rounds_and_no_node_is_blamed(count: int, most: int) -> None:
    nodes, random = names(count), Random(count)
    for rail in random.sample(range(RAILS), 1 if count > 64 else 4):
        played = play(nodes, World(bad_rails={rail: set(nodes)}, random=random), WIDE, rails=RAILS)
        assert (played.plan.cause, played.plan.verdict, played.plan.bad) == ("bad_rails", Verdict.CRITICAL, {})
        assert played.plan.bad_rails == [rail]
        assert f"rail {rail} is slow whatever the nodes" in played.plan.because[0]
        assert len({run.round for run in over_rails(played.runs)}) <= most


def test_two_slow_rails_are_both_told() -> None:
    nodes = names(32)
    played = play(nodes, World(bad_rails={2: set(nodes), 5: set(nodes)}), WIDE, rails=RAILS)
    assert played.plan.bad_rails == [2, 5]


def test_no_rail_is_run_while_the_ordinary_search_gets_on() -> None:
    nodes, random = names(256), Random(5)
    for faults in range(1, 6):
        played = play(nodes, World(bad=set(random.sample(nodes, faults))), WIDE, rails=RAILS)
        assert played.plan.cause == "bad_nodes"
        assert over_rails(played.runs) == []


def test_nodes_that_all_fail_by_themselves_are_no_rail_and_the_search_goes_on() -> None:
    nodes = names(16)
    bad = set(nodes[::4])
    played = play(nodes, World(bad=bad), BurnInLimits(side_by_side=4), rails=RAILS)
    assert over_rails(played.runs), "each of four groups failed, so one common cause was looked for"
    assert (set(played.plan.bad), played.plan.bad_rails) == (bad, [])


def test_the_slow_rail_of_one_switch_is_told_where_all_its_nodes_would_be_blamed() -> None:
    nodes = names(128)
    behind = set(nodes[:48])
    world = World(bad_rails={6: behind})
    played = play(nodes, world, BurnInLimits(side_by_side=64, nodes_out=32), rails=RAILS)
    assert (played.plan.cause, played.plan.bad_rails) == ("bad_rails", [6]), "48 nodes are not given up for one switch"


def test_one_slow_adapter_is_its_node_s_and_its_rail_is_told_to_a_person_who_wants_to_see_everything() -> None:
    nodes = names(8)
    world = World(bad_adapters={"node-3": 5})
    quick = play(nodes, world, WIDE, rails=RAILS)
    assert (list(quick.plan.bad), over_rails(quick.runs)) == (["node-3"], [])
    whole = play(nodes, world, WIDE, rails=RAILS, every_pair=True)
    assert list(whole.plan.bad) == ["node-3"]
    assert whole.plan.bad["node-3"].endswith("by single rails only rail 5 of it is slow")
    assert {run.rail for run in over_rails(whole.runs)} == set(range(RAILS))


def test_the_rail_of_a_bad_path_is_told() -> None:
    nodes = names(6)

    class Cable(World):
        def slow_rail(self, ring: list[str], rail: int) -> bool:
            return rail == 1 and {"node-2", "node-3"} <= set(ring) and len(ring) == 2

    played = play(nodes, Cable(bad_paths={frozenset({"node-2", "node-3"})}), WIDE, rails=RAILS, every_pair=True)
    assert played.plan.bad_paths == [["node-2", "node-3"]]
    assert "only rail 1 of it is slow" in " ".join(played.plan.because)


@pytest.mark.parametrize(
    ("cause", "by_rail"), [("low_bandwidth", True), ("network_error", True), ("data_corruption", False), ("hang", False)]
)
def test_only_what_an_adapter_does_and_a_run_can_measure_is_looked_for_by_rail(cause: str, by_rail: bool) -> None:
    nodes = names(16)
    groups = [nodes, *(nodes[at : at + 2] for at in range(0, 16, 2))]
    runs = [RunDone(round=min(len(group), 2), nodes=group, verdict=Verdict.CRITICAL, cause=cause) for group in groups]
    runs[0] = runs[0].model_copy(update={"round": 1})
    assert bool(plan_next(BurnInFacts(nodes=nodes, runs=runs, rails=RAILS), WIDE).rails) is by_rail


def test_a_rail_on_which_connections_break_carries_nothing() -> None:
    nodes = names(16)
    world = World(bad_rails={3: set(nodes)})

    class Broken(World):
        def run_over(self, rail: int, ring: list[str], number: int) -> RunDone:
            done = world.run_over(rail, ring, number)
            broken = {"busbw_gbs": None, "verdict": Verdict.CRITICAL, "cause": "network_error"} if rail == 3 else {}
            return done.model_copy(update=broken)

    played = play(nodes, Broken(bad_rails={3: set(nodes)}), WIDE, rails=RAILS)
    assert played.plan.bad_rails == [3]
    assert "(0 GB/s in 2 groups" in played.plan.because[0]


def test_rails_are_left_out_where_the_setting_says_so_or_they_cannot_be_run() -> None:
    nodes = names(16)
    for limits, rails in ((WIDE.model_copy(update={"rail_rounds": 0}), RAILS), (WIDE, 0)):
        played = play(nodes, World(bad_rails={3: set(nodes)}), limits, rails=rails)
        assert (over_rails(played.runs), played.plan.cause, played.plan.bad) == ([], "undecided", {})


def test_a_launcher_that_runs_no_single_rail_is_asked_for_one_round_and_no_more() -> None:
    nodes = names(16)

    class AllRailsOnly(World):
        def run_over(self, rail: int, ring: list[str], number: int) -> RunDone:
            return RunDone(round=number, nodes=ring, verdict=Verdict.UNKNOWN, cause="could_not_run", rail=rail)

    played = play(nodes, AllRailsOnly(bad_rails={3: set(nodes)}), WIDE, rails=RAILS)
    assert (played.plan.cause, played.plan.bad) == ("undecided", {})
    assert len({run.round for run in over_rails(played.runs)}) == 1


def test_a_rail_that_could_not_be_run_is_no_slow_one() -> None:
    nodes = names(16)
    world = World(bad_rails={3: set(nodes)})

    class Dumb(World):
        def run_over(self, rail: int, ring: list[str], number: int) -> RunDone:
            done = world.run_over(rail, ring, number)
            blind = {"busbw_gbs": None, "cause": "could_not_run"} if rail == 3 else {}
            return done.model_copy(update=blind)

    played = play(nodes, Dumb(bad_rails={3: set(nodes)}), WIDE, rails=RAILS)
    assert (played.plan.cause, played.plan.bad_rails, played.plan.bad) == ("undecided", [], {})
