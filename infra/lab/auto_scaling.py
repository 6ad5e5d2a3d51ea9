"""Auto Scaling groups of the lab: moto keeps them; added here are health checks that replace members, and sizes that hold.

A member in service that leaves the state running, or whose status checks are impaired, is terminated and another launched; one in
Standby is not looked at. A suspended process does nothing: ReplaceUnhealthy and HealthCheck replace no member, Launch launches
none. Source: Amazon EC2 Auto Scaling User Guide, "Health checks for instances in an Auto Scaling group", "Temporarily remove
instances from your Auto Scaling group" and "Suspend and resume Amazon EC2 Auto Scaling processes"; API reference,
TerminateInstanceInAutoScalingGroup. AWS looks every minute or so and takes minutes to say impaired; the lab takes parts of a
second, which is the worst that a healer can meet.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from infra.lab.ec2_calls import Answer, AwsCall, error
from infra.lab.moto_instances import LabGroup, groups, identity_of, let_launch, set_state, state_of
from infra.lab.options import REGION

HEALTH_CHECK_S = 0.2
"""Seconds between health checks. A lab value."""

IMPAIRED_CHECKS = 2
"""Checks in a row in which a running member does not answer, before it counts as impaired. A lab value."""

TERMINATE_MEMBER = "TerminateInstanceInAutoScalingGroup"
"""The call that ends a member, and has another launched unless it lowers the desired capacity."""

HEALTH = ("HealthCheck", "ReplaceUnhealthy")
"""Processes of which both replace an ill member; either suspended, nobody does."""

GONE = ("stopping", "stopped", "shutting-down", "terminated")

log = logging.getLogger("hotspare.lab")


class Nodes(Protocol):
    """The lab's nodes, as the health checks and launches need them. Called from a thread."""

    def answers(self) -> dict[str, bool]: ...

    def launched(self, instance_id: str) -> None:
        """Take in an instance that a group has launched."""
        ...


class AutoScaling:
    """The groups, and the thread that checks the health of their members.

    `dry` are groups that find no capacity now; `checks` counts the rounds.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._ec2: Any = None
        self._groups: Any = None
        self._seen_well: set[str] = set()
        self._silent: dict[str, int] = {}
        self._taken_in: set[str] = set()
        self.replaced: list[str] = []
        self.dry: set[str] = set()
        self.checks = 0

    def start(self, url: str) -> None:
        """Begin to check, over the endpoint at `url`."""
        reach = {"endpoint_url": url, "region_name": REGION, "config": Config(proxies={})}
        keys = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
        self._ec2 = boto3.client("ec2", **reach, **keys)  # type: ignore[call-overload]
        self._groups = boto3.client("autoscaling", **reach, **keys)  # type: ignore[call-overload]
        self._thread = threading.Thread(target=self._watch, daemon=True, name="auto scaling")
        self._thread.start()

    def stop(self) -> None:
        """End the checks."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def make_group(self, name: str, instance_ids: list[str], *, smallest: int, tags: dict[str, str]) -> None:
        """Make a group of instances that are there; what it launches later gets the tags. It may grow by one."""
        count = len(instance_ids)
        first = identity_of(instance_ids[0])
        self._groups.create_launch_configuration(
            LaunchConfigurationName=name, ImageId="ami-12c6146b", InstanceType=first.instance_type
        )
        self._groups.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchConfigurationName=name,
            AvailabilityZones=[f"{REGION}a"],
            MinSize=0,
            MaxSize=count + 1,
            DesiredCapacity=0,
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        )
        self._seen_well |= set(instance_ids)
        self._groups.attach_instances(AutoScalingGroupName=name, InstanceIds=instance_ids)
        self._groups.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=smallest)

    def refusal(self, call: AwsCall) -> Answer | None:
        """Refuse what AWS refuses and moto carries out: Standby that the group's sizes or the member's state forbid."""
        if call.operation == TERMINATE_MEMBER:
            return _no_end(call)
        change = {"EnterStandby": -1, "ExitStandby": 1}.get(call.operation)
        group = next((one for one in groups() if one.name == call.parameters.get("AutoScalingGroupName")), None)
        if change is None or group is None:
            return None
        needed = "InService" if change < 0 else "Standby"
        for instance_id in call.instance_ids:
            if group.members.get(instance_id) != needed:
                return error(400, "ValidationError", f"The instance {instance_id} is not in {needed}.")
        moves = len(call.instance_ids) if change > 0 or call.parameters.get("ShouldDecrementDesiredCapacity") == "true" else 0
        if group.smallest <= group.desired + change * moves <= group.largest:
            return None
        return error(
            400,
            "ValidationError",
            f"AutoScalingGroup {group.name} has min-size={group.smallest}, max-size={group.largest}, and "
            f"desired-size={group.desired}. Please update the AutoScalingGroup sizes appropriately.",
        )

    def carried_out(self, call: AwsCall) -> None:
        """Take note of processes that were suspended or resumed."""
        if call.operation in ("SuspendProcesses", "ResumeProcesses"):
            for group in groups():
                self._let_launch(group)

    def run_dry(self, name: str, *, dry: bool) -> None:
        """Have a group find no capacity for what it lacks, or find it again."""
        self.dry = self.dry | {name} if dry else self.dry - {name}
        let_launch(name, not dry)

    def _let_launch(self, group: LabGroup) -> None:
        let_launch(group.name, group.name not in self.dry and "Launch" not in group.suspended)

    def _watch(self) -> None:
        while not self._stopped.wait(HEALTH_CHECK_S):
            try:
                for group in groups():
                    self._check(group)
                self.checks += 1
            except (ClientError, BotoCoreError) as failure:
                log.warning("a health check of Auto Scaling failed: %s", failure)

    def _check(self, group: LabGroup) -> None:
        answers = self._nodes.answers()
        for instance_id, lifecycle in group.members.items():
            if instance_id not in answers:
                self._take_in(instance_id)
            elif set(HEALTH) & set(group.suspended):
                continue
            elif lifecycle == "InService" and self._unhealthy(instance_id, answers[instance_id]):
                self.replaced.append(instance_id)
                self._ec2.terminate_instances(InstanceIds=[instance_id])

    def _take_in(self, instance_id: str) -> None:
        """An instance that the group has launched in place of another comes up as a node."""
        if instance_id not in self._taken_in:
            self._taken_in.add(instance_id)
            set_state(instance_id, "pending")
            self._nodes.launched(instance_id)

    def _unhealthy(self, instance_id: str, answers: bool) -> bool:
        state = state_of(instance_id)
        if state in GONE:
            return True
        if state != "running" or answers:
            self._silent.pop(instance_id, None)
            self._seen_well |= {instance_id} if answers else set()
            return False
        self._silent[instance_id] = self._silent.get(instance_id, 0) + 1
        return instance_id in self._seen_well and self._silent[instance_id] >= IMPAIRED_CHECKS


def _no_end(call: AwsCall) -> Answer | None:
    """Refuse to end an instance that is no member, or not any more, or to go below the smallest size."""
    instance_id = call.parameters.get("InstanceId", "")
    group = next((one for one in groups() if instance_id in one.members), None)
    if group is None or state_of(instance_id) in ("shutting-down", "terminated"):
        return error(400, "ValidationError", f"Instance Id not found - No managed instance found for instance ID {instance_id}")
    if call.parameters.get("ShouldDecrementDesiredCapacity") == "true" and group.desired - 1 < group.smallest:
        said = f"Currently, desiredSize equals minSize ({group.smallest}). Terminating instance without replacement will violate"
        return error(400, "ValidationError", f"{said} group's min size constraint.")
    return None
