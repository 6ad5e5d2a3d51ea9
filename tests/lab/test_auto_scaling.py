"""Auto Scaling in the lab does what AWS documents: ill members are replaced, members in Standby are left alone, sizes hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from activities import names
from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.moto_instances import state_of
from infra.lab.node import LabNode, NodeState
from infra.lab.options import LabOptions
from tests.lab.conftest import Reach
from tests.lab.test_every_trigger import part, run
from workers.connection import connect
from workers.demo.worker_process import command
from workflows.messages import IncidentReport, Provisioned

GROUP = "gpus"
TAGS = {names.TAG_CLUSTER: "lab", names.TAG_ROLE: names.ROLE_SPARE}


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  (the group's thread has no event to wait for)
        await asyncio.sleep(0.02)


@pytest.fixture
async def members(lab: Lab) -> list[LabNode]:
    """Both workers, as a group that may not shrink below one."""
    nodes = [lab.nodes["node-1"], lab.nodes["node-2"]]
    ids = [node.instance_id for node in nodes]
    await asyncio.to_thread(lab.endpoint.auto_scaling.make_group, GROUP, ids, smallest=1, tags=TAGS)
    return nodes


async def standby(reach: Reach, verb: str, node: LabNode) -> None:
    more = {"ShouldDecrementDesiredCapacity": True} if verb == "enter_standby" else {}
    call = getattr(reach.aws("autoscaling"), verb)
    await asyncio.to_thread(call, InstanceIds=[node.instance_id], AutoScalingGroupName=GROUP, **more)


async def test_a_member_that_stops_is_terminated_and_another_comes_up_in_its_place(
    lab: Lab, reach: Reach, members: list[LabNode]
) -> None:
    before = set(lab.nodes)
    await reach.ec2("stop_instances", InstanceIds=[members[1].instance_id])
    await until(lambda: state_of(members[1].instance_id) == "terminated")
    await until(lambda: len(set(lab.nodes) - before) == 1)
    new = lab.nodes[(set(lab.nodes) - before).pop()]
    await new.wait_until(lambda node: node.state is NodeState.UP)
    assert (new.role, lab.endpoint.auto_scaling.replaced) == ("spare", [members[1].instance_id])


async def test_a_member_that_answers_no_more_is_replaced(lab: Lab, members: list[LabNode]) -> None:
    await lab.inject("node-2", Fault(xid=119, cure=Cure.HANG.value))
    lab.nodes["node-2"].server.hangs = True
    await until(lambda: lab.endpoint.auto_scaling.replaced == [members[1].instance_id])


async def test_a_member_in_standby_may_stop_and_start_and_serves_again_afterwards(
    lab: Lab, reach: Reach, members: list[LabNode]
) -> None:
    node = members[1]
    await standby(reach, "enter_standby", node)
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    await until(lambda: state_of(node.instance_id) == "stopped")
    await reach.ec2("start_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.UP and seen.boots == 2)
    await standby(reach, "exit_standby", node)
    seen = await asyncio.to_thread(reach.aws("autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[GROUP])
    assert seen["AutoScalingGroups"][0]["DesiredCapacity"] == 2
    assert (lab.endpoint.auto_scaling.replaced, lab.endpoint.count("TerminateInstances")) == ([], 0)


async def test_a_group_at_its_smallest_lets_no_member_stand_by(reach: Reach, members: list[LabNode]) -> None:
    await standby(reach, "enter_standby", members[0])
    with pytest.raises(ClientError, match="min-size=1"):
        await standby(reach, "enter_standby", members[1])
    with pytest.raises(ClientError, match="not in InService"):
        await standby(reach, "enter_standby", members[0])
    with pytest.raises(ClientError, match="not in Standby"):
        await standby(reach, "exit_standby", members[1])


async def end_member(reach: Reach, node: LabNode, *, decrement: bool = False) -> None:
    call = reach.aws("autoscaling").terminate_instance_in_auto_scaling_group
    await asyncio.to_thread(call, InstanceId=node.instance_id, ShouldDecrementDesiredCapacity=decrement)


async def desired(reach: Reach) -> tuple[int, int]:
    """The desired capacity of the group, and how many members it has."""
    seen = await asyncio.to_thread(reach.aws("autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[GROUP])
    return seen["AutoScalingGroups"][0]["DesiredCapacity"], len(seen["AutoScalingGroups"][0]["Instances"])


async def test_a_member_that_is_ended_in_its_group_has_a_successor_and_one_that_lowers_the_capacity_has_none(
    lab: Lab, reach: Reach, members: list[LabNode]
) -> None:
    before = set(lab.nodes)
    await end_member(reach, members[1])
    await members[1].wait_until(lambda node: node.state is NodeState.TERMINATED)
    await until(lambda: len(set(lab.nodes) - before) == 1)
    assert await desired(reach) == (2, 2)
    await end_member(reach, members[0], decrement=True)
    await members[0].wait_until(lambda node: node.state is NodeState.TERMINATED)
    assert await desired(reach) == (1, 1)
    assert lab.endpoint.count("TerminateInstanceInAutoScalingGroup") == 2


async def test_what_aws_refuses_to_end_is_refused(lab: Lab, reach: Reach, members: list[LabNode]) -> None:
    resize = reach.aws("autoscaling").update_auto_scaling_group
    await asyncio.to_thread(resize, AutoScalingGroupName=GROUP, MinSize=2, MaxSize=3, DesiredCapacity=2)
    with pytest.raises(ClientError, match="violate group's min size"):
        await end_member(reach, members[1], decrement=True)
    with pytest.raises(ClientError, match="No managed instance found"):
        await end_member(reach, lab.nodes["spare-1"])
    assert members[1].state is NodeState.UP


async def test_a_group_that_may_not_launch_or_finds_no_capacity_launches_when_it_can_again(
    lab: Lab, reach: Reach, members: list[LabNode]
) -> None:
    groups, before = reach.aws("autoscaling"), set(lab.nodes)
    await asyncio.to_thread(groups.suspend_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    await end_member(reach, members[1])
    await members[1].wait_until(lambda node: node.state is NodeState.TERMINATED)
    assert await desired(reach) == (2, 1)
    lab.endpoint.auto_scaling.run_dry(GROUP, dry=True)
    await asyncio.to_thread(groups.resume_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["Launch"])
    assert await desired(reach) == (2, 1)
    lab.endpoint.auto_scaling.run_dry(GROUP, dry=False)
    await until(lambda: len(set(lab.nodes) - before) == 1)
    assert await desired(reach) == (2, 2)


async def test_a_group_whose_health_checks_are_suspended_replaces_no_ill_member(
    lab: Lab, reach: Reach, members: list[LabNode]
) -> None:
    groups, scaling = reach.aws("autoscaling"), lab.endpoint.auto_scaling
    await asyncio.to_thread(groups.suspend_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["ReplaceUnhealthy"])
    await lab.inject("node-2", Fault(xid=119, cure=Cure.HANG.value))
    lab.nodes["node-2"].server.hangs = True
    checks = scaling.checks
    await until(lambda: scaling.checks >= checks + 4)
    assert scaling.replaced == []
    await asyncio.to_thread(groups.resume_processes, AutoScalingGroupName=GROUP, ScalingProcesses=["ReplaceUnhealthy"])
    await until(lambda: scaling.replaced == [members[1].instance_id])


async def test_a_retired_member_goes_back_to_its_group_and_what_that_launches_becomes_a_tested_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=1, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        file = Path(lab.environment()["HOTSPARE_CONFIG"])
        file.write_text(file.read_text().replace("[policy]\n", "[policy]\nrenew_retired = true\n"))
        node, before, launched = lab.nodes["node-2"], set(lab.nodes), lab.endpoint.count("RunInstances")
        ids = [lab.nodes[name].instance_id for name in ("node-1", "node-2")]
        await asyncio.to_thread(lab.endpoint.auto_scaling.make_group, GROUP, ids, smallest=0, tags=TAGS)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        incident = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        sent_back = client.get_workflow_handle(names.provision_id("lab", node.instance_id), result_type=Provisioned)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.NEVER.value))
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            report = await incident.result()
            done = await sent_back.result()
            story = [line["text"] for line in await sent_back.query("story")]
        assert (report.fate, done.outcome) == ("retired", "in the pool"), (report.story, story)
        [new] = [lab.nodes[name] for name in set(lab.nodes) - before]
        assert (new.instance_id, new.state, node.state) == (done.spare, NodeState.UP, NodeState.TERMINATED)
        assert "node-2" not in lab.job.node_names
        assert "spare-1" in lab.job.node_names
        assert lab.endpoint.count("TerminateInstanceInAutoScalingGroup", node.instance_id) == 1
        assert (lab.endpoint.count("RunInstances"), lab.endpoint.count("TerminateInstances")) == (launched, 0)


async def test_a_group_that_replaces_the_member_at_the_same_time_ends_with_one_node_and_no_lost_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that gives the member back has arrived when the health check of its group ends the member."""
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=1, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        file = Path(lab.environment()["HOTSPARE_CONFIG"])
        file.write_text(file.read_text().replace("[policy]\n", "[policy]\nrenew_retired = true\n"))
        node, before = lab.nodes["node-2"], set(lab.nodes)
        ids = [lab.nodes[name].instance_id for name in ("node-1", "node-2")]
        await asyncio.to_thread(lab.endpoint.auto_scaling.make_group, GROUP, ids, smallest=0, tags=TAGS)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        incident = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        sent_back = client.get_workflow_handle(names.provision_id("lab", node.instance_id), result_type=Provisioned)
        ending = lab.endpoint.hold("TerminateInstanceInAutoScalingGroup", node.instance_id)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.NEVER.value))
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            await ending.reached()
            node.server.hangs = True
            await until(lambda: state_of(node.instance_id) in ("shutting-down", "terminated"))
            ending.release()
            report, done = await incident.result(), await sent_back.result()
            story = [line["text"] for line in await sent_back.query("story")]
        assert (report.fate, done.outcome) == ("retired", "in the pool"), (report.story, story)
        [new] = [lab.nodes[name] for name in set(lab.nodes) - before]
        assert (new.instance_id, node.state) == (done.spare, NodeState.TERMINATED)
        assert lab.endpoint.auto_scaling.replaced == [node.instance_id]
        assert lab.endpoint.count("TerminateInstanceInAutoScalingGroup") == 0
        assert "spare-1" in lab.job.node_names
        spare = (await Reach(lab).ec2("describe_instances", InstanceIds=[lab.nodes["spare-1"].instance_id]))["Reservations"][0]
        assert names.TAG_LEASE not in {tag["Key"] for tag in spare["Instances"][0]["Tags"]}


