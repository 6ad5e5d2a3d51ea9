"""A slot in an Auto Scaling group: the group terminates a member, its desired capacity stays, and so it launches another.

Sources: Amazon EC2 Auto Scaling API reference, TerminateInstanceInAutoScalingGroup; Amazon EC2 Auto Scaling User Guide, "Suspend
and resume Amazon EC2 Auto Scaling processes"; Amazon EKS API reference, NodegroupHealth.
"""

from __future__ import annotations

from activities import names
from activities.auto_scaling import ENTERING, STANDBY, AutoScalingClient
from activities.ec2_messages import InstanceView
from activities.eks_repair import EKS_TAG_CLUSTER, EKS_TAG_GROUP, EksClient
from activities.errors import PreconditionFailed
from activities.inventory import Node
from activities.owner_slots import OwnerSeen, SlotOwner
from activities.provisioning import GONE

LAUNCHES = "Launch"
"""The process of a group without which it launches nothing. Source: as above, "Types of processes"."""

LEAVING = ("Terminating", "Terminated", "Detach")
"""Beginnings of the lifecycle states of members on their way out. Source: as above, "Instance lifecycle"."""


class GroupSlots:
    """`SlotOwner` of Auto Scaling groups, those behind managed node groups of EKS among them."""

    def __init__(self, groups: AutoScalingClient) -> None:
        self._groups = groups

    def look(self, view: InstanceView) -> OwnerSeen | None:
        """Return the group; one that launches nothing now is refused. An instance that is gone has its group in a tag."""
        member = self._groups.member(view.instance_id)
        group = member.group if member else view.tags.get(names.AWS_TAG_GROUP, "")
        if not group or (member is None and view.state not in GONE):
            return None
        size = self._groups.size(group)
        if LAUNCHES in size.suspended:
            raise PreconditionFailed(
                f"{group} launches nothing: its process {LAUNCHES} is suspended; {view.instance_id} stays until aws autoscaling "
                f"resume-processes --auto-scaling-group-name {group} --scaling-processes {LAUNCHES}"
            )
        return OwnerSeen(keeper=group, members=sorted(size.members), going=member is None or member.state.startswith(LEAVING))

    def give_up(self, node: Node, *, decrement: bool) -> None:
        """Terminate the member. One in Standby is not in the group's number: nothing would come in its place."""
        member = self._groups.member(node.instance_id)
        if member is None:
            raise PreconditionFailed(f"{node.name} is in no Auto Scaling group any more; it was not terminated")
        if member.state in (ENTERING, STANDBY):
            raise PreconditionFailed(
                f"{node.name} is {member.state} in {member.group}, put there by somebody else: it stays until aws autoscaling "
                f"exit-standby --auto-scaling-group-name {member.group} --instance-ids {node.instance_id}"
            )
        self._groups.terminate(node.instance_id, decrement=decrement)

    def launched(self, keeper: str) -> list[str]:
        """Return the members of the group that are not leaving it."""
        return [one for one, state in self._groups.size(keeper).members.items() if not state.startswith(LEAVING)]


class NodeGroupSlots:
    """`SlotOwner` of managed node groups: of the group behind it, unless EKS says that it launches no node that joins."""

    def __init__(self, groups: SlotOwner, eks: EksClient, cluster: str) -> None:
        """`cluster` is EKS's name of it; empty: by EKS's tag on instances."""
        self._groups = groups
        self._eks = eks
        self._cluster = cluster

    def look(self, view: InstanceView) -> OwnerSeen | None:
        """Return the group behind the node group; one with issues of its health is refused, with what EKS says of them."""
        group, cluster = view.tags.get(EKS_TAG_GROUP, ""), self._cluster or view.tags.get(EKS_TAG_CLUSTER, "")
        issues = self._eks.node_group(cluster, group).issues if group and cluster else ()
        if issues:
            raise PreconditionFailed(
                f"EKS says that node group {group} is not well, so nothing may come in place of {view.instance_id}; it stays: "
                f"{'; '.join(issues)[:600]}"
            )
        return self._groups.look(view)

    def give_up(self, node: Node, *, decrement: bool) -> None:
        """As the group behind it."""
        self._groups.give_up(node, decrement=decrement)

    def launched(self, keeper: str) -> list[str]:
        """As the group behind it."""
        return self._groups.launched(keeper)
