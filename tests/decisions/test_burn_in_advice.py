"""Wrong results, wrong transport, a hang and a run that did not start stay four things, from output to next step."""

from __future__ import annotations

import pytest

from checks.judges.judgement import CAUSES, HEALTHY, MEASURED
from checks.judges.nccl_tests import judge
from checks.model import Verdict
from checks.probes.leftovers import LEFTOVER_PROCESSES
from tests.checks.judging import text_of
from workflows.decisions.burn_in_advice import ADVICE, SAME_AS, advice
from workflows.decisions.burn_in_plan import BurnInFacts, BurnInNext, plan_next
from workflows.decisions.burn_in_runs import RunDone

NODES = ["node-1", "node-2", "node-3", "node-4"]
TIMED_OUT = text_of("nccl_12") + "node-3: Test timeout (600s) common.cu:1030\n"


def run_of(text: str, nodes: list[str], number: int) -> RunDone:
    """A group run that printed this."""
    seen = judge(text)
    return RunDone(round=number, nodes=nodes, verdict=seen.verdict, cause=seen.cause, evidence=seen.evidence)


def good(nodes: list[str], number: int) -> RunDone:
    return run_of(text_of("nccl_04"), nodes, number)


def after(text: str, times: int = 2) -> BurnInNext:
    """The plan once the whole group printed this so often."""
    return plan_next(BurnInFacts(nodes=NODES, runs=[run_of(text, NODES, number) for number in range(1, times + 1)]))


def test_every_cause_of_a_judge_has_a_next_step() -> None:
    assert set(ADVICE) | set(SAME_AS) | {HEALTHY, MEASURED} == CAUSES | {LEFTOVER_PROCESSES}
    assert len(set(ADVICE.values())) == len(ADVICE)


@pytest.mark.parametrize(
    ("sample", "cause", "words"),
    [
        ("nccl_17", "wrong_transport", "none is to be replaced"),
        ("nccl_21", "could_not_run", "says nothing about the hardware"),
    ],
)
def test_what_says_nothing_of_a_node_is_tried_twice_accuses_nobody_and_says_what_to_mend(
    sample: str, cause: str, words: str
) -> None:
    assert after(text_of(sample), times=1).groups == [NODES]
    end = after(text_of(sample))
    assert (end.done, end.cause, end.bad, end.corrupt) == (True, cause, {}, [])
    assert end.verdict is not Verdict.OK
    assert words in end.next


@pytest.mark.parametrize("text", [text_of("nccl_10"), text_of("nccl_12"), TIMED_OUT], ids=["wrong results", "hang", "time limit"])
def test_wrong_results_and_hangs_are_looked_for_in_smaller_groups_at_once(text: str) -> None:
    following = after(text, times=1)
    assert not following.done
    assert all(len(group) < len(NODES) for group in following.groups)


def isolated(text: str) -> BurnInNext:
    """The end of a search in which every group with node-4 printed this."""
    runs = [run_of(text, NODES, 1)]
    for _ in range(8):
        plan = plan_next(BurnInFacts(nodes=NODES, runs=runs))
        if plan.done:
            return plan
        number = runs[-1].round + 1
        runs += [run_of(text, group, number) if "node-4" in group else good(group, number) for group in plan.groups]
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("text", "cause", "corrupt", "words"),
    [
        (text_of("nccl_10"), "data_corruption", ["node-4"], "choose the checkpoint"),
        (text_of("nccl_12"), "hang", [], "stood still"),
        (TIMED_OUT, "tool_timeout", [], "stood still"),
        (text_of("nccl_15"), "network_error", [], "a connection broke"),
    ],
    ids=["wrong results", "hang", "time limit", "network"],
)
def test_a_bad_node_is_named_with_how_it_failed_and_the_step_that_follows_from_it(
    text: str, cause: str, corrupt: list[str], words: str
) -> None:
    end = isolated(text)
    assert (end.cause, list(end.bad), end.corrupt) == ("bad_nodes", ["node-4"], corrupt)
    assert end.bad["node-4"].startswith(f"{cause} beside ")
    assert words in end.next


def test_where_groups_failed_in_several_ways_wrong_results_come_first() -> None:
    runs = [run_of(text_of("nccl_12"), NODES, 1), run_of(text_of("nccl_10"), NODES[:2], 2)]
    assert "checkpoint" in advice("bad_nodes", runs)
    assert advice("healthy", [good(NODES, 1)]) == ""
