"""`hotspare burn-in`: which nodes it takes, what it shows while it runs, and what it says and writes at the end."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from rich.console import Console
from rich.spinner import Spinner
from temporalio.client import WorkflowExecutionStatus

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from checks.model import Verdict
from tests.workers.test_cli import Shell
from tests.workers.test_cli import shell as shell  # a fixture
from workers.cli import burn_in, common
from workers.cli.burn_in import Wish
from workers.cli.burn_in_matrix import PairMatrix, matrix_lines, pair_matrix
from workers.cli.burn_in_plot import draw
from workers.cli.burn_in_shown import cause_in_words, rounds_table
from workflows.messages import BurnInReport, GroupRun, NodeVerdict

FOUR = ("node-1", "node-2", "node-3", "node-4")


@pytest.fixture
def held(shell: Shell) -> Shell:
    """The shell, with the job held, so that its nodes are idle and ours."""
    shell.healing.fleet.job.hold("train", "burn-in by hand")
    return shell


async def test_it_shows_its_rounds_and_passes_idle_nodes(held: Shell) -> None:
    status, out, _ = await held.type("burn-in", "node-1", "node-2", held.healing.fleet.node("node-1").instance_id)
    assert status == 0
    assert "burn-in/lab/by-hand/" in out
    assert "round 1  all 2 nodes as one group" in out
    assert "http://ui.example/" in out
    assert "healthy (1 run in 1 round)" in out
    assert held.healing.fleet.group_run_nodes == [["node-1", "node-2"]]


async def test_it_names_the_slow_node(held: Shell) -> None:
    held.healing.fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    status, out, _ = await held.type("burn-in", *FOUR, "--json")
    assert status == 2
    answer = json.loads(out)
    verdicts = {node["node_name"]: node["verdict"] for node in answer["report"]["nodes"]}
    assert verdicts == {"node-1": "OK", "node-2": "OK", "node-3": "CRITICAL", "node-4": "OK"}
    assert answer["runs"][0]["nodes"] == list(FOUR)
    assert len(answer["runs"]) == answer["report"]["runs"]
    tried = {tuple(pair["nodes"]): pair["verdict"] for pair in answer["pairs"]}
    assert tried["node-3", "node-4"] == "CRITICAL"


@pytest.mark.parametrize("typed", [["burn-in", "spare-1"], ["burn-in", "--cluster", "lab"], ["spares", "test", "spare-1"]])
async def test_a_cluster_that_is_only_observed_has_no_load_put_on_it_by_hand_either(held: Shell, typed: list[str]) -> None:
    held.config.write_text(held.config.read_text().replace('mode = "approve"', 'mode = "observe"'))
    status, _, err = await held.type(*typed)
    assert status == 3
    assert "only observed" in err
    assert "set policy.mode" in " ".join(err.split())
    assert held.healing.fleet.group_run_nodes == []


async def test_it_leaves_nodes_alone_that_compute_or_do_not_answer_and_says_why(shell: Shell) -> None:
    fleet = shell.healing.fleet
    status, _, err = await shell.type("burn-in", "node-1", "spare-1")
    assert status == 3
    assert "8 processes hold GPUs of node-1" in err
    assert "so nothing was started; hold the job that has the nodes" in err
    fleet.inject("spare-1", FakeFault(unreachable=True))
    status, _, err = await shell.type("burn-in", "spare-1")
    assert status == 3
    assert "whether a process holds a GPU of spare-1 is not known" in err
    assert fleet.count("group.start") == 0


async def test_it_ends_with_the_command_that_asked_for_it(held: Shell) -> None:
    hold = held.healing.fleet.hold("group.start")
    wish = Wish(["node-1", "node-2"])
    asking = asyncio.ensure_future(burn_in.follow_burn_in(common.Answer(as_json=True), wish, held.config))
    await hold.reached()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    hold.release()
    client, states = held.healing.client, [WorkflowExecutionStatus.RUNNING]

    async def ended() -> bool:
        states[:] = [one.status async for one in client.list_workflows("WorkflowType = 'BurnIn'") if one.status]
        return bool(states) and states[0] is not WorkflowExecutionStatus.RUNNING

    await held.until(ended)
    assert states == [WorkflowExecutionStatus.CANCELED]


async def test_one_that_ends_without_a_verdict_is_unknown_in_junit_too(held: Shell, tmp_path: Path) -> None:
    hold = held.healing.fleet.hold("group.start")
    file = tmp_path / "burn-in.xml"
    typed = asyncio.ensure_future(held.type("burn-in", "node-1", "node-2", "--junit", str(file)))
    await hold.reached()
    client = held.healing.client
    seen: list[str] = []

    async def listed() -> bool:
        seen[:] = [one.id async for one in client.list_workflows("WorkflowType = 'BurnIn'")]
        return bool(seen)

    await held.until(listed)
    await client.get_workflow_handle(seen[0]).cancel()
    hold.release()
    status, _, err = await typed
    assert status == 3
    assert f"{seen[0]} ended without a verdict" in err
    assert Xml.parse(file).find("testsuite/testcase/error") is not None


async def test_of_a_cluster_it_takes_the_free_nodes_and_says_why_not_the_others(shell: Shell) -> None:
    fleet = shell.healing.fleet
    answer = await shell.ask("burn-in", "--cluster", "lab")
    assert fleet.group_run_nodes == [["spare-1"]]
    assert set(answer["left_out"]) == set(FOUR)
    assert any("job train is running on node-1" in reason for reason in answer["left_out"]["node-1"])


async def test_of_a_cluster_it_leaves_out_what_an_incident_or_a_replacement_has(held: Shell) -> None:
    fleet = held.healing.fleet
    fleet.ec2.set_tags(fleet.node("node-2").instance_id, {names.TAG_QUARANTINE: names.incident_id("lab", "i-2")})
    fleet.ec2.set_tags(fleet.node("spare-1").instance_id, {names.TAG_LEASE: names.replace_id("lab", "i-2")})
    status, out, _ = await held.type("burn-in", "--cluster", "lab")
    assert status == 0
    assert fleet.group_run_nodes == [["node-1", "node-3", "node-4"]]
    assert "left out, 2 nodes:" in out
    assert "quarantined by incident/lab/i-2" in out
    assert "leased to replace/lab/i-2" in out


async def test_where_nobody_is_free_nothing_is_started(shell: Shell) -> None:
    shell.healing.fleet.inject("spare-1", FakeFault(unreachable=True))
    status, _, err = await shell.type("burn-in", "--cluster", "lab")
    assert (status, shell.healing.fleet.group_run_nodes) == (3, [])
    assert "no node of lab is free, so nothing was started" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the nodes to burn in"),
        (["node-1", "--cluster", "lab"], "one of the two"),
        (["--cluster", "other"], "the settings file is of cluster lab, not of other"),
        (["node-1", "--plot", "pairs.txt"], "the name must end with .png"),
        (["node-1", "--plot", "/nowhere/pairs.png"], "there is no folder /nowhere"),
        (["node-1", "--junit", "/nowhere/burn-in.xml"], "there is no folder /nowhere"),
    ],
)
async def test_wrong_usage_is_said_before_anything_is_started(shell: Shell, words: list[str], said: str) -> None:
    status, _, err = await shell.type("burn-in", *words)
    assert (status, shell.healing.fleet.group_run_nodes) == (64, [])
    assert said in err


async def test_without_matplotlib_the_line_to_type_is_said_before_the_burn_in(
    held: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else real(name, *more))
    status, _, err = await held.type("burn-in", "node-1", "node-2", "--plot", "pairs.png")
    assert (status, held.healing.fleet.group_run_nodes) == (64, [])
    assert "pip install 'hotspare[plots]'" in err


async def test_diagnose_tries_every_pair_and_finds_the_path_that_the_group_does_not_use(held: Shell, tmp_path: Path) -> None:
    fleet = held.healing.fleet
    fleet.slow_paths[frozenset({"node-1", "node-3"})] = 0.3
    assert (await held.type("burn-in", *FOUR))[0] == 0
    picture, junit = tmp_path / "pairs.png", tmp_path / "burn-in.xml"
    status, out, err = await held.type("burn-in", *FOUR, "--diagnose", "--plot", str(picture), "--junit", str(junit))
    assert status == 2, (out, err)
    assert "6 of 6 pairs tried" in out
    assert "141!" in out
    assert "the path to node-1 is bad" in out
    assert "\nnext " in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    suite = Xml.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "3", "0")
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["the group", "node-3", "path node-1 - node-3"]


@pytest.mark.parametrize("width", [80, 140])
async def test_on_a_terminal_the_rounds_stay_in_one_table_of_its_width(held: Shell, width: int) -> None:
    held.healing.fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    answer = common.Answer(as_json=False)
    screen = io.StringIO()
    answer.console = Console(file=screen, force_terminal=True, width=width, highlight=False, soft_wrap=True, markup=False)
    report = await burn_in.follow_burn_in(answer, Wish([*FOUR]), held.config)
    assert report.verdict is Verdict.CRITICAL
    assert "\x1b[" in screen.getvalue()
    assert "round 1" in screen.getvalue()


def written(thing: Any, width: int) -> list[str]:
    """Lines as a terminal of this width shows them."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, highlight=False, markup=False)
    console.print(thing)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def run(*nodes: str, verdict: Verdict | None = Verdict.OK, gbs: float | None = 470.0, number: int = 1) -> GroupRun:
    return GroupRun(round=number, nodes=list(nodes), why="why", verdict=verdict, busbw_gbs=gbs)


