"""The burn-in plan against planted faults: finds the bad nodes and paths, accuses nobody else, ends in few rounds."""

from __future__ import annotations

from collections import Counter
from math import comb, log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.model import Verdict
from tests.decisions.burn_in_world import World, names, play
from workflows.decisions.burn_in_plan import BurnInFacts, plan_next
from workflows.decisions.burn_in_runs import RunDone
from workflows.decisions.burn_in_settings import BurnInLimits

MANY = BurnInLimits(rounds=400, nodes_out=1000)


def at_once(groups: int) -> BurnInLimits:
    """No bound but the groups that run together."""
    return MANY.model_copy(update={"side_by_side": groups})


def run(nodes: list[str], passes: bool, number: int, cause: str = "low_bandwidth") -> RunDone:
    """One run that ended."""
    return RunDone(
        round=number,
        nodes=nodes,
        verdict=Verdict.OK if passes else Verdict.CRITICAL,
        cause="healthy" if passes else cause,
        evidence="470 GB/s" if passes else "230 GB/s",
    )


def test_a_clean_group_costs_one_run() -> None:
    played = play(names(4), World())
    assert (played.plan.verdict, len(played.runs), played.plan.bad) == (Verdict.OK, 1, {})


def test_one_slow_node_of_four_is_found_in_four_rounds_and_the_rest_is_proven() -> None:
    played = play(names(4), World(bad={"node-3"}))
    assert list(played.plan.bad) == ["node-3"]
    assert played.plan.verdict is Verdict.CRITICAL
    assert played.rounds == 4
    assert played.runs[-1].nodes == ["node-1", "node-2", "node-4"]


