"""Other healers stand back by their own switch, once, on record, and only for whom they were told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.auto_scaling import AutoScalingHealers, GroupMember, GroupSize
from activities.clients.asg_boto3 import AsgBoto3
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.clients.fake_fleet import FakeFleet
from activities.clients.tag_inventory import TagInventory
from activities.errors import BadInput, HotspareError, ProviderBusy
from activities.healers import HealerActivities, ReleaseHealers, StandBack
from activities.settings import AwsSettings

OURS, OTHERS = "incident/lab/i-2", "incident/lab/i-9"


@pytest.fixture
def member(fleet: FakeFleet) -> FakeFleet:
    """A fleet whose second node is in an Auto Scaling group that may shrink."""
    fleet.join_group("gpus", "node-1", "node-2")
    return fleet


def activities(fleet: FakeFleet) -> HealerActivities:
    return HealerActivities(AutoScalingHealers(fleet.auto_scaling, fleet.ec2, fleet.clock))


def stand_back(fleet: FakeFleet, surroundings: ActivityEnvironment, incident: str = OURS) -> str:
    request = StandBack(node=fleet.node("node-2"), incident=incident)
    return surroundings.run(activities(fleet).stand_back, request).said


def release(fleet: FakeFleet, surroundings: ActivityEnvironment, incident: str = OURS) -> str:
    request = ReleaseHealers(node=fleet.node("node-2"), incident=incident)
    return surroundings.run(activities(fleet).release_healers, request).said


def record(fleet: FakeFleet) -> str:
    return fleet.ec2.tags[fleet.node("node-2").instance_id].get(names.TAG_STOOD_BACK, "")


def state(fleet: FakeFleet) -> str:
    return fleet.auto_scaling.members[fleet.node("node-2").instance_id].state


def failure(call: Callable[[], object]) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def test_a_group_is_found_by_the_tag_of_its_members(member: FakeFleet) -> None:
    healers = AutoScalingHealers(member.auto_scaling, member.ec2)
    assert [one.words for one in healers.found(member.node("node-2"))] == ["Auto Scaling group gpus"]
    assert healers.found(member.node("node-3")) == []
    assert member.count("group_member") == 0


def test_standing_back_lowers_the_desired_capacity_and_names_the_incident(
    member: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    for _ in range(3):
        stand_back(member, surroundings)
    assert (state(member), member.auto_scaling.sizes["gpus"].desired) == ("Standby", 1)
    assert names.owner_in(record(member)) == OURS
    assert member.count("enter_standby") == 1


def test_a_release_puts_everything_back_as_it_was_once(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    stand_back(member, surroundings)
    for _ in range(3):
        release(member, surroundings)
    assert (state(member), member.auto_scaling.sizes["gpus"].desired, record(member)) == ("InService", 2, "")
    assert member.count("exit_standby") == 1


def test_a_group_that_may_not_shrink_refuses_and_says_what_to_change(fleet: FakeFleet, surroundings: ActivityEnvironment) -> None:
    fleet.join_group("gpus", "node-1", "node-2", smallest=2)
    refused = failure(lambda: stand_back(fleet, surroundings))
    assert (refused.type, refused.non_retryable) == ("PreconditionFailed", True)
    assert "--auto-scaling-group-name gpus --min-size 1" in refused.message
    assert (record(fleet), fleet.count("enter_standby")) == ("", 0)


def test_a_group_that_has_grown_to_its_limit_meanwhile_keeps_the_record(
    member: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    stand_back(member, surroundings)
    member.auto_scaling.sizes["gpus"] = GroupSize(smallest=0, largest=2, desired=2)
    refused = failure(lambda: release(member, surroundings))
    assert "--max-size 3" in refused.message
    assert (names.owner_in(record(member)), state(member)) == (OURS, "Standby")


def test_a_refusal_by_the_group_leaves_no_record(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    member.fail_next("enter_standby", BadInput("ValidationError"))
    assert failure(lambda: stand_back(member, surroundings)).type == "BadInput"
    assert record(member) == ""


def test_a_lost_answer_is_made_up_by_looking(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    member.points.lose_answer("enter_standby", ProviderBusy("connection reset by peer"))
    assert failure(lambda: stand_back(member, surroundings)).type == "ProviderBusy"
    stand_back(member, surroundings)
    assert (state(member), member.count("enter_standby")) == ("Standby", 1)
    member.points.lose_answer("exit_standby", ProviderBusy("connection reset by peer"))
    assert failure(lambda: release(member, surroundings)).type == "ProviderBusy"
    release(member, surroundings)
    assert (state(member), record(member), member.count("exit_standby")) == ("InService", "", 1)


def test_a_refusal_because_an_earlier_attempt_got_through_is_none(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    """What EC2 shows lags: the second attempt still saw the member in service."""

    def late(group: str, instance_id: str) -> None:
        member.auto_scaling.members[instance_id] = GroupMember(group=group, state="Standby")
        raise BadInput(f"ValidationError: the instance {instance_id} is not in InService")

    member.auto_scaling.enter_standby = late  # type: ignore[method-assign]
    stand_back(member, surroundings)
    assert names.owner_in(record(member)) == OURS


def test_a_standby_of_somebody_else_is_respected_and_never_ended(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    member.auto_scaling.enter_standby("gpus", member.node("node-2").instance_id)
    assert "somebody else" in stand_back(member, surroundings)
    release(member, surroundings)
    assert (state(member), record(member), member.count("exit_standby")) == ("Standby", "", 0)


def test_what_stands_back_for_another_incident_is_not_ours_to_use_or_to_release(
    member: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    stand_back(member, surroundings, OTHERS)
    for call in (stand_back, release):
        error = failure(lambda call=call: call(member, surroundings))  # type: ignore[misc]
        assert (error.type, OTHERS in error.message) == ("NotOurs", True)
    assert names.owner_in(record(member)) == OTHERS


def test_a_node_that_has_left_its_group_is_nobody_elses(member: FakeFleet, surroundings: ActivityEnvironment) -> None:
    stand_back(member, surroundings)
    del member.auto_scaling.members[member.node("node-2").instance_id]
    assert "no Auto Scaling group" in release(member, surroundings)
    assert record(member) == ""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AwsSettings, str]]:
    """moto on loopback with one group of two members; the settings that reach it, and the id of a member."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = AwsSettings(region="us-east-1", endpoint_url=f"http://{host}:{port}")
    groups = boto3.client("autoscaling", settings.region, endpoint_url=settings.endpoint_url)
    groups.create_launch_configuration(LaunchConfigurationName="gpu", ImageId="ami-12c6146b", InstanceType="p5.48xlarge")
    groups.create_auto_scaling_group(
        AutoScalingGroupName="gpus",
        LaunchConfigurationName="gpu",
        MinSize=1,
        MaxSize=2,
        DesiredCapacity=2,
        AvailabilityZones=["us-east-1a"],
        Tags=[{"Key": names.TAG_CLUSTER, "Value": "c1", "PropagateAtLaunch": True}],
    )
    members = groups.describe_auto_scaling_instances()["AutoScalingInstances"]
    yield settings, members[0]["InstanceId"]
    groups.delete_auto_scaling_group(AutoScalingGroupName="gpus", ForceDelete=True)
    server.stop()


