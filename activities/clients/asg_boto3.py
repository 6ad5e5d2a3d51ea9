"""Amazon EC2 Auto Scaling through boto3. Calls that change something are never retried here; looks are, as AWS advises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from activities.auto_scaling import GroupMember, GroupSize
from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import ONCE, PATIENT, mapped
from activities.errors import BadInput
from activities.settings import AwsSettings

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config
    from mypy_boto3_autoscaling import AutoScalingClient


class AsgBoto3:
    """`AutoScalingClient` on AWS or on an endpoint that speaks its protocol, as the worker role that the settings say."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        session = session_of(settings, role)
        self._read = _client(session, settings, PATIENT)
        self._change = _client(session, settings, ONCE)

    def member(self, instance_id: str) -> GroupMember | None:
        with mapped(f"look for the Auto Scaling group of {instance_id}"):
            seen = self._read.describe_auto_scaling_instances(InstanceIds=[instance_id])["AutoScalingInstances"]
        return GroupMember(group=seen[0]["AutoScalingGroupName"], state=seen[0]["LifecycleState"]) if seen else None

    def size(self, group: str) -> GroupSize:
        with mapped(f"describe the Auto Scaling group {group}"):
            seen = self._read.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        if not seen:
            raise BadInput(f"there is no Auto Scaling group {group}")
        return GroupSize(
            smallest=seen[0]["MinSize"],
            largest=seen[0]["MaxSize"],
            desired=seen[0]["DesiredCapacity"],
            members={one["InstanceId"]: one["LifecycleState"] for one in seen[0]["Instances"]},
            suspended=sorted(one["ProcessName"] for one in seen[0].get("SuspendedProcesses", [])),
        )

    def enter_standby(self, group: str, instance_id: str) -> None:
        with mapped(f"put {instance_id} into Standby in {group}"):
            self._change.enter_standby(InstanceIds=[instance_id], AutoScalingGroupName=group, ShouldDecrementDesiredCapacity=True)

    def exit_standby(self, group: str, instance_id: str) -> None:
        with mapped(f"put {instance_id} back into service in {group}"):
            self._change.exit_standby(InstanceIds=[instance_id], AutoScalingGroupName=group)

    def terminate(self, instance_id: str, *, decrement: bool) -> None:
        with mapped(f"terminate {instance_id} in its Auto Scaling group"):
            self._change.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=decrement
            )


def _client(session: boto3.session.Session, settings: AwsSettings, config: Config) -> AutoScalingClient:
    with mapped("open the Auto Scaling client"):
        return session.client(
            "autoscaling", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=config
        )
