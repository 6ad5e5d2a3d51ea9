"""An Auto Scaling group as another healer: it terminates and replaces a member that stops or fails its status checks.

A member in Standby is not looked at. Sources: Amazon EC2 Auto Scaling User Guide, "Health checks for instances in an Auto Scaling
group" and "Temporarily remove instances from your Auto Scaling group".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from activities.clock import Clock, SystemClock, beat
from activities.ec2 import Ec2Client
from activities.effects import refuse_if_late
from activities.errors import DeadlinePassed, FinalError, PreconditionFailed
from activities.healers import Healer
from activities.inventory import Node
from activities.message import Message
from activities.stood_back import StoodBack

KIND = "Auto Scaling group"

IN_SERVICE, ENTERING, STANDBY, LEAVING = "InService", "EnteringStandby", "Standby", "Pending"
"""Lifecycle states. Source: Amazon EC2 Auto Scaling User Guide, "Instance lifecycle"; a member leaves Standby through Pending."""

STANDBY_DEADLINE_S = 120.0
"""How long a member may take into Standby or out of it. Hotspare default: without a load balancer it takes seconds."""

STANDBY_POLL_S = 2.0
"""Seconds between looks at it. Hotspare default."""


class GroupMember(Message):
    """An instance in its group, and the lifecycle state that it is in."""

    group: str
    state: str


class GroupSize(Message):
    """A group: MinSize, MaxSize and DesiredCapacity, the lifecycle state of each member, and the processes that are suspended."""

    smallest: int
    largest: int
    desired: int
    members: dict[str, str] = {}
    suspended: list[str] = []


class AutoScalingClient(Protocol):
    """The calls of Amazon EC2 Auto Scaling that Hotspare makes. Errors as for `Ec2Client`; what it refuses is BadInput."""

    def member(self, instance_id: str) -> GroupMember | None:
        """Return the membership of an instance, None when no group has it."""
        ...

    def size(self, group: str) -> GroupSize: ...

    def enter_standby(self, group: str, instance_id: str) -> None:
        """Put a member into Standby and lower DesiredCapacity by one, so that nothing is launched in its place."""
        ...

    def exit_standby(self, group: str, instance_id: str) -> None:
        """Put it back into service; DesiredCapacity rises by one."""
        ...

    def terminate(self, instance_id: str, *, decrement: bool) -> None:
        """Terminate a member. The group launches another, unless `decrement` has DesiredCapacity fall by one."""
        ...


class AutoScalingHealers:
    """`Healers` of the groups of one region. The record is the tag hotspare:stood-back on the instance.

    The tag is written before the call and removed after it, so one that is there says that the member may be in Standby.
    """

    kind = KIND

    def __init__(self, groups: AutoScalingClient, ec2: Ec2Client, clock: Clock | None = None) -> None:
        self._groups = groups
        self._record = StoodBack(ec2)
        self._clock = clock or SystemClock()

    def found(self, node: Node) -> list[Healer]:
        """Return the group of the node, by the tag that AWS puts on members."""
        return [Healer(kind=KIND, name=node.group)] if node.group else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Put the node into Standby. PreconditionFailed where its group forbids that; NotOurs where another incident did."""
        member, ours = self._groups.member(node.instance_id), KIND in self._record.kinds(node, incident)
        if member is None:
            return ""
        if member.state in (ENTERING, STANDBY):
            self._await(node, lambda state: state != ENTERING, "Standby")
            whose = "already" if ours else "already, put there by somebody else, and stays so"
            return f"{node.name} is in Standby in {member.group} {whose}"
        self._refuse_to_enter(node, member)
        refuse_if_late()
        self._record.add(node, incident, KIND)
        try:
            self._groups.enter_standby(member.group, node.instance_id)
        except FinalError:
            seen = self._groups.member(node.instance_id)
            if seen is None or seen.state not in (ENTERING, STANDBY):  # an earlier attempt did not get through either
                self._record.remove(node, incident, KIND)
                raise
        self._await(node, lambda state: state == STANDBY, "Standby")
        return f"{node.name} is in Standby in {member.group}, whose desired capacity is one lower"

    def release(self, node: Node, incident: str) -> str:
        """Put the node back into service in its group, if it is in Standby for this incident."""
        if KIND not in self._record.kinds(node, incident):
            return ""
        member = self._groups.member(node.instance_id)
        if member is not None and member.state in (ENTERING, STANDBY):
            self._await(node, lambda state: state != ENTERING, "Standby")
            self._refuse_to_leave(node, member.group)
            refuse_if_late()
            self._groups.exit_standby(member.group, node.instance_id)
            self._await(node, lambda state: state != STANDBY, "service")
        self._record.remove(node, incident, KIND)
        where = f"back in service in {member.group}" if member else "in no Auto Scaling group any more"
        return f"{node.name} is {where}"

    def _refuse_to_enter(self, node: Node, member: GroupMember) -> None:
        if member.state != IN_SERVICE:
            raise PreconditionFailed(f"{node.name} is {member.state} in {member.group}: only a member in service can stand by")
        size = self._groups.size(member.group)
        if size.desired - 1 < size.smallest:
            raise PreconditionFailed(
                f"{member.group} has MinSize {size.smallest} and desired capacity {size.desired}, so no member may stand by; "
                f"{_resize(member.group, 'min', size.smallest - 1)}"
            )

    def _refuse_to_leave(self, node: Node, group: str) -> None:
        size = self._groups.size(group)
        if size.desired + 1 > size.largest:
            raise PreconditionFailed(
                f"{group} has MaxSize {size.largest} and desired capacity {size.desired}: {node.name} cannot leave Standby; "
                f"{_resize(group, 'max', size.largest + 1)}"
            )

    def _await(self, node: Node, arrived: Callable[[str], bool], where: str) -> None:
        deadline = self._clock.now() + STANDBY_DEADLINE_S
        while True:
            member = self._groups.member(node.instance_id)
            if member is None or arrived(member.state):
                return
            if self._clock.now() >= deadline:
                raise DeadlinePassed(f"{node.name} is {member.state} in {member.group}, on its way into {where}, for too long")
            beat(f"{node.name} is {member.state}")
            self._clock.wait(STANDBY_POLL_S)


def _resize(group: str, bound: str, size: int) -> str:
    return f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {group} --{bound}-size {size}"