@pytest.mark.parametrize("width", [80, 140])
def test_rounds_fit_the_screen_and_name_what_runs(width: int) -> None:
    pairs = [run(f"node-{at}", f"node-{at + 1}", verdict=None, gbs=None, number=2) for at in range(1, 40, 2)]
    lines = written(rounds_table([run(*FOUR), *pairs], width, Spinner("dots")), width)
    assert all(len(line) <= width for line in lines)
    assert "20 running" in "\n".join(lines)
    assert "and 12 more groups" in " ".join(line.strip() for line in lines)


def full(count: int, bad: tuple[str, str] | None = None) -> PairMatrix:
    nodes = [f"node-{number}" for number in range(1, count + 1)]
    runs = [run(one, other) for at, one in enumerate(nodes) for other in nodes[at + 1 :]]
    return pair_matrix(nodes, [*runs, *([run(*bad, verdict=Verdict.CRITICAL, gbs=141.0)] if bad else [])])


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("count", [2, 8, 20, 60, 200])
def test_the_matrix_fits_the_screen_and_shows_the_failing_pair(count: int, width: int) -> None:
    lines = [line.plain for line in matrix_lines(full(count, ("node-1", "node-2")), width)]
    assert all(len(line) <= width for line in lines), max(lines, key=len)
    assert any("141!" in line or " X" in line for line in lines[1:])


