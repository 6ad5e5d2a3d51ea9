"""FakeFleet's Auto Scaling groups: members, their lifecycle states, and the sizes that a group insists on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from activities.auto_scaling import GroupMember, GroupSize
from activities.clients.fake_points import Points
from activities.errors import BadInput


class FakeAutoScaling:
    """An `AutoScalingClient`. `name_of` gives the name of an instance, by which points are counted."""

    def __init__(self, points: Points, lock: threading.RLock, name_of: Callable[[str], str]) -> None:
        self._points, self._lock, self._name_of = points, lock, name_of
        self.members: dict[str, GroupMember] = {}
        self.sizes: dict[str, GroupSize] = {}

    def join(self, group: str, instance_ids: list[str], *, smallest: int = 0) -> None:
        """Make a group of these instances, as large as they are many."""
        count = len(instance_ids)
        self.sizes[group] = GroupSize(smallest=smallest, largest=count, desired=count)
        self.members |= {one: GroupMember(group=group, state="InService") for one in instance_ids}

    def member(self, instance_id: str) -> GroupMember | None:
        return self._points.carry_out("group_member", self._name_of(instance_id), lambda: self._seen(instance_id))

    def size(self, group: str) -> GroupSize:
        return self.sizes[group]

    def enter_standby(self, group: str, instance_id: str) -> None:
        self._points.carry_out(
            "enter_standby", self._name_of(instance_id), lambda: self._move(instance_id, "EnteringStandby", -1)
        )

    def exit_standby(self, group: str, instance_id: str) -> None:
        self._points.carry_out("exit_standby", self._name_of(instance_id), lambda: self._move(instance_id, "Pending", 1))

    def _seen(self, instance_id: str) -> GroupMember | None:
        """Return the member; one on its way is seen so once, as a poller would."""
        with self._lock:
            member = self.members.get(instance_id)
            arrived = {"EnteringStandby": "Standby", "Pending": "InService"}
            if member is not None and member.state in arrived:
                self.members[instance_id] = member.model_copy(update={"state": arrived[member.state]})
            return member

    def _move(self, instance_id: str, state: str, change: int) -> None:
        with self._lock:
            member = self.members[instance_id]
            if member.state != ("InService" if change < 0 else "Standby"):
                raise BadInput(f"ValidationError: the instance {instance_id} is {member.state}")
            size = self.sizes[member.group]
            if not size.smallest <= size.desired + change <= size.largest:
                raise BadInput(f"ValidationError: {member.group}: update the sizes of the group")
            self.members[instance_id] = member.model_copy(update={"state": state})
            self.sizes[member.group] = size.model_copy(update={"desired": size.desired + change})
