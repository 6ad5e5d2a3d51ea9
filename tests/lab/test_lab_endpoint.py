"""The lab's EC2 endpoint counts, holds and refuses calls as a test needs it, and behaves like EC2 where moto does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from infra.lab.faults import Cure, Fault
from infra.lab.lab import Lab
from infra.lab.node import NodeState
from tests.lab.conftest import Reach

LAUNCH: dict[str, Any] = {"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge", "MinCount": 1, "MaxCount": 1}


async def test_a_held_call_is_not_carried_out_until_it_is_released(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    old_boot = node.boot_id
    hold = lab.endpoint.hold("RebootInstances", instance_id=node.instance_id)
    call = asyncio.ensure_future(reach.ec2("reboot_instances", InstanceIds=[node.instance_id]))
    await hold.reached()
    assert not call.done()
    assert lab.endpoint.count("RebootInstances", node.instance_id) == 0
    assert node.boot_id == old_boot
    hold.release()
    await call
    await lab.reboot_done("node-1", old_boot)
    assert lab.endpoint.count("RebootInstances", node.instance_id) == 1
    assert node.boots == 2


async def test_a_held_call_is_carried_out_at_release_though_its_caller_has_given_up(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    old_boot = node.boot_id
    hold = lab.endpoint.hold("RebootInstances")
    impatient = reach.aws("ec2", config=Config(retries={"total_max_attempts": 1}, read_timeout=0.2))
    with pytest.raises(ReadTimeoutError):
        await asyncio.to_thread(impatient.reboot_instances, InstanceIds=[node.instance_id])
    await hold.reached()
    hold.release()
    await lab.reboot_done("node-1", old_boot)
    assert lab.endpoint.count("RebootInstances", node.instance_id) == 1


async def test_a_dropped_call_fails_and_does_nothing(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    hold = lab.endpoint.hold("RebootInstances")
    call = asyncio.ensure_future(reach.ec2("reboot_instances", InstanceIds=[node.instance_id]))
    await hold.reached()
    hold.drop()
    with pytest.raises(ClientError, match="Unavailable"):
        await call
    assert lab.endpoint.count("RebootInstances") == 0
    assert node.boots == 1


async def test_a_hold_waits_for_its_own_instance_and_takes_one_call(lab: Lab, reach: Reach) -> None:
    one, two = lab.nodes["node-1"], lab.nodes["node-2"]
    hold = lab.endpoint.hold("CreateTags", instance_id=one.instance_id)
    tags = [{"Key": "hotspare:lease", "Value": "replace/lab/i-1"}]
    await reach.ec2("create_tags", Resources=[two.instance_id], Tags=tags)
    held = asyncio.ensure_future(reach.ec2("create_tags", Resources=[one.instance_id], Tags=tags))
    await hold.reached()
    await reach.ec2("create_tags", Resources=[one.instance_id], Tags=tags)
    hold.release()
    await held
    assert lab.endpoint.count("CreateTags", one.instance_id) == 2
    assert lab.endpoint.count("CreateTags") == 3


async def test_a_call_fails_as_often_as_asked_and_then_works(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    lab.endpoint.fail_next("CreateTags", code="RequestLimitExceeded", times=2)
    for _ in range(2):
        with pytest.raises(ClientError, match="RequestLimitExceeded"):
            await reach.ec2("create_tags", Resources=[node.instance_id], Tags=[{"Key": "a", "Value": "b"}])
    await reach.ec2("create_tags", Resources=[node.instance_id], Tags=[{"Key": "a", "Value": "b"}])
    assert lab.endpoint.count("CreateTags", node.instance_id) == 1


async def test_a_launch_repeated_with_its_client_token_launches_nothing_more(lab: Lab, reach: Reach) -> None:
    answers = await asyncio.gather(*(reach.ec2("run_instances", ClientToken="spare-token-1", **LAUNCH) for _ in range(3)))
    ids = {answer["Instances"][0]["InstanceId"] for answer in answers}
    assert len(ids) == 1
    assert lab.endpoint.count("RunInstances") == 1
    other = await reach.ec2("run_instances", ClientToken="spare-token-2", **LAUNCH)
    assert other["Instances"][0]["InstanceId"] not in ids
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        await reach.ec2("run_instances", ClientToken="spare-token-1", **{**LAUNCH, "InstanceType": "p4d.24xlarge"})


async def test_an_instance_goes_through_ec2s_states(lab: Lab, reach: Reach) -> None:
    node = lab.nodes["node-1"]
    stopping = await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    assert stopping["StoppingInstances"][0]["CurrentState"]["Name"] == "stopping"
    assert await _state(reach, node.instance_id) in ("stopping", "stopped")
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        await reach.ec2("reboot_instances", InstanceIds=[node.instance_id])
    await reach.ec2("terminate_instances", InstanceIds=[node.instance_id])
    await node.wait_until(lambda seen: seen.state is NodeState.TERMINATED)
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        await reach.ec2("start_instances", InstanceIds=[node.instance_id])
    assert lab.endpoint.count("RebootInstances") == 0


async def test_the_status_checks_tell_a_node_that_answers_from_one_that_hangs_or_is_down(lab: Lab, reach: Reach) -> None:
    well, hung, dead = (lab.nodes[name] for name in ("node-1", "node-2", "spare-1"))
    await lab.inject("node-2", Fault(hang=True))
    await lab.inject("spare-1", Fault(xid=79, cure=Cure.NO_BOOT))
    await reach.ec2("reboot_instances", InstanceIds=[dead.instance_id])
    await dead.wait_until(lambda seen: seen.state is NodeState.DEAD)
    told = {node.name: await _checks(reach, node.instance_id) for node in (well, hung, dead)}
    assert told == {name: ("ok", word) for name, word in (("node-1", "ok"), ("node-2", "impaired"), ("spare-1", "impaired"))}


async def test_the_status_checks_of_a_stopped_instance_are_told_only_when_every_instance_is_asked_for(
    lab: Lab, reach: Reach
) -> None:
    node = lab.nodes["node-1"]
    await reach.ec2("stop_instances", InstanceIds=[node.instance_id])
    assert await _checks(reach, node.instance_id) == ("not-applicable", "not-applicable")
    running = await reach.ec2("describe_instance_status")
    assert node.instance_id not in [one["InstanceId"] for one in running["InstanceStatuses"]]
    assert len(running["InstanceStatuses"]) == len(lab.nodes) - 1
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        await reach.ec2("describe_instance_status", InstanceIds=["i-0123456789abcdef0"])


async def test_the_nodes_carry_the_tags_by_which_hotspare_finds_them(lab: Lab, reach: Reach) -> None:
    found = await reach.ec2("describe_instances", Filters=[{"Name": "tag:hotspare:cluster", "Values": ["lab"]}])
    roles = {}
    for reservation in found["Reservations"]:
        for instance in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
            roles[tags["Name"]] = (tags["hotspare:role"], instance["State"]["Name"], instance["PrivateIpAddress"])
    expected = {"head": "head", "node-1": "worker", "node-2": "worker", "spare-1": "spare"}
    assert {name: role for name, (role, _, _) in roles.items()} == expected
    assert {state for _, state, _ in roles.values()} == {"running"}
    assert roles["node-1"][2] == lab.nodes["node-1"].ip


async def test_the_other_services_of_a_cluster_answer_too(reach: Reach) -> None:
    queue = await asyncio.to_thread(reach.aws("sqs").create_queue, QueueName="events")
    assert "events" in queue["QueueUrl"]
    groups = await asyncio.to_thread(reach.aws("autoscaling").describe_auto_scaling_groups)
    assert groups["AutoScalingGroups"] == []
    clusters = await asyncio.to_thread(reach.aws("eks").list_clusters)
    assert clusters["clusters"] == []
    identity = await asyncio.to_thread(reach.aws("sts").get_caller_identity)
    assert identity["Account"]


async def _state(reach: Reach, instance_id: str) -> str:
    seen = await reach.ec2("describe_instances", InstanceIds=[instance_id])
    return str(seen["Reservations"][0]["Instances"][0]["State"]["Name"])


async def _checks(reach: Reach, instance_id: str) -> tuple[str, str]:
    seen = await reach.ec2("describe_instance_status", InstanceIds=[instance_id], IncludeAllInstances=True)
    [one] = seen["InstanceStatuses"]
    return one["SystemStatus"]["Status"], one["InstanceStatus"]["Status"]