async def test_a_member_is_healed_by_a_reboot_that_its_group_would_have_replaced_it_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lab(LabOptions(folder=tmp_path / "lab", nodes=2, spares=0, boot_s=1.0)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        node = lab.nodes["node-2"]
        ids = [lab.nodes[name].instance_id for name in ("node-1", "node-2")]
        await asyncio.to_thread(lab.endpoint.auto_scaling.make_group, GROUP, ids, smallest=0, tags=TAGS)
        await run(*command("init", "--yes", "--json"))
        client = await connect()
        handle = client.get_workflow_handle(names.incident_id("lab", node.instance_id), result_type=IncidentReport)
        await lab.inject("node-2", Fault(xid=79, cure=Cure.REBOOT.value))
        async with part(tmp_path / "worker.log", "worker"):
            await run(*command("report", "node-2", "--xid", "79", "--json"))
            report = await handle.result()
        assert (report.outcome, report.fate) == ("resolved", "back in service")
        counts = {
            name: lab.endpoint.count(name) for name in ("RebootInstances", "EnterStandby", "ExitStandby", "TerminateInstances")
        }
        assert counts == {"RebootInstances": 1, "EnterStandby": 1, "ExitStandby": 1, "TerminateInstances": 0}
        assert lab.endpoint.auto_scaling.replaced == []
