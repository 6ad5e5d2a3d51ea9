"""Node access by Run Command: every state of a command, the service's hesitations, long outputs, what cannot be sent at all."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError
from temporalio.exceptions import CancelledError

from activities.clients.fake_run_command import FakeRunCommand, Shown, succeeded
from activities.clients.ssm_access import SENDS, SsmAccess, SsmAccessTo
from activities.errors import (
    AccessRefused,
    CapabilityMissing,
    CommandFailed,
    DeadlinePassed,
    NodeUnreachable,
    ProviderBusy,
    Throttled,
)
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.run_command import AgentSeen, Invocation
from activities.settings_access import AccessSettings, RunCommandSettings
from checks.named_runs import packed, packed_options
from tests.activities.loopback_node import LoopbackNode
from tests.activities.run_command_rig import BUCKET, RunCommandRig

NODE = Node(instance_id="i-0abc", name="node-1", ip="10.0.0.1", instance_type="p5.48xlarge", gpus=8)
SAID = succeeded({"exit_status": 0, "timed_out": False, "stdout": "boot-1\n", "stderr": ""})
SETTINGS = AccessSettings(kind="ssm", ssm=RunCommandSettings(answer_s=10.0, poll_s=1.0))


class Ticks:
    """A clock that goes only when somebody waits; `at` is what happens when it has gone so far."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.at: dict[float, Callable[[], None]] = {}

    def now(self) -> float:
        return self.passed

    def wait(self, seconds: float) -> None:
        self.passed += seconds
        for due in [one for one in self.at if one <= self.passed]:
            self.at.pop(due)()


def access_over(client: FakeRunCommand, clock: Ticks | None = None) -> SsmAccess:
    return SsmAccess(client, NODE, SETTINGS, clock or Ticks())


def shown(state: str) -> Invocation:
    return Invocation(state=state)


@pytest.mark.parametrize(
    "before",
    [[None], [shown("Pending")], [shown("Delayed")], [shown("InProgress")], [None, shown("Pending"), shown("InProgress")]],
)
def test_a_command_is_waited_for_on_its_whole_way(before: list[Shown]) -> None:
    assert access_over(FakeRunCommand(*before, SAID)).boot_id(10.0) == "boot-1"


@pytest.mark.parametrize("state", ["Pending", "Delayed", "DeliveryTimedOut", "Undeliverable"])
def test_a_command_that_never_came_there_means_a_node_that_does_not_answer(state: str) -> None:
    seen = AgentSeen(ping="ConnectionLost", last_ping=datetime.now(UTC) - timedelta(minutes=5))
    client = FakeRunCommand(shown(state), agent=seen)
    with pytest.raises(
        NodeUnreachable, match=r"node-1: the command boot-id did not reach it .*ConnectionLost, last heard of 3\d\d s ago"
    ):
        access_over(client).boot_id(10.0)
    assert client.cancelled == ["command-1"]


@pytest.mark.parametrize("state", ["Cancelled", "Cancelling", "Terminated", "ExecutionTimedOut"])
def test_a_command_that_somebody_ended_is_no_result_and_may_be_tried_again(state: str) -> None:
    with pytest.raises(CommandFailed, match=f"ended from outside: {state}"):
        access_over(FakeRunCommand(shown(state))).boot_id(10.0)


def test_a_command_that_runs_for_ever_is_past_its_deadline_and_ended_on_the_node_too() -> None:
    client, clock = FakeRunCommand(shown("InProgress")), Ticks()
    with pytest.raises(DeadlinePassed, match="no end of boot-id within 30 s; Run Command says InProgress"):
        access_over(client, clock).boot_id(30.0)
    assert clock.passed >= 30.0
    assert client.cancelled == ["command-1"]
    assert [(one["Action"], one["RunId"]) for one in client.sent] == [
        ("run", client.sent[0]["RunId"]),
        ("kill", client.sent[0]["RunId"]),
    ]


def test_a_command_whose_deadline_passed_on_the_node_is_past_its_deadline() -> None:
    late = succeeded({"exit_status": 124, "timed_out": True, "stdout": "", "stderr": ""})
    with pytest.raises(DeadlinePassed, match="no end of uptime within 5 s"):
        access_over(FakeRunCommand(late)).run(["uptime"], 5.0)


