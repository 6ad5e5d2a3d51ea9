"""The node's side of runs by name: one run for one id, an answer that says when it was cut, nothing that is not in the table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checks.host import Host
from checks.named_runs import FORMAT, KEEP_S, NamedRuns, folder_name, packed, packed_options, unpacked, unpacked_options
from checks.node_commands import NODE_COMMANDS

TREE = Path(__file__).parents[2]


class Node:
    """A root folder, and what Run Command starts there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.runs = root / "var/lib/hotspare-node/runs"
        boot = root / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("boot-1\n")

    def script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def printed(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOTSPARE_HOST_ROOT": str(self.root),
            "PYTHONPATH": str(TREE),
        }
        command = [sys.executable, "-m", "hotspare.checks.on_node", *words]
        return subprocess.run(command, env=environment, cwd=self.root, capture_output=True, text=True, check=False)

    def ask(self, action: str, check: str, run_id: str, **options: Any) -> dict[str, Any]:
        done = self.printed(action, check, run_id, packed_options({"deadline_s": 30, **options}))
        assert done.returncode == 0, done.stderr
        answer = unpacked(done.stdout)
        assert answer is not None
        return answer


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_command_is_answered_with_both_its_streams_and_its_status(node: Node) -> None:
    node.script("uname", 'echo "Linux $1"; echo trouble >&2; exit 3')
    answer = node.ask("run", "kernel-version", "r1")
    assert answer == {"exit_status": 3, "timed_out": False, "stdout": "Linux -a\n", "stderr": "trouble\n"}


def test_the_same_run_id_is_the_same_run(node: Node) -> None:
    node.script("uname", f'echo once >> "{node.root}/count"; cat "{node.root}/count"')
    first = node.ask("run", "kernel-version", "r1")
    assert node.ask("run", "kernel-version", "r1") == first
    assert node.ask("run", "kernel-version", "r2")["stdout"] == "once\nonce\n"


def test_a_command_that_is_not_there_ends_with_127(node: Node) -> None:
    answer = node.ask("run", "dcgm-health", "r1")
    assert (answer["exit_status"], answer["stderr"]) == (127, "dcgmi: No such file or directory\n")


def test_a_command_past_its_deadline_is_ended_and_that_is_said(node: Node) -> None:
    node.script("uptime", "echo begun; exec sleep 600")
    answer = node.ask("run", "uptime", "r1", deadline_s=0.3)
    assert (answer["timed_out"], answer["exit_status"], answer["stdout"]) == (True, 124, "begun\n")


def test_of_a_long_output_the_end_is_kept(node: Node) -> None:
    node.script("uptime", "echo 0123456789")
    assert node.ask("run", "uptime", "r1", limit=4)["stdout"] == "789\n"


def test_a_run_that_is_started_is_not_waited_for_and_can_be_ended(node: Node) -> None:
    node.script("all_reduce_perf", "echo begun; exec sleep 600")
    assert node.ask("start", "load-test", "r1", deadline_s=600) == {"started": True}
    assert node.ask("poll", "load-test", "r1")["exit_status"] is None
    assert node.ask("kill", "load-test", "r1") == {"known": True}
    assert node.ask("poll", "load-test", "r1")["exit_status"] not in (None, 0)
    assert node.ask("poll", "load-test", "another") == {"known": False}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run", "shell", "r", packed_options({"deadline_s": 1})), "no command called shell"),
        (("run", "uptime", "r", packed_options({"deadline_s": 1, "words": ["-V"]})), "may not follow uptime"),
        (("delete", "uptime", "r", packed_options({"deadline_s": 1})), "no action called delete"),
        (("run", "uptime", "r", packed_options({"deadline_s": 1, "format": 2})), "reads format 1, and was asked in format 2"),
        (("run", "uptime", "r", "e30"), "was asked in format None"),
        (("run", "uptime", "r", "W10"), "the options are no table"),
        (("run", "uptime", "r", "!"), ""),
    ],
)
def test_what_is_refused_is_an_answer_and_nothing_is_run(node: Node, words: tuple[str, ...], why: str) -> None:
    done = node.printed(*words)
    answer = unpacked(done.stdout)
    assert answer is not None
    assert why in answer["refused"]
    assert not node.runs.exists() or not list(node.runs.iterdir())


@given(st.text(), st.sampled_from([*NODE_COMMANDS, "shell", ""]), st.text(max_size=200), st.text())
def test_every_question_has_an_answer(action: str, check: str, run_id: str, options: str) -> None:
    answer = unpacked(NamedRuns(Host("/nowhere")).answer(action, check, run_id, options))
    assert answer is not None
    assert "refused" in answer


VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=3)
QUESTIONS = st.dictionaries(st.sampled_from(["words", "deadline_s", "limit", "format"]), VALUES)


@given(st.sampled_from(["run", "start", "poll", "kill"]), QUESTIONS)
@example("run", {"limit": float("inf"), "deadline_s": 1.0})
@example("run", {"deadline_s": float("nan")})
@example("run", {"words": 5, "deadline_s": 1.0})
def test_every_table_of_options_has_an_answer(action: str, options: dict[str, Any]) -> None:
    """A command that is not in the table, so that nothing is run whatever else is right."""
    assert unpacked(NamedRuns(Host("/nowhere")).answer(action, "shell", "r", packed_options(options))) is not None


def test_wrong_usage_is_no_answer(node: Node) -> None:
    done = node.printed("run", "uptime")
    assert (done.returncode, done.stdout) == (64, "")


def test_a_run_that_ended_long_ago_is_forgotten_and_one_of_now_is_not(node: Node) -> None:
    node.script("uptime", "echo up")
    for run_id in ("old", "new"):
        node.ask("run", "uptime", run_id)
    long_ago = time.time() - KEEP_S - 60
    os.utime(node.runs / folder_name("old") / "status", (long_ago, long_ago))
    node.ask("run", "uptime", "another")
    assert {entry.name for entry in node.runs.iterdir()} == {folder_name("new"), folder_name("another")}


def test_an_answer_that_was_cut_says_so_and_one_in_another_format_is_not_guessed_at() -> None:
    line = packed({"stdout": "x"})
    assert unpacked(f"noise\n{line}\n") == {"stdout": "x"}
    for cut in (line[:-3], f"{line[:-3]}--output truncated--", f"{line[:-22]}--output truncated--", f"{line[:-3]}\n---"):
        assert unpacked(cut) is None
    for strange, why in (("", "no answer"), ("hotspare-run 1", "no answer"), (line.replace(f" {FORMAT} ", " 9 "), "in format 9")):
        with pytest.raises(ValueError, match=why):
            unpacked(strange)


def test_options_hold_nothing_that_a_shell_reads() -> None:
    options = {"words": ["'; touch /tmp/x; '", "$(id)", "\u00e9\n"], "deadline_s": 1.5}
    text = packed_options(options)
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert unpacked_options(text) == {"format": FORMAT, **options}
