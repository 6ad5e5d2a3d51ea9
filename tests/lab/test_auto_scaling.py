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
from workflows.messages import IncidentReport

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
