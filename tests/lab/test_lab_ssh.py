"""The SSH side of a lab node works with the client that Hotspare uses, and can be held at a named command."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import paramiko
import pytest

from infra.lab.faults import Fault
from infra.lab.lab import Lab
from infra.lab.processes import marked_processes
from tests.lab.conftest import Reach


def paramiko_client(lab: Lab, node: str) -> paramiko.SSHClient:
    """Log in with paramiko by the lab's SSH configuration, host key verified."""
    config = paramiko.SSHConfig.from_path(str(lab.folder / "ssh" / "ssh_config")).lookup(node)
    client = paramiko.SSHClient()
    client.load_host_keys(config["userknownhostsfile"])
    client.connect(
        config["hostname"],
        port=int(config["port"]),
        username=config["user"],
        key_filename=config["identityfile"],
        allow_agent=False,
        look_for_keys=False,
    )
    return client


def exec_all(client: paramiko.SSHClient, command: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    to_it, out, err = client.exec_command(command)
    to_it.write(stdin)
    to_it.channel.shutdown_write()
    printed = out.read()  # first: the exit status of a command that waits for a reader never comes
    return out.channel.recv_exit_status(), printed, err.read()


async def with_paramiko(lab: Lab, node: str, work: Any) -> Any:
    def connected() -> Any:
        with paramiko_client(lab, node) as client:
            return work(client)

    return await asyncio.to_thread(connected)


async def test_paramiko_runs_commands_with_input_output_and_exit_status(lab: Lab) -> None:
    answer = await with_paramiko(lab, "node-1", lambda client: exec_all(client, "cat; echo oops >&2; exit 7", b"hello"))
    assert answer == (7, b"hello", b"oops\n")


async def test_megabytes_of_output_arrive_whole(lab: Lab) -> None:
    status, out, _ = await with_paramiko(lab, "node-1", lambda client: exec_all(client, "head -c 5000000 /dev/zero"))
    assert (status, len(out)) == (0, 5_000_000)


async def test_files_travel_to_paths_relative_to_the_home_folder(lab: Lab, reach: Reach, tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(b"content")

    def put(client: paramiko.SSHClient) -> None:
        with client.open_sftp() as sftp:
            sftp.mkdir(".cache")
            sftp.put(str(source), ".cache/archive")

    await with_paramiko(lab, "node-1", put)
    assert await reach.output("node-1", "cat ~/.cache/archive") == "content"
    assert not (lab.nodes["node-2"].files.home / ".cache").exists()


async def test_a_wrong_key_is_refused(lab: Lab) -> None:
    with pytest.raises(paramiko.AuthenticationException):
        await with_paramiko(lab, "node-1", lambda client: _login_with_other_key(lab, client))


def _login_with_other_key(lab: Lab, client: paramiko.SSHClient) -> None:
    transport = paramiko.Transport(("127.0.0.1", lab.nodes["node-1"].ssh_port))
    try:
        transport.connect(username="hotspare", pkey=paramiko.RSAKey.generate(2048))
    finally:
        transport.close()


async def test_a_held_command_does_not_start_until_it_is_released(lab: Lab, reach: Reach) -> None:
    hold = lab.ssh.hold("node-1", "touch marker")
    run = asyncio.ensure_future(reach.run("node-1", "touch marker"))
    await hold.reached()
    marker = lab.nodes["node-1"].files.home / "marker"
    assert not marker.exists()
    hold.release()
    assert (await run).exit_status == 0
    assert marker.exists()
    assert lab.ssh.count("node-1", "touch marker") == 1


async def test_a_held_command_is_carried_out_though_the_client_has_gone(lab: Lab, reach: Reach) -> None:
    await reach.output("node-1", "mkfifo pipe")
    hold = lab.ssh.hold("node-1", "> pipe")
    connection = await reach.connect("node-1")
    await connection.create_process("echo carried out > pipe")
    await hold.reached()
    connection.abort()
    await connection.wait_closed()
    hold.release()
    assert await reach.output("node-1", "cat pipe") == "carried out\n"  # cat waits for somebody to write


async def process_ended(pid: int) -> None:
    """Wait until a process has ended, told by the kernel."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(descriptor, ended.set_result, None)
    try:
        await ended
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def test_a_closed_channel_ends_its_command_but_not_a_detached_one(lab: Lab, reach: Reach) -> None:
    root = lab.nodes["node-1"].root
    connection = await reach.connect("node-1")
    await connection.run("setsid sleep 600 </dev/null >/dev/null 2>&1 &")
    (detached,) = marked_processes(root)
    process = await connection.create_process("echo $$; exec sleep 601")
    command = int(await process.stdout.readline())
    connection.close()
    await connection.wait_closed()
    await process_ended(command)
    assert detached in marked_processes(root)


async def test_a_followed_kernel_log_shows_a_fault_as_it_is_printed(lab: Lab, reach: Reach) -> None:
    connection = await reach.connect("node-1")
    follow = await connection.create_process("dmesg --follow")
    while "NVRM: GPU at PCI:0000:ca:00" not in await follow.stdout.readline():
        pass
    await lab.inject("node-1", Fault(xid=79))
    assert "Xid (PCI:0000:86:00): 79," in await follow.stdout.readline()
    await lab.nodes["node-1"].reboot()
    await connection.wait_closed()


async def test_the_journal_tells_the_same_lines_with_wall_clock_time(lab: Lab, reach: Reach) -> None:
    import json

    await lab.inject("node-1", Fault(xid=94))
    entry = json.loads(await reach.output("node-1", "journalctl -k -b -o json -n 1 --no-pager"))
    assert "Xid (PCI:0000:86:00): 94," in entry["MESSAGE"]
    assert entry["_BOOT_ID"] == lab.nodes["node-1"].boot_id.replace("-", "")
    iso = await reach.output("node-1", "journalctl -k -b -o short-iso -n 1")
    assert iso.split(" ")[1:3] == ["node-1", "kernel:"]


async def test_the_journal_reaches_back_over_a_boot_as_far_as_asked(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(xid=94))
    await lab.nodes["node-1"].reboot()
    everything = await reach.output("node-1", "journalctl _TRANSPORT=kernel --since @1 -o short-iso-precise --utc --no-pager")
    assert everything.count("Xid (PCI:0000:86:00): 94,") == 1
    assert "Xid" not in await reach.output("node-1", "journalctl _TRANSPORT=kernel --since @99999999999 --no-pager")
    assert "Xid" not in await reach.output("node-1", "journalctl -k -b --no-pager")
