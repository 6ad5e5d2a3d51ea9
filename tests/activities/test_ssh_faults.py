"""SSH that hangs, resets or lies, and nodes with wrong clocks: the right error in time, nothing done twice, nothing judged OK."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.clients.fake_memory import FakeMemory
from activities.clients.ssh_paramiko import SshAccessTo
from activities.ec2 import DisruptNode, Ec2Activities
from activities.errors import AccessRefused, DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from activities.node import DeepTest, Examination, Examine, NodeActivities, Report
from activities.probing import ChecksArchive, Probe
from activities.settings import EffectSettings
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from checks.archive import build_archive
from checks.callers_clock import callers_clock
from checks.model import Action, Verdict
from tests.activities.conftest import attempt
from tests.activities.loopback_node import LoopbackNode

HOUR = 3600.0


def quick(configuration: Path | None = None) -> AccessSettings:
    """Settings under which a test sees the end of every wait."""
    settings = AccessSettings(connect_timeout_s=0.5, tries=1, probe_deadline_s=5.0, command_deadline_s=5.0)
    return settings.model_copy(update={"ssh_config": configuration}) if configuration else settings


class Speaker:
    """Listens where an SSH server should, and does what a test says with each connection."""

    def __init__(self, serve: Callable[[socket.socket, threading.Event], None]) -> None:
        self._serve = serve
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            self._serve(connection, self._ended)


def says_nothing(connection: socket.socket, ended: threading.Event) -> None:
    ended.wait(60)


def resets(connection: socket.socket, ended: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def speaks_http(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200)
    ended.wait(60)


def greets_and_falls_silent(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    ended.wait(60)


def greets_and_babbles(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n" + bytes(range(256)) * 50)
    ended.wait(60)


@pytest.fixture
def speaker(request: pytest.FixtureRequest) -> Iterator[Speaker]:
    one = Speaker(request.param)
    yield one
    one.close()


def activities_over(access_to: SshAccessTo, folder: Path) -> NodeActivities:
    archive = build_archive()
    file = folder / "checks.tar.gz"
    file.write_bytes(archive.content)
    settings = quick()
    probe = Probe(ChecksArchive(file, archive.digest), settings)
    return NodeActivities(access_to, probe, FakeFleet().gate(probe), settings, BurnInSettings(), FakeMemory())


def reboots_over(access_to: SshAccessTo, fleet: FakeFleet) -> Ec2Activities:
    """Reboots of a fake instance whose boot is looked at over SSH."""
    return Ec2Activities(fleet.ec2, access_to, fleet.memory, EffectSettings(settle_s=1.0), fleet.clock)


def disrupt(fleet: FakeFleet, boot_id: str) -> DisruptNode:
    """To reboot node-1 of the fleet; the SSH side knows it as node-1 too."""
    owner = names.incident_id("lab", fleet.node("node-1").instance_id)
    fleet.ec2.set_tags(fleet.node("node-1").instance_id, {names.TAG_QUARANTINE: owner})
    return DisruptNode(node=fleet.node("node-1"), boot_id=boot_id, token="incident/x/1", quarantined_by=owner)


BROKEN = pytest.mark.parametrize(
    "speaker",
    [says_nothing, resets, speaks_http, greets_and_falls_silent, greets_and_babbles],
    indirect=True,
    ids=["silent", "resets", "no ssh", "hangs in the handshake", "garbage"],
)


@BROKEN
def test_a_server_that_is_no_ssh_server_is_an_unreachable_node_in_time_and_never_well(
    speaker: Speaker, tmp_path: Path, surroundings: ActivityEnvironment
) -> None:
    configuration = tmp_path / "ssh_config"
    configuration.write_text(f"Host node-1\n  HostName 127.0.0.1\n  Port {speaker.port}\n  User nobody\n")
    access_to = SshAccessTo(quick(configuration))
    node = Node(instance_id="i-0abc", name="node-1")
    try:
        with pytest.raises(NodeUnreachable):
            access_to(node).boot_id(2.0)
        seen = surroundings.run(activities_over(access_to, tmp_path).examine, Examine(node=node))
    finally:
        access_to.close()
    assert (seen.reachable, seen.verdict, seen.opinion.fault_class) == (False, Verdict.UNKNOWN, "unreachable")


@BROKEN
def test_a_node_that_does_not_answer_is_rebooted_once_however_often_the_attempt_is_repeated(
    speaker: Speaker, tmp_path: Path, fleet: FakeFleet
) -> None:
    configuration = tmp_path / "ssh_config"
    configuration.write_text(f"Host node-1\n  HostName 127.0.0.1\n  Port {speaker.port}\n  User nobody\n")
    access_to = SshAccessTo(quick(configuration))
    try:
        activities = reboots_over(access_to, fleet)
        request = disrupt(fleet, "the boot that was seen")
        assert attempt().run(activities.reboot_node, request).made_now
        for number in (2, 3):
            assert not attempt(number).run(activities.reboot_node, request).made_now
    finally:
        access_to.close()
    assert fleet.count("reboot", "node-1") == 1


@pytest.fixture
def access_to(loopback: LoopbackNode) -> Iterator[SshAccessTo]:
    made = SshAccessTo(quick(loopback.configuration))
    yield made
    made.close()


def test_a_node_with_another_host_key_is_neither_judged_nor_rebooted(
    loopback: LoopbackNode, access_to: SshAccessTo, tmp_path: Path, fleet: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    boot_id = loopback.boot_id
    loopback.down()
    loopback.change_host_key()
    loopback.up()
    with pytest.raises(AccessRefused, match="has changed"):
        access_to(loopback.node).boot_id(2.0)
    seen = surroundings.run(activities_over(access_to, tmp_path).examine, Examine(node=loopback.node))
    assert (seen.verdict, seen.opinion.action) == (Verdict.UNKNOWN, Action.NONE)
    with pytest.raises(ApplicationError) as refused:
        attempt().run(reboots_over(access_to, fleet).reboot_node, disrupt(fleet, boot_id))
    assert (refused.value.type, refused.value.non_retryable) == ("AccessRefused", True)
    assert fleet.count("reboot") == 0
    assert not loopback.commands


def test_a_host_key_that_changes_under_an_open_access_is_noticed_when_it_connects_again(
    loopback: LoopbackNode, access_to: SshAccessTo
) -> None:
    assert access_to(loopback.node).boot_id(5.0) == loopback.boot_id
    loopback.down()
    loopback.change_host_key()
    loopback.up()
    with pytest.raises(AccessRefused, match="has changed"):
        access_to(loopback.node).boot_id(5.0)


def test_a_probe_that_hangs_on_a_node_that_answers_is_unknown_in_time(
    loopback: LoopbackNode, access_to: SshAccessTo, tmp_path: Path, surroundings: ActivityEnvironment
) -> None:
    loopback.script("python3", "#!/bin/sh\nexec sleep 1000\n")
    seen = surroundings.run(activities_over(access_to, tmp_path).examine, Examine(node=loopback.node))
    assert (seen.reachable, seen.verdict, seen.boot_id) == (True, Verdict.UNKNOWN, loopback.boot_id)


def test_a_boot_id_that_does_not_come_in_time_is_no_new_boot(loopback: LoopbackNode, access_to: SshAccessTo) -> None:
    loopback.script("cat", "#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(DeadlinePassed):
        access_to(loopback.node).boot_id(0.5)


@pytest.mark.parametrize("answer", ["", "{", "null", '{"schema": 2}', '{"schema": 1, "verdict": "OK"}', "OK " * 1000])
def test_a_probe_that_answers_nonsense_is_unknown_and_never_ok(
    loopback: LoopbackNode, access_to: SshAccessTo, tmp_path: Path, surroundings: ActivityEnvironment, answer: str
) -> None:
    (loopback.root / "answer").write_text(answer)
    loopback.script("python3", f"#!/bin/sh\ncat {loopback.root / 'answer'}\n")
    seen = surroundings.run(activities_over(access_to, tmp_path).examine, Examine(node=loopback.node))
    assert (seen.verdict, seen.opinion.action) == (Verdict.UNKNOWN, Action.NONE)


def examined(fleet: FakeFleet, probe: Probe, **wish: object) -> Examination:
    activities = NodeActivities(
        fleet.access_to, probe, fleet.gate(probe), AccessSettings(), BurnInSettings(), fleet.memory, fleet.clock
    )
    request = Examine(node=fleet.node("node-1")).model_copy(update=wish)
    seen: Examination = attempt().run(activities.examine, request)
    return seen


SKEWS = pytest.mark.parametrize("off_s", [-30 * 24 * HOUR, -5 * HOUR, -90.0, 0.0, 90.0, 5 * HOUR, 30 * 24 * HOUR])


@SKEWS
def test_a_fresh_fault_counts_whatever_the_node_s_clock_says(fleet: FakeFleet, probe: Probe, off_s: float) -> None:
    fleet.machine("node-1").clock_off_s = off_s
    dealt_with_until = datetime.now(UTC) - timedelta(minutes=10)
    fleet.inject("node-1", FakeFault(xid=79))
    report = Report(source="watcher", xid=79, seen_at=datetime.now(UTC) - timedelta(seconds=2))
    seen = examined(fleet, probe, handled_until=dealt_with_until, reports=[report])
    assert (seen.verdict, seen.opinion.fault_class) == (Verdict.CRITICAL, "gpu_lost")
    assert any("confirmed on the node" in because for because in seen.opinion.because)
    assert abs((seen.taken_at - datetime.now(UTC)).total_seconds()) < 10 * HOUR / 60


@SKEWS
def test_what_was_dealt_with_accuses_nobody_again_whatever_the_node_s_clock_says(
    fleet: FakeFleet, probe: Probe, off_s: float
) -> None:
    machine = fleet.machine("node-1")
    fleet.inject("node-1", FakeFault(xid=94))
    machine.faults.clear()
    machine.clock_off_s = off_s
    seen = examined(fleet, probe, handled_until=datetime.now(UTC) + timedelta(seconds=5))
    assert (seen.verdict, seen.opinion.action) == (Verdict.OK, Action.NONE)


@pytest.mark.parametrize("jump_s", [-5 * HOUR, 5 * HOUR])
def test_a_clock_that_jumps_between_two_looks_neither_hides_nor_repeats_a_fault(
    fleet: FakeFleet, probe: Probe, jump_s: float
) -> None:
    machine = fleet.machine("node-1")
    fleet.inject("node-1", FakeFault(xid=94))
    machine.faults.clear()
    first = examined(fleet, probe)
    assert first.opinion.code == 94
    machine.clock_off_s = jump_s
    assert examined(fleet, probe, handled_until=datetime.now(UTC) + timedelta(seconds=5)).opinion.action is Action.NONE
    fleet.inject("node-1", FakeFault(xid=79))
    assert examined(fleet, probe, handled_until=first.taken_at).opinion.fault_class == "gpu_lost"


def test_a_deep_test_on_a_node_with_a_wrong_clock_does_not_pass_a_node_that_is_ill(fleet: FakeFleet, probe: Probe) -> None:
    fleet.machine("node-1").clock_off_s = -9 * HOUR
    fleet.inject("node-1", FakeFault(xid=79))
    activities = NodeActivities(
        fleet.access_to, probe, fleet.gate(probe), AccessSettings(), BurnInSettings(), fleet.memory, fleet.clock
    )
    request = DeepTest(node=fleet.node("node-1"), run_id="r1", handled_until=datetime.now(UTC) - timedelta(minutes=1))
    assert attempt().run(activities.deep_test, request).verdict is Verdict.CRITICAL


def test_the_caller_s_clock_counts_only_where_the_own_one_is_plainly_wrong() -> None:
    assert callers_clock(None, lambda: 5.0)() == 5.0
    assert callers_clock(1000.0, lambda: 1030.0)() == 1030.0
    assert callers_clock(1000.0, lambda: 9000.0)() == 1000.0
    assert callers_clock(9000.0, lambda: 1000.0)() == 9000.0