def test_who_is_cancelled_while_waiting_cancels_the_command() -> None:
    def cancelled() -> None:
        raise CancelledError("told to")

    client, clock = FakeRunCommand(shown("InProgress")), Ticks()
    clock.at[3.0] = cancelled
    with pytest.raises(CancelledError):
        access_over(client, clock).run(["uptime"], 60.0)
    assert client.cancelled == ["command-1"]
    assert client.sent[-1]["Action"] == "kill"


def test_a_send_whose_fate_is_not_known_is_repeated_under_the_same_run_id() -> None:
    client = FakeRunCommand(SAID)
    client.failures = [ProviderBusy("no clear answer"), Throttled("slow down")]
    access_over(client).boot_id(10.0)
    assert len(client.sent) == 1
    client.failures = [Throttled("slow down")] * SENDS
    with pytest.raises(Throttled):
        access_over(client).boot_id(10.0)


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (None, "no SSM Agent of it is registered, or it is stopped"),
        (AgentSeen(ping="Online", last_ping=datetime.now(UTC)), r"its SSM Agent is Online, last heard of \d+ s ago"),
        (AgentSeen(ping="ConnectionLost"), "its SSM Agent is ConnectionLost, last heard of at a time not told"),
    ],
)
def test_a_node_that_takes_no_command_is_told_apart_by_its_agent(agent: AgentSeen | None, told: str) -> None:
    client = FakeRunCommand(SAID, agent=agent)
    client.failures = [NodeUnreachable("not in a valid state")]
    with pytest.raises(NodeUnreachable, match=told):
        access_over(client).boot_id(10.0)


@pytest.mark.parametrize(
    ("invocation", "told"),
    [
        (
            Invocation(state="Failed", response_code=127, stderr="/opt/hotspare/bin/python: not found"),
            "ended with 127.*not found",
        ),
        (Invocation(state="Success", response_code=0, stdout="hello"), "no answer of ours"),
        (Invocation(state="Success", response_code=0, stdout=packed({}).replace(" 1 ", " 9 ", 1)), "in format 9"),
    ],
)
def test_a_node_without_this_release_is_a_closed_door_and_not_a_bad_node(invocation: Invocation, told: str) -> None:
    with pytest.raises(AccessRefused, match=rf"(?s)install this release of Hotspare in /opt/hotspare.*{told}"):
        access_over(FakeRunCommand(invocation)).boot_id(10.0)


def test_what_the_node_refuses_is_refused() -> None:
    with pytest.raises(CapabilityMissing, match=r"node-1: this node knows no command.*one release"):
        access_over(FakeRunCommand(succeeded({"refused": "this node knows no command called uptime"}))).run(["uptime"], 5.0)


def test_only_what_changes_a_node_goes_by_the_document_that_may() -> None:
    client = FakeRunCommand(succeeded({"exit_status": 0, "timed_out": False, "stdout": "x", "stderr": "", "known": True}))
    access = access_over(client)
    access.run(["sudo", "-n", "dmesg"], 5.0)
    access.run(["nvidia-smi", "--gpu-reset", "-i", "0"], 5.0)
    access.start("deep/1", ["all_reduce_perf"], 60.0)
    access.kill("deep/1")
    assert [(one["document"], one["Action"], one["Check"]) for one in client.sent] == [
        ("hotspare-node-look", "run", "kernel-log"),
        ("hotspare-node", "run", "gpu-reset"),
        ("hotspare-node", "start", "load-test"),
        ("hotspare-node", "kill", "load-test"),
    ]
    started, killed = client.sent[2]["RunId"], client.sent[3]["RunId"]
    assert started == killed
    assert "/" not in started


def test_a_head_node_is_reached_by_another_way() -> None:
    heads = access_over(FakeRunCommand(SAID))
    access_to = SsmAccessTo(FakeRunCommand(SAID), SETTINGS, lambda: lambda node: heads)
    assert access_to(NODE.model_copy(update={"role": ROLE_HEAD})) is heads
    assert access_to(NODE) is not heads


@pytest.fixture
def rig(loopback: LoopbackNode) -> Iterator[RunCommandRig]:
    made = RunCommandRig(loopback)
    yield made
    made.close()


def noise(length: int) -> str:
    """A text that cannot be packed much smaller."""
    return "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=length)) + "\n"


