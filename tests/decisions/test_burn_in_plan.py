"""The burn-in plan against planted faults: finds the bad nodes, accuses nobody else, ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checks.model import Verdict
from workflows.decisions.burn_in_plan import MAX_ROUNDS, BurnInFacts, BurnInNext, RunDone, plan_next


def run_group(group: list[str], bad: set[str], round_number: int) -> RunDone:
    """What the all-reduce says of a group in which some nodes are slow."""
    slow = bool(set(group) & bad)
    verdict, cause = (Verdict.CRITICAL, "low_bandwidth") if slow else (Verdict.OK, "healthy")
    return RunDone(round=round_number, nodes=group, verdict=verdict, cause=cause, evidence="230 GB/s" if slow else "470 GB/s")


def play(nodes: list[str], bad: set[str]) -> tuple[BurnInNext, list[RunDone]]:
    """Follow the plan to its end."""
    runs: list[RunDone] = []
    while not (plan := plan_next(BurnInFacts(nodes=nodes, runs=runs))).done:
        number = runs[-1].round + 1 if runs else 1
        assert number <= MAX_ROUNDS
        flat = [node for group in plan.groups for node in group]
        assert len(flat) == len(set(flat)), "the groups of a round are disjoint"
        runs += [run_group(group, bad, number) for group in plan.groups]
    return plan, runs


def names(count: int) -> list[str]:
    """node-1 and so on."""
    return [f"node-{number}" for number in range(1, count + 1)]


def test_a_clean_group_costs_one_run() -> None:
    plan, runs = play(names(4), set())
    assert (plan.verdict, len(runs), plan.bad) == (Verdict.OK, 1, {})


def test_one_slow_node_of_four_is_found_in_four_rounds_and_the_rest_is_proven() -> None:
    plan, runs = play(names(4), {"node-3"})
    assert list(plan.bad) == ["node-3"]
    assert plan.verdict is Verdict.CRITICAL
    assert runs[-1].round == 4
    assert runs[-1].nodes == ["node-1", "node-2", "node-4"]


@given(st.integers(3, 40), st.data())
def test_up_to_a_third_of_bad_nodes_is_found_and_nobody_else_is_accused(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    bad = data.draw(st.sets(st.sampled_from(nodes), max_size=max(1, count // 6)))
    plan, _ = play(nodes, bad)
    assert set(plan.bad) <= bad, "a good node was accused"
    if plan.cause == "bad_nodes":
        assert set(plan.bad) == bad


def test_a_node_that_is_bad_on_its_own_is_found_without_partners() -> None:
    plan, _ = play(["node-1"], {"node-1"})
    assert list(plan.bad) == ["node-1"]


def test_a_run_that_could_not_start_is_repeated_once_and_accuses_nobody() -> None:
    failed = RunDone(round=1, nodes=names(4), verdict=Verdict.UNKNOWN, cause="could_not_run", evidence="not enough slots")
    again = plan_next(BurnInFacts(nodes=names(4), runs=[failed]))
    assert again.groups == [names(4)]
    end = plan_next(BurnInFacts(nodes=names(4), runs=[failed, failed.model_copy(update={"round": 2})]))
    assert (end.done, end.verdict, end.bad) == (True, Verdict.UNKNOWN, {})


def test_a_group_that_fails_only_together_accuses_nobody() -> None:
    nodes = names(4)
    runs = [RunDone(round=1, nodes=nodes, verdict=Verdict.CRITICAL, cause="low_bandwidth")]
    runs += [RunDone(round=2, nodes=pair, verdict=Verdict.OK, cause="healthy") for pair in (nodes[:2], nodes[2:])]
    end = plan_next(BurnInFacts(nodes=nodes, runs=runs))
    assert (end.done, end.cause, end.bad) == (True, "undecided", {})
