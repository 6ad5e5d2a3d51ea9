"""The job adapter `command`: words stay words, answers are checked, and exit statuses say whether to try again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.clients.fake_fleet import FakeFleet
from activities.clients.ssh_paramiko import SshAccessTo
from activities.errors import BadInput, CapabilityMissing, CommandFailed, HotspareError, PreconditionFailed
from activities.jobs.command import CommandJobAdapter, fill
from activities.jobs.protocol import JobState
from activities.node_access import CommandResult, DetachedRun
from activities.settings_access import AccessSettings
from activities.settings_jobs import JobSettings
from tests.activities.loopback_node import LoopbackNode

SETTINGS = JobSettings(
    adapter="command",
    head="head",
    find=["trainctl", "find", "--node", "{node}"],
    status=["trainctl", "status", "{job}"],
    hold=["trainctl", "hold", "{job}", "--because={reason}"],
    resume=["trainctl", "resume", "{job}", "--nodes", "{nodes}", "--token", "{token}"],
)

RUNNING = json.dumps({"job": "train", "state": "RUNNING", "nodes": ["node-1"], "step": 7, "run_token": "t", "more": "ignored"})


@dataclass
class Head:
    """A head node that gives one answer and keeps the commands."""

    answer: CommandResult
    commands: list[list[str]] = field(default_factory=list)

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        self.commands.append(command)
        return self.answer

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        raise NotImplementedError

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        raise NotImplementedError

    def kill(self, run_id: str) -> None:
        raise NotImplementedError

    def put(self, file: Path, digest: str) -> str:
        raise NotImplementedError

    def follow_kernel_log(self) -> Iterator[str]:
        raise NotImplementedError

    def boot_id(self, deadline_s: float) -> str:
        raise NotImplementedError

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run"})

    def close(self) -> None:
        """Nothing is open."""


def says(stdout: str = "", status: int = 0, stderr: str = "") -> tuple[Head, CommandJobAdapter]:
    head = Head(CommandResult(exit_status=status, stdout=stdout, stderr=stderr))
    return head, CommandJobAdapter(lambda: head, SETTINGS)


def test_the_answer_of_a_command_is_the_status(fleet: FakeFleet) -> None:
    head, adapter = says(RUNNING)
    status = adapter.find_on(fleet.node("node-1"))
    assert status is not None
    assert (status.job, status.state, status.step) == ("train", JobState.RUNNING, 7)
    assert head.commands == [["trainctl", "find", "--node", "node-1"]]


def test_null_means_that_no_job_has_the_node(fleet: FakeFleet) -> None:
    assert says("null\n")[1].find_on(fleet.node("node-1")) is None


def test_each_word_is_one_argument_whatever_it_contains() -> None:
    head, adapter = says(RUNNING)
    adapter.hold("train", "XID 79; rm -rf / {token} {job} $(id)")
    assert head.commands == [["trainctl", "hold", "train", "--because=XID 79; rm -rf / {token} {job} $(id)"]]


def test_nodes_are_one_comma_separated_argument() -> None:
    head, adapter = says()
    adapter.resume("train", ["node-1", "spare-1"], "t1")
    assert head.commands == [["trainctl", "resume", "train", "--nodes", "node-1,spare-1", "--token", "t1"]]
    with pytest.raises(BadInput):
        adapter.resume("train", ["node-1,node-2"], "t1")


@pytest.mark.parametrize(
    "printed", ["", "not JSON", "[]", "{}", '{"job": "train", "state": "SLEEPING"}', '{"job": "train"}', "null"]
)
def test_an_unreadable_answer_is_said_to_be_unreadable_and_never_taken_for_a_state(printed: str) -> None:
    with pytest.raises(BadInput, match="job command 'status'"):
        says(printed)[1].status("train")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(1, CommandFailed), (75, CommandFailed), (127, CommandFailed), (64, PreconditionFailed), (77, PreconditionFailed)],
)
def test_the_exit_status_says_whether_trying_again_may_help(status: int, kind: type[HotspareError]) -> None:
    with pytest.raises(kind, match="node-3 is quarantined"):
        says("", status, "node-3 is quarantined")[1].resume("train", ["node-3"], "t1")


def test_a_command_that_is_not_configured_is_missing_and_the_message_says_where() -> None:
    adapter = CommandJobAdapter(lambda: Head(CommandResult(exit_status=0, stdout="", stderr="")), JobSettings())
    with pytest.raises(CapabilityMissing, match=r"\[job\]"):
        adapter.status("train")


@given(st.text(), st.dictionaries(st.sampled_from(["job", "token", "nodes"]), st.text()))
def test_a_part_without_marks_stays_as_it_is_and_words_are_put_in_once(part: str, words: dict[str, str]) -> None:
    plain = part.replace("{", "").replace("}", "")
    assert fill(plain, words) == plain
    assert fill("{job}", {"job": "{token}", "token": "x"}) == "{token}"


def test_over_ssh_the_words_arrive_as_they_are(loopback: LoopbackNode) -> None:
    loopback.script("trainctl", '#!/bin/sh\nprintf \'{"job": "%s", "state": "HELD", "run_token": "%s"}\' "$2" "$#"\n')
    access_to = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    adapter = CommandJobAdapter(lambda: access_to(loopback.node), SETTINGS)
    status = adapter.hold("llama 405b; exit 1", "why `not`")
    access_to.close()
    assert (status.job, status.state, status.run_token) == ("llama 405b; exit 1", JobState.HELD, "3")