@settings(max_examples=1000)
@given(st.integers(3, 48), st.sampled_from([1, 2, 3, 4, 8, 16, 64]), st.data())
def test_up_to_a_quarter_of_bad_nodes_is_found_and_nobody_else_is_accused(count: int, groups: int, data: st.DataObject) -> None:
    nodes = names(count)
    bad = data.draw(st.sets(st.sampled_from(nodes), max_size=max(1, count // 4)))
    played = play(nodes, World(bad=bad), at_once(groups))
    assert set(played.plan.bad) == bad
    assert played.plan.cause == ("bad_nodes" if bad else "healthy")
    rest = {node for node in nodes if node not in bad}
    assert any(set(one.nodes) == rest and one.verdict is Verdict.OK for one in played.runs), "the rest passes as a group"


@settings(max_examples=700)
@given(st.integers(6, 48), st.sampled_from([1, 2, 5, 16, 64]), st.data())
def test_a_bad_path_is_told_from_its_two_good_nodes(count: int, groups: int, data: st.DataObject) -> None:
    nodes = names(count)
    at = data.draw(st.integers(0, count - 1))
    path = frozenset({nodes[at], nodes[(at + 1) % count]})
    bad = data.draw(st.sets(st.sampled_from([node for node in nodes if node not in path]), max_size=2))
    played = play(nodes, World(bad=bad, bad_paths={path}), at_once(groups))
    assert played.plan.cause == "bad_nodes"
    assert set(played.plan.bad) - path == bad, "nobody beside the ends of the path was accused"
    assert played.plan.bad_paths in ([sorted(path)], []), "unless a node between them was taken out first, the path is named"
    if played.plan.bad_paths:
        assert len(set(played.plan.bad) & path) == 1, "one end is left out, the other stays"


@pytest.mark.parametrize("faults", range(1, 6))
@pytest.mark.parametrize(("groups", "most"), [(1024, 4), (64, 6)])
def test_bad_nodes_of_2048_are_found_in_few_rounds(groups: int, most: int, faults: int) -> None:
    nodes, random = names(2048), Random(faults)
    for _ in range(15):
        bad = set(random.sample(nodes, faults))
        played = play(nodes, World(bad=bad), at_once(groups))
        assert set(played.plan.bad) == bad
        assert played.rounds_after_the_first_failure <= most


def test_two_bad_nodes_that_are_paired_with_each_other_cost_one_round_more() -> None:
    nodes = names(2048)
    played = play(nodes, World(bad={"node-1", "node-2", "node-7", "node-8", "node-100"}), at_once(1024))
    assert set(played.plan.bad) == {"node-1", "node-2", "node-7", "node-8", "node-100"}
    assert played.rounds_after_the_first_failure <= 4


@pytest.mark.parametrize("faults", range(1, 6))
def test_one_group_at_a_time_stays_within_one_and_a_half_times_the_bound_of_group_testing(faults: int) -> None:
    nodes, random = names(2048), Random(faults)
    plants = [set(random.sample(nodes, faults)) for _ in range(4)] + [set(nodes[:faults]), set(nodes[-faults:])]
    for bad in plants:
        played = play(nodes, World(bad=bad), at_once(1))
        assert set(played.plan.bad) == bad
        assert len(played.runs) - 1 <= 1.5 * log2(comb(2048, faults))


@pytest.mark.parametrize(("groups", "most"), [(1024, 6), (64, 8)])
def test_a_bad_path_among_2048_costs_at_most_two_rounds_more(groups: int, most: int) -> None:
    nodes, random = names(2048), Random(7)
    for at in [0, 31, 32, 2047, *random.sample(range(2048), 12)]:
        path = frozenset({nodes[at], nodes[(at + 1) % 2048]})
        played = play(nodes, World(bad_paths={path}), at_once(groups))
        assert played.plan.bad_paths == [sorted(path)]
        assert played.rounds_after_the_first_failure <= most


def test_noise_blames_fewer_good_nodes_than_two_spoilt_runs_in_a_row_would() -> None:
    nodes, random = names(256), Random(11)
    accused = 0
    for seed in range(60):
        bad = set(random.sample(nodes, 3))
        played = play(nodes, World(bad=bad, noise=0.01, random=Random(seed)), at_once(128))
        assert bad <= set(played.plan.bad)
        accused += len(set(played.plan.bad) - bad)
    assert accused <= 6, "60 burn-ins of 253 good nodes each, 1 % of the runs spoilt: about 1 in 10,000, with room"


def test_a_node_that_fails_half_of_the_time_is_found_or_told() -> None:
    nodes, random = names(64), Random(3)
    ends: Counter[str] = Counter()
    for seed in range(60):
        node = random.choice(nodes)
        played = play(nodes, World(flaky={node: 0.5}, random=Random(seed)), at_once(32))
        once_failed = any(one.verdict is Verdict.CRITICAL for one in played.runs)
        assert played.plan.cause in (("bad_nodes", "intermittent", "undecided") if once_failed else ("healthy",))
        assert played.plan.verdict is not Verdict.OK or not once_failed, "what failed once and was not explained is not passed"
        ends[played.plan.cause] += 1
    assert ends["bad_nodes"] >= 10
    assert ends["undecided"] <= 6


def test_the_plan_is_taken_up_again_at_any_point() -> None:
    nodes = names(40)
    whole = play(nodes, World(bad={"node-5", "node-6"}, bad_paths={frozenset({"node-20", "node-21"})}), at_once(8))
    for number in range(1, whole.rounds):
        before = [one for one in whole.runs if one.round <= number]
        again = plan_next(BurnInFacts(nodes=nodes, runs=before), at_once(8))
        assert again.groups == [one.nodes for one in whole.runs if one.round == number + 1]


def test_a_node_that_is_bad_on_its_own_is_found_without_partners() -> None:
    assert list(play(["node-1"], World(bad={"node-1"})).plan.bad) == ["node-1"]


def test_of_two_nodes_that_fail_together_and_pass_alone_none_is_accused() -> None:
    nodes = names(2)
    runs = [run(nodes, False, 1), run(["node-1"], True, 2), run(["node-2"], True, 2)]
    end = plan_next(BurnInFacts(nodes=nodes, runs=runs))
    assert (end.done, end.cause, end.bad) == (True, "undecided", {})


def test_a_new_node_is_tried_beside_one_of_the_job_before_the_group_is() -> None:
    nodes = names(6)
    played = play(nodes, World(), fresh=["node-5", "node-6"])
    assert [one.nodes for one in played.runs] == [["node-5", "node-1"], ["node-6", "node-2"], nodes]


def test_a_bad_new_node_is_found_without_stopping_the_whole_group_for_it() -> None:
    nodes = names(6)
    played = play(nodes, World(bad={"node-6"}), fresh=["node-5", "node-6"])
    assert list(played.plan.bad) == ["node-6"]
    assert [one.nodes for one in played.runs if len(one.nodes) > 2] == [names(5)]


def test_a_run_that_could_not_start_is_repeated_once_and_accuses_nobody() -> None:
    failed = RunDone(round=1, nodes=names(4), verdict=Verdict.UNKNOWN, cause="could_not_run", evidence="not enough slots")
    again = plan_next(BurnInFacts(nodes=names(4), runs=[failed]))
    assert again.groups == [names(4)]
    end = plan_next(BurnInFacts(nodes=names(4), runs=[failed, failed.model_copy(update={"round": 2})]))
    assert (end.done, end.verdict, end.bad) == (True, Verdict.UNKNOWN, {})


class FailsOnlyTogether(World):
    """Every smaller group passes: nobody is to blame, the whole is."""

    def fails(self, ring: list[str]) -> bool:
        return len(ring) == 8


def test_a_group_that_fails_only_together_accuses_nobody() -> None:
    played = play(names(8), FailsOnlyTogether(), at_once(8))
    assert (played.plan.cause, played.plan.bad) == ("undecided", {})
    assert "together" in played.plan.because[0]


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        (BurnInLimits(rounds=2), "2 rounds"),
        (BurnInLimits(runs=2), "runs did not find"),
        (BurnInLimits(nodes_out=2, rounds=30), "more than the 2"),
    ],
)
def test_each_bound_ends_the_search_with_what_is_proven_so_far(bounds: BurnInLimits, word: str) -> None:
    played = play(names(24), World(bad={"node-2", "node-9", "node-17", "node-21"}), bounds)
    assert played.plan.cause == "undecided"
    assert word in played.plan.because[0]


def test_the_deadline_ends_the_search() -> None:
    end = plan_next(BurnInFacts(nodes=names(8), runs=[run(names(8), False, 1)], elapsed_s=7200.0))
    assert (end.done, end.cause) == (True, "undecided")
    assert "deadline" in end.because[0]


def test_faults_behind_one_switch_are_told_as_the_switch_s() -> None:
    nodes = names(24)
    switches = {node: f"leaf-{number // 8 + 1}" for number, node in enumerate(nodes)}
    played = play(nodes, World(bad=set(nodes[8:14])), at_once(64), switches=switches)
    assert played.plan.because[0].startswith("switch leaf-2: 6 of its 8 nodes are bad")


def test_bad_paths_between_two_switches_are_told_as_the_way_between_them() -> None:
    nodes = [node for pair in zip(names(8), [f"other-{number}" for number in range(1, 9)], strict=True) for node in pair]
    switches = {node: "leaf-1" if node.startswith("node") else "leaf-2" for node in nodes}
    bad_paths = {frozenset({"node-2", "other-2"}), frozenset({"node-6", "other-6"})}
    played = play(nodes, World(bad_paths=bad_paths), at_once(64), switches=switches)
    assert "leaf-1 and leaf-2: 2 bad paths between these switches" in played.plan.because