def test_the_calls_are_those_of_aws(aws: tuple[AwsSettings, str], surroundings: ActivityEnvironment) -> None:
    settings, instance_id = aws
    ec2, groups = Ec2Boto3(settings), AsgBoto3(settings)
    healers = HealerActivities(AutoScalingHealers(groups, ec2))
    node = TagInventory(ec2, "c1", cache_s=0.0).resolve("", instance_id)
    assert node.group == "gpus"
    assert node.launched_at is not None
    surroundings.run(healers.stand_back, StandBack(node=node, incident=OURS))
    assert groups.member(instance_id) == GroupMember(group="gpus", state="Standby")
    size = groups.size("gpus")
    assert (size.smallest, size.largest, size.desired, size.members[instance_id], size.suspended) == (1, 2, 1, "Standby", [])
    assert TagInventory(ec2, "c1", cache_s=0.0).resolve("", instance_id).stood_back.startswith(OURS)
    surroundings.run(healers.release_healers, ReleaseHealers(node=node, incident=OURS))
    assert groups.member(instance_id) == GroupMember(group="gpus", state="InService")
    assert groups.size("gpus").desired == 2
    assert names.TAG_STOOD_BACK not in ec2.describe(instance_id).tags


def test_an_instance_in_no_group_and_a_group_that_is_not_there_are_told_apart(aws: tuple[AwsSettings, str]) -> None:
    groups = AsgBoto3(aws[0])
    assert groups.member("i-00000000000000001") is None
    with pytest.raises(HotspareError, match="no Auto Scaling group other"):
        groups.size("other")