def test_of_many_nodes_of_which_few_pairs_were_tried_only_those_that_failed_are_shown() -> None:
    nodes = [f"node-{number}" for number in range(1, 17)]
    pairs = [run(*nodes[at : at + 2]) for at in range(0, 16, 2)]
    assert [line.plain for line in matrix_lines(pair_matrix(nodes, pairs), 140)] == ["8 of 120 pairs tried, all pass"]
    bad = run("node-5", "node-9", verdict=Verdict.CRITICAL, gbs=141.0)
    lines = [line.plain for line in matrix_lines(pair_matrix(nodes, [*pairs, bad]), 140)]
    assert "14 nodes without a failing pair are left out" in lines
    assert [line.split()[1] for line in lines[-2:]] == ["node-5", "node-9"]


def test_a_run_over_one_rail_is_named_so_and_is_no_measure_of_the_pair() -> None:
    over_a_rail = run("node-1", "node-2", gbs=47.0, number=2).model_copy(update={"rail": 3})
    matrix = pair_matrix(["node-1", "node-2"], [run("node-1", "node-2"), over_a_rail])
    cell = matrix.of("node-1", "node-2")
    assert cell is not None
    assert cell.busbw_gbs == 470.0
    assert "node-1 + node-2 over rail 3, 47 GB/s" in "\n".join(written(rounds_table([over_a_rail], 80), 80))


def test_of_several_runs_of_a_pair_the_worst_counts() -> None:
    matrix = full(3, ("node-2", "node-1"))
    cell = matrix.of("node-1", "node-2")
    assert cell is not None
    assert (cell.verdict, cell.busbw_gbs) == (Verdict.CRITICAL, 141.0)
    assert matrix.failing == [["node-1", "node-2"]]


def test_a_matrix_that_is_wider_than_the_screen_without_failures_is_one_sentence() -> None:
    assert [line.plain for line in matrix_lines(full(60), 80)] == ["1770 of 1770 pairs tried, all pass"]


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_the_picture_is_drawn_whatever_was_tried(count: int, tmp_path: Path) -> None:
    bad = ("node-1", "node-2") if count > 1 else None
    for name in ("pairs.png", "pairs.svg"):
        draw(full(count, bad), "burn-in/lab/1: CRITICAL bad nodes", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    draw(PairMatrix(["node-1", "node-2"]), "nothing tried", tmp_path / "empty.png")


@pytest.mark.parametrize(
    ("causes", "paths", "words"),
    [
        (["bad node", "healthy"], [], "bad nodes"),
        (["bad path", "healthy", "healthy"], [["node-0", "node-1"]], "bad path"),
        (["bad path", "healthy", "bad path"], [["node-0", "node-1"], ["node-1", "node-2"]], "bad paths"),
        (["bad path", "healthy", "bad node"], [["node-0", "node-1"]], "bad nodes and paths"),
    ],
)
def test_a_node_that_is_left_out_for_a_bad_path_is_no_bad_node(causes: list[str], paths: list[list[str]], words: str) -> None:
    nodes = [
        NodeVerdict(
            instance_id=f"i-{number}",
            node_name=f"node-{number}",
            verdict=Verdict.OK if cause == "healthy" else Verdict.CRITICAL,
            cause=cause,
        )
        for number, cause in enumerate(causes)
    ]
    assert cause_in_words(BurnInReport(verdict=Verdict.CRITICAL, cause="bad_nodes", nodes=nodes, bad_paths=paths)) == words
