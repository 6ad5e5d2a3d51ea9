"""One contract for every node access: SSH to a real server on loopback, agent over Kubernetes in memory, Run Command, fake."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.clients.agent_access import AgentAccessTo
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.fake_machine import FakeFault
from activities.clients.ssh_paramiko import SshAccessTo
from activities.clients.ssm_access import SsmAccess
from activities.errors import CapabilityMissing, NodeUnreachable
from activities.kubernetes import NODE
from activities.node_access import LOST, DetachedRun, NodeAccess
from activities.settings_access import AccessSettings
from activities.settings_jobs import KubernetesSettings
from tests.activities.loopback_node import LoopbackNode
from tests.activities.pod_runner import NAMESPACE, PodRunner
from tests.activities.run_command_rig import RunCommandRig


@dataclass
class Subject:
    """An access under test, and how to bring its node down, restart it, and let it print a kernel line."""

    access: NodeAccess
    boot_id: Callable[[], str]
    go_down: Callable[[], None]
    restart: Callable[[], None]
    keep_running: Callable[[], None]
    print_line: Callable[[], None]


def over_ssh(loopback: LoopbackNode) -> tuple[Subject, SshAccessTo]:
    """SSH access to the loopback node."""
    access_to = SshAccessTo(AccessSettings(ssh_config=loopback.configuration, connect_timeout_s=10.0))

    def restart() -> None:
        loopback.down()
        loopback.new_boot_id()
        loopback.up()

    def print_line() -> None:
        with loopback.kernel_log.open("a") as file:
            file.write("[  101.000000] NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.\n")

    keep = loopback.home / "keep-running"
    subject = Subject(access_to(loopback.node), lambda: loopback.boot_id, loopback.down, restart, keep.touch, print_line)
    return subject, access_to


def over_fake(fleet: FakeFleet) -> Subject:
    """FakeFleet's access to one of its machines."""
    machine = fleet.machine("node-1")

    def restart() -> None:
        machine.reboot()
        machine.looks_until_up = 0

    def keep_running() -> None:
        fleet.looks_per_node_run = 3

    def go_down() -> None:
        fleet.inject("node-1", FakeFault(unreachable=True))

    access = fleet.access_to(fleet.node("node-1"))
    return Subject(
        access, lambda: machine.boot_id, go_down, restart, keep_running, lambda: fleet.inject("node-1", FakeFault(xid=79))
    )


def by_agent(loopback: LoopbackNode, folder: Path) -> tuple[Subject, PodRunner]:
    """Jobs of Kubernetes that run in the loopback node's root; its SSH server plays no part."""
    api = FakeKubernetes()
    api.add_node("ip-10-0-0-1.ec2.internal", "i-0abc")
    api.patch(NODE, "ip-10-0-0-1.ec2.internal", {"status": {"nodeInfo": {"bootID": loopback.boot_id}}}, subresource="status")
    environment = {"PATH": f"{loopback.bin}:{os.environ['PATH']}"}
    runner = PodRunner(api, "ip-10-0-0-1.ec2.internal", environment, loopback.root, folder)
    settings = AccessSettings(kind="agent", agent_image="checks:1", agent_start_s=30.0)
    access_to = AgentAccessTo(api, settings, KubernetesSettings(namespace=NAMESPACE), lambda: pytest.fail("no head is asked"))

    def restart() -> None:
        runner.go_down()
        loopback.new_boot_id()
        runner.come_up(loopback.boot_id)

    home = loopback.root / "var/lib/hotspare"
    home.mkdir(parents=True)
    keep = home / "keep-running"
    return Subject(access_to(loopback.node), lambda: loopback.boot_id, runner.go_down, restart, keep.touch, lambda: None), runner


def by_run_command(loopback: LoopbackNode) -> tuple[Subject, RunCommandRig]:
    """Documents of Run Command that really run in the loopback node's root; its SSH server plays no part."""
    rig = RunCommandRig(loopback)

    def restart() -> None:
        rig.go_down()
        rig.come_up()

    keep = loopback.home / "keep-running"
    return Subject(rig.access(), lambda: loopback.boot_id, rig.go_down, restart, keep.touch, lambda: None), rig