def test_an_output_of_more_than_is_carried_comes_through_the_bucket(rig: RunCommandRig) -> None:
    text = noise(60_000)
    (rig.loopback.root / "kernel.log").write_text(text)
    assert rig.access(bucket=BUCKET).run(["dmesg"], 30.0).stdout == text
    (kept,) = rig.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]
    assert kept["Key"].startswith("hotspare/run-command/")


def test_without_a_bucket_it_is_refused_and_the_setting_is_named(rig: RunCommandRig) -> None:
    (rig.loopback.root / "kernel.log").write_text(noise(60_000))
    with pytest.raises(CapabilityMissing, match=r"node-1: kernel-log: .*24000 characters.*access\.ssm\.bucket"):
        rig.access().run(["dmesg"], 30.0)


def test_a_bucket_into_which_the_node_may_not_write_is_said(rig: RunCommandRig) -> None:
    (rig.loopback.root / "kernel.log").write_text(noise(60_000))
    access = rig.access(bucket=BUCKET)
    rig.service.holds_back_output = True
    with pytest.raises(ProviderBusy, match="instance profile needs s3:PutObject"):
        access.run(["dmesg"], 30.0)


def test_an_invocation_that_is_not_known_at_once_is_asked_for_again(rig: RunCommandRig) -> None:
    rig.service.unseen_looks = 4
    assert rig.access().boot_id(10.0) == rig.loopback.boot_id
    assert rig.calls.count("GetCommandInvocation") >= 5


def test_a_send_whose_answer_was_lost_starts_nothing_twice(rig: RunCommandRig) -> None:
    rig.lost_answers.append("SendCommand")
    rig.access().start("deep/1", ["all_reduce_perf"], 60.0)
    while rig.access().poll("deep/1").exit_status is None:
        pass
    assert rig.calls.count("SendCommand") >= 3
    assert (rig.loopback.home / "starts").read_text() == "started\n"


@pytest.mark.parametrize("operation", ["SendCommand", "GetCommandInvocation"])
def test_a_throttled_call_is_made_again(rig: RunCommandRig, operation: str) -> None:
    rig.failures.append((operation, "ThrottlingException"))
    assert rig.access().boot_id(10.0) == rig.loopback.boot_id


def test_a_node_whose_agent_never_registered_says_what_is_missing(rig: RunCommandRig) -> None:
    rig.service.without_agent.add(rig.node.instance_id)
    with pytest.raises(NodeUnreachable, match=r"no SSM Agent of it is registered.*AmazonSSMManagedInstanceCore"):
        rig.access().boot_id(10.0)


def test_a_document_that_nobody_made_is_a_closed_door(rig: RunCommandRig) -> None:
    rig.client("ssm").delete_document(Name="hotspare-node-look")
    with pytest.raises(AccessRefused, match="Terraform makes the documents"):
        rig.access().boot_id(10.0)


def test_a_node_on_which_nothing_is_installed_says_so(rig: RunCommandRig) -> None:
    (rig.loopback.root / "opt/hotspare/bin/python").unlink()
    with pytest.raises(AccessRefused, match=r"(?s)install this release of Hotspare in /opt/hotspare.*not found"):
        rig.access().boot_id(10.0)


@pytest.mark.parametrize(
    ("document", "changed"),
    [
        ("hotspare-node", {"Options": "x'; touch /tmp/x; '"}),
        ("hotspare-node", {"Options": "$(id)"}),
        ("hotspare-node", {"RunId": "r\n"}),
        ("hotspare-node", {"RunId": "../../etc"}),
        ("hotspare-node", {"Check": "shell"}),
        ("hotspare-node", {"Action": "exec"}),
        ("hotspare-node", {"commands": "id"}),
        ("hotspare-node-look", {"Check": "gpu-reset"}),
        ("hotspare-node-look", {"Check": "load-test"}),
        ("hotspare-node-look", {"Check": "reboot"}),
        ("hotspare-node-look", {"Action": "start"}),
    ],
)
def test_the_documents_take_nothing_but_what_they_are_for(rig: RunCommandRig, document: str, changed: dict[str, str]) -> None:
    right = {"Action": "run", "Check": "uptime", "RunId": "r", "Options": packed_options({"deadline_s": 1})}
    parameters = {name: [value] for name, value in {**right, **changed}.items()}
    with pytest.raises(ClientError, match="InvalidParameters"):
        rig.client("ssm").send_command(InstanceIds=[rig.node.instance_id], DocumentName=document, Parameters=parameters)
    assert rig.service.sent == []
