"""What is particular to SSH: whom we trust, what is quoted, and what ends in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.clients.ssh_config import SshConfiguration
from activities.clients.ssh_paramiko import SshAccessTo
from activities.errors import AccessRefused, DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from activities.node_access import NodeAccess
from activities.settings_access import AccessSettings
from tests.activities.loopback_node import LoopbackNode


@pytest.fixture
def access_to(loopback: LoopbackNode) -> Iterator[SshAccessTo]:
    made = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    yield made
    made.close()


@pytest.fixture
def access(loopback: LoopbackNode, access_to: SshAccessTo) -> NodeAccess:
    return access_to(loopback.node)


def test_an_unknown_host_key_is_refused_and_the_message_says_how_to_add_it(loopback: LoopbackNode, access: NodeAccess) -> None:
    loopback.write_configuration(known=False)
    with pytest.raises(AccessRefused, match=rf"not known .*ssh-keyscan -p {loopback.port} 127.0.0.1 >> .*known_hosts"):
        access.boot_id(10.0)


def test_a_changed_host_key_is_refused_and_the_message_says_how_to_remove_the_old_one(
    loopback: LoopbackNode, access: NodeAccess
) -> None:
    loopback.down()
    loopback.change_host_key()
    loopback.up()
    with pytest.raises(AccessRefused, match=r"has changed.*ssh-keygen -R"):
        access.boot_id(10.0)


def test_a_refused_login_is_not_an_unreachable_node(loopback: LoopbackNode) -> None:
    loopback.write_configuration(accepted=False)
    access_to = SshAccessTo(AccessSettings(ssh_config=loopback.configuration))
    with pytest.raises(AccessRefused, match="does not accept"):
        access_to(loopback.node).boot_id(10.0)


def test_a_host_name_that_nobody_knows_is_not_an_unreachable_node(loopback: LoopbackNode, access_to: SshAccessTo) -> None:
    node = Node(instance_id="i-0def", name="no-such-host.invalid")
    with pytest.raises(AccessRefused, match="not known here"):
        access_to(node).boot_id(10.0)


def test_no_word_of_a_command_is_looked_at_by_a_shell(access: NodeAccess) -> None:
    words = ["a b", "$HOME", "`id`", "x; touch /tmp/never", "'quoted'", "new\nline", ""]
    answer = access.run(["printf", "%s|", *words], 10.0)
    assert answer.stdout == "".join(f"{word}|" for word in words)


def test_a_command_that_takes_longer_than_its_deadline_is_ended_on_the_node_too(
    loopback: LoopbackNode, access: NodeAccess
) -> None:
    with pytest.raises(DeadlinePassed, match="no end of sleep"):
        access.run(["sleep", "1000"], 0.2)
    assert "timeout -k 5 2 sleep 1000" in loopback.commands[-1]


def test_of_a_long_output_the_end_is_kept(access: NodeAccess) -> None:
    answer = access.run(["seq", "1", "200000"], 30.0, output_limit=100)
    assert len(answer.stdout) == 100
    assert answer.stdout.endswith("199999\n200000\n")


def test_output_and_error_output_both_arrive_whole_when_both_are_long(access: NodeAccess) -> None:
    script = "seq 1 100000; seq 1 100000 >&2; exit 3"
    answer = access.run(["sh", "-c", script], 30.0, output_limit=1_000_000)
    assert answer.exit_status == 3
    assert answer.stdout == answer.stderr == "".join(f"{number}\n" for number in range(1, 100_001))


def test_a_connection_that_breaks_while_a_command_runs_is_an_unreachable_node(loopback: LoopbackNode, access: NodeAccess) -> None:
    loopback.script("go-down", '#!/bin/sh\necho going; touch "$HOME/here"; sleep 1000\n')
    lines = access.follow_kernel_log()
    assert next(lines)
    loopback.down()
    with pytest.raises(NodeUnreachable):
        list(lines)
    with pytest.raises(NodeUnreachable, match="no connection"):
        access.run(["go-down"], 10.0)


def test_a_known_run_is_not_started_again(loopback: LoopbackNode, access: NodeAccess) -> None:
    for _ in range(3):
        access.start("run/1", ["all_reduce_perf"], 60.0)
    while access.poll("run/1").exit_status is None:
        continue
    access.start("run/1", ["all_reduce_perf"], 60.0)
    assert (loopback.home / "starts").read_text() == "started\n"


def test_different_run_ids_are_different_runs_even_if_they_look_alike_as_file_names(access: NodeAccess) -> None:
    access.start("a/b", ["printf", "one"], 60.0)
    assert not access.poll("a_b").known
    access.start("a_b", ["printf", "two"], 60.0)
    while access.poll("a_b").exit_status is None or access.poll("a/b").exit_status is None:
        continue
    assert (access.poll("a/b").output, access.poll("a_b").output) == ("one", "two")


def test_the_node_ends_a_run_that_passes_its_deadline(access: NodeAccess) -> None:
    access.start("long", ["sleep", "1000"], 0.1)
    while (run := access.poll("long")).exit_status is None:
        continue
    assert run.exit_status == 124


def test_a_command_that_cannot_be_started_detached_is_a_run_that_ended_with_127(access: NodeAccess) -> None:
    access.start("missing", ["no-such-command"], 60.0)
    while (run := access.poll("missing")).exit_status is None:
        continue
    assert run.exit_status == 127
    assert "no-such-command" in run.output


def test_a_file_that_is_on_the_node_already_is_not_sent_again(loopback: LoopbackNode, access: NodeAccess, tmp_path: Path) -> None:
    file = tmp_path / "archive"
    file.write_bytes(bytes(range(256)) * 1000)
    place = access.put(file, "d1")
    access.put(file, "d1")
    assert Path(place).read_bytes() == file.read_bytes()
    assert sum("sha256sum" in command for command in loopback.commands) == 1


def test_a_node_is_reached_by_the_first_of_its_names_that_the_configuration_has(tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("Host i-0abc\n  HostName 192.0.2.7\n  Port 2222\n  ProxyJump bastion, inner\n")
    file = tmp_path / "config"
    file.write_text(f"Include {more}\nHost *\n  User ops\n  UserKnownHostsFile /k1 /k2\n")
    target = SshConfiguration(file).target_of(Node(instance_id="i-0abc", name="node-1", ip="10.0.0.5"))
    assert (target.host, target.port, target.user, target.jumps) == ("192.0.2.7", 2222, "ops", ("bastion", "inner"))
    assert target.known_hosts[:2] == ("/k1", "/k2")


def test_a_node_that_the_configuration_does_not_have_is_reached_by_its_address(tmp_path: Path) -> None:
    target = SshConfiguration(tmp_path / "absent").target_of(Node(instance_id="i-0abc", name="node-1", ip="10.0.0.5"))
    assert (target.host, target.port) == ("10.0.0.5", 22)


def test_a_node_behind_a_jump_host_is_reached_through_it_and_both_host_keys_are_checked(
    loopback: LoopbackNode, tmp_path: Path
) -> None:
    bastion = LoopbackNode(tmp_path / "bastion")
    bastion.up()
    merged = tmp_path / "config"
    own = f"  IdentityFile {bastion.folder / 'id_ed25519'}\n  UserKnownHostsFile {bastion.folder / 'known_hosts'}\n"
    merged.write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion.port}\n  User jumper\n{own}\n"
        f"Host node-1\n  ProxyJump bastion\n\nInclude {loopback.configuration}\n"
    )
    access_to = SshAccessTo(AccessSettings(ssh_config=merged))
    try:
        assert access_to(loopback.node).boot_id(10.0) == loopback.boot_id
        access_to.close()
        bastion.down()
        with pytest.raises(NodeUnreachable):
            access_to(loopback.node).boot_id(10.0)
        bastion.change_host_key()
        bastion.up()
        with pytest.raises(AccessRefused, match="bastion"):
            access_to(loopback.node).boot_id(10.0)
    finally:
        access_to.close()
        bastion.close()