@pytest.fixture(params=["ssh", "agent", "ssm", "fake"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """Each access in turn."""
    if request.param == "agent":
        made, runner = by_agent(request.getfixturevalue("loopback"), tmp_path)
        yield made
        runner.close()
        return
    if request.param == "ssm":
        made, rig = by_run_command(request.getfixturevalue("loopback"))
        yield made
        rig.close()
        return
    if request.param == "fake":
        yield over_fake(FakeFleet())
        return
    made, access_to = over_ssh(request.getfixturevalue("loopback"))
    yield made
    access_to.close()


def test_the_boot_id_is_the_kernels(subject: Subject) -> None:
    assert subject.access.boot_id(10.0) == subject.boot_id()


def test_another_boot_has_another_id_and_the_same_access_reads_it(subject: Subject) -> None:
    before = subject.access.boot_id(10.0)
    subject.restart()
    after = subject.access.boot_id(10.0)
    assert after == subject.boot_id() != before


def test_a_command_answers_with_its_output_and_status(subject: Subject) -> None:
    answer = subject.access.run(["uname", "-a"], 10.0)
    assert answer.exit_status == 0
    assert "Linux" in answer.stdout


def test_a_command_that_does_not_exist_ends_with_127(subject: Subject) -> None:
    if isinstance(subject.access, SsmAccess):
        with pytest.raises(CapabilityMissing, match="runs commands of a table by name"):
            subject.access.run(["no-such-command"], 10.0)
        return
    assert subject.access.run(["no-such-command"], 10.0).exit_status == 127


def test_a_node_that_is_down_is_unreachable_whatever_is_asked(subject: Subject, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    subject.access.boot_id(10.0)
    subject.go_down()
    access = subject.access
    asked: list[Callable[[], object]] = [
        lambda: access.run(["uname", "-a"], 10.0),
        lambda: access.boot_id(10.0),
        lambda: access.start("run", ["all_reduce_perf"], 10.0),
        lambda: access.poll("run"),
        lambda: access.kill("run"),
        lambda: access.put(file, "d"),
        lambda: next(access.follow_kernel_log()),
    ]
    for ask in asked:
        with pytest.raises(NodeUnreachable):
            ask()


def test_a_detached_run_ends_with_its_output_and_status(subject: Subject) -> None:
    subject.access.start("test/1", ["all_reduce_perf"], 60.0)
    run = until_ended(subject.access, "test/1")
    assert run.exit_status == 0
    assert "# Avg bus bandwidth" in run.output


def test_a_detached_run_that_still_runs_has_no_status_yet(subject: Subject) -> None:
    subject.keep_running()
    subject.access.start("test/1", ["all_reduce_perf"], 60.0)
    run = subject.access.poll("test/1")
    assert run.known
    assert run.exit_status is None
    subject.access.kill("test/1")


def test_a_run_that_nobody_started_is_not_known_and_killing_it_is_no_error(subject: Subject) -> None:
    subject.access.kill("never started")
    assert not subject.access.poll("never started").known


def test_a_killed_run_has_ended(subject: Subject) -> None:
    subject.keep_running()
    subject.access.start("test/1", ["all_reduce_perf"], 60.0)
    subject.access.kill("test/1")
    assert until_ended(subject.access, "test/1").exit_status not in (None, 0)


def test_a_run_that_a_restart_ended_is_lost_and_not_a_result(subject: Subject) -> None:
    subject.keep_running()
    subject.access.start("test/1", ["all_reduce_perf"], 60.0)
    subject.restart()
    run = subject.access.poll("test/1")
    assert run.known
    assert run.exit_status == LOST


def refused_to_follow(access: NodeAccess) -> bool:
    """Whether this access cannot follow a log; what it cannot do it must refuse."""
    if "follow" in access.capabilities():
        return False
    with pytest.raises(CapabilityMissing):
        next(access.follow_kernel_log())
    return True


def test_the_kernel_log_comes_with_its_past_then_with_what_is_new(subject: Subject) -> None:
    if refused_to_follow(subject.access):
        return
    lines = subject.access.follow_kernel_log()
    past = next(line for line in lines if line)
    assert past == "[    0.000000] Linux version 6.1.0"
    subject.print_line()
    assert next(line for line in lines if "Xid" in line).startswith("[")


def test_a_silent_kernel_log_still_lets_its_reader_look_up(subject: Subject) -> None:
    if refused_to_follow(subject.access):
        return
    lines = subject.access.follow_kernel_log()
    assert next(line for line in lines if line)
    assert next(lines) == ""


def test_the_kernel_log_of_a_node_that_restarts_ends_as_unreachable(subject: Subject) -> None:
    if refused_to_follow(subject.access):
        return
    lines = subject.access.follow_kernel_log()
    assert next(line for line in lines if line)
    subject.restart()
    with pytest.raises(NodeUnreachable):
        list(lines)


def test_a_file_is_put_under_its_digest_and_stays_there(subject: Subject, tmp_path: Path) -> None:
    file = tmp_path / "archive.tar.gz"
    file.write_bytes(b"content")
    if "put" not in subject.access.capabilities():
        with pytest.raises(CapabilityMissing, match="carries no files"):
            subject.access.put(file, "digest-1")
        return
    first = subject.access.put(file, "digest-1")
    assert subject.access.put(file, "digest-1") == first
    assert "digest-1" in first
    assert first.endswith("archive.tar.gz")


def until_ended(access: NodeAccess, run_id: str) -> DetachedRun:
    """Poll until the run has a status."""
    while (run := access.poll(run_id)).exit_status is None:
        assert run.known
    return run
