"""Lab nodes go down, boot and fail as GPU instances do."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.moto_instances import state_of
from infra.lab.node import NodeState
from infra.lab.processes import marked_processes
from tests.lab.conftest import Reach


def xid_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Xid" in line]


async def test_a_node_answers_over_ssh_with_its_own_files_and_commands(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    seen = await reach.output("node-1", 'cat "$HOTSPARE_HOST_ROOT/proc/sys/kernel/random/boot_id"; command -v dmesg; echo $HOME')
    boot_id, dmesg, home = seen.split()
    assert boot_id == node.boot_id
    assert dmesg == str(node.root / "usr/local/bin/dmesg")
    assert home == str(node.root / "home/hotspare")


async def test_every_name_of_a_node_leads_to_it(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-2"]
    for name in ("node-2", node.instance_id, node.ip, node.dns):
        assert (await reach.output(name, "echo $LAB_NODE")).strip() == "node-2"


async def test_an_ec2_reboot_gives_a_new_boot_on_the_same_port(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    old_boot, old_port = node.boot_id, node.ssh_port
    await lab.inject("node-1", Fault(xid=79))
    await reach.ec2("reboot_instances", InstanceIds=[node.instance_id])
    new_boot = await lab.reboot_done("node-1", old_boot)
    assert new_boot != old_boot
    assert node.ssh_port == old_port
    assert xid_lines(await reach.output("node-1", "dmesg")) == []
    assert len(xid_lines(await reach.output("node-1", "journalctl -k -b -1 --no-pager"))) == 2
    assert lab.endpoint.count("RebootInstances", node.instance_id) == 1


async def test_a_reboot_cuts_connections_and_ends_every_process_even_those_that_left_their_session(
    lab: Lab, reach: Reach
) -> None:
    node = lab.nodes["node-1"]
    connection = await reach.connect("node-1")
    await connection.run("setsid sleep 600 >/dev/null 2>&1 & setsid sh -c 'sleep 600 & sleep 600' >/dev/null 2>&1 &")
    assert marked_processes(node.root)
    await node.reboot()
    await connection.wait_closed()
    assert marked_processes(node.root) == []
    assert node.boots == 2


async def test_the_reboot_command_reboots_its_node(lab: Lab, reach: Reach) -> None:
    old_boot = lab.nodes["spare-1"].boot_id
    await reach.run("spare-1", "reboot")
    await lab.reboot_done("spare-1", old_boot)
    assert lab.endpoint.count("RebootInstances") == 0


async def test_a_stopped_node_refuses_connections_and_comes_back_on_other_hardware(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    serials = await reach.output("node-1", "nvidia-smi --query-gpu=serial --format=csv,noheader")
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.STOPPED)
    with pytest.raises(ConnectionRefusedError):
        await reach.connect("node-1")
    waiter = reach.aws("ec2").get_waiter("instance_stopped")
    waiter.config.delay = 0.05
    await asyncio.to_thread(waiter.wait, InstanceIds=[node.instance_id])
    await reach.ec2("start_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.UP)
    assert await reach.output("node-1", "nvidia-smi --query-gpu=serial --format=csv,noheader") != serials


async def test_a_fault_that_a_reboot_cures_is_gone_after_it(lab: Lab, reach: Reach) -> None:
    await lab.inject("node-1", Fault(xid=79, cure=Cure.REBOOT))
    await lab.nodes["node-1"].reboot()
    assert not lab.nodes["node-1"].faults
    assert "lost" not in await reach.output("node-1", "nvidia-smi -L")


@pytest.mark.parametrize("cure", [Cure.NEVER, Cure.COMES_BACK])
async def test_a_fault_that_nothing_cures_shows_again_after_every_boot(lab: Lab, reach: Reach, cure: Cure) -> None:
    node = lab.nodes["node-1"]
    await lab.inject("node-1", Fault(xid=64, cure=cure))
    await node.reboot()
    assert len(xid_lines(await reach.output("node-1", "dmesg"))) == 2
    await node.stop()
    await node.start()
    assert len(xid_lines(await reach.output("node-1", "dmesg"))) == 2


async def test_a_fault_that_needs_a_power_cycle_survives_a_reboot_only(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    await lab.inject("node-1", Fault(xid=79, cure=Cure.POWER_CYCLE))
    await node.reboot()
    assert len(node.faults) == 1
    await node.stop()
    await node.start()
    assert not node.faults
    assert xid_lines(await reach.output("node-1", "dmesg")) == []


async def test_a_node_whose_boot_never_ends_stays_away(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    await lab.inject("node-1", Fault(xid=79, cure=Cure.NO_BOOT))
    await reach.ec2("reboot_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.DEAD)
    with pytest.raises(ConnectionRefusedError):
        await reach.connect("node-1")
    assert state_of(node.instance_id) == "running"


async def test_a_node_that_hangs_takes_commands_and_never_answers_until_it_boots(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    await lab.inject("node-1", Fault(hang=True))
    connection = await reach.connect("node-1")
    process = await connection.create_process("echo hello")
    await node.reboot()
    done = await process.wait()
    assert (done.exit_status, done.stdout) == (None, "")
    assert await reach.output("node-1", "echo hello") == "hello\n"


async def test_a_fault_can_make_a_node_hang_after_its_reboot(lab: Lab) -> None:
    await lab.inject("node-1", Fault(xid=119, cure=Cure.HANG))
    assert not lab.nodes["node-1"].hangs
    await lab.nodes["node-1"].reboot()
    assert lab.nodes["node-1"].hangs


async def test_a_launched_instance_becomes_a_node_whose_host_key_is_in_its_console_output(lab: Lab, reach: Reach) -> None:
    tags = [{"Key": "Name", "Value": "spare-9"}, {"Key": "hotspare:role", "Value": "spare"}]
    launched = await reach.ec2(
        "run_instances",
        ImageId="ami-12c6146b",
        InstanceType="p5.48xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    instance_id = launched["Instances"][0]["InstanceId"]
    node = lab.nodes["spare-9"]
    await node.wait_until(lambda seen: seen.state is NodeState.UP)
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await reach.connect("spare-9")
    console = await reach.ec2("get_console_output", InstanceId=instance_id)
    key = next(line for line in console["Output"].splitlines() if line.startswith("ssh-ed25519 "))
    with (lab.folder / "ssh" / "known_hosts").open("a") as known:
        known.write(f"[127.0.0.1]:{node.ssh_port} {key}\n")
    assert (await reach.output("spare-9", "echo $LAB_NODE")).strip() == "spare-9"


async def test_a_fault_of_an_unknown_node_code_or_gpu_is_refused_with_what_there_is(lab: Lab) -> None:
    with pytest.raises(ValueError, match="node-1, node-2, spare-1"):
        await lab.inject("node-7", Fault(xid=79))
    with pytest.raises(ValueError, match="one of: 13, "):
        Fault(xid=1)
    with pytest.raises(ValueError, match="GPUs 0 to 7"):
        await lab.inject("node-1", Fault(xid=79, gpu=8))
