"""FakeFleet's Auto Scaling groups: members, their lifecycle states, sizes that a group insists on, and what it launches."""

from __future__ import annotations

import threading
from collections.abc import Callable

from activities.auto_scaling import GroupMember, GroupSize
from activities.clients.fake_points import Points
from activities.errors import BadInput


class FakeAutoScaling:
    """An `AutoScalingClient`. `name_of` gives the name of an instance, by which points are counted.

    `launch` makes a machine for a group and returns its instance id, `end` ends one. While `dry` a group finds no capacity.
    """

    def __init__(
        self,
        points: Points,
        lock: threading.RLock,
        name_of: Callable[[str], str],
        launch: Callable[[str], str],
        end: Callable[[str], None],
    ) -> None:
        self._points, self._lock, self._name_of = points, lock, name_of
        self._launch, self._end = launch, end
        self.members: dict[str, GroupMember] = {}
        self.sizes: dict[str, GroupSize] = {}
        self.dry = False

    def join(self, group: str, instance_ids: list[str], *, smallest: int = 0) -> None:
        """Make a group of these instances, as large as they are many."""
        count = len(instance_ids)
        self.sizes[group] = GroupSize(smallest=smallest, largest=count, desired=count)
        self.members |= {one: GroupMember(group=group, state="InService") for one in instance_ids}

    def suspend(self, group: str, *processes: str) -> None:
        """Suspend processes of a group."""
        self.sizes[group] = self.sizes[group].model_copy(update={"suspended": list(processes)})

    def replace(self, instance_id: str) -> None:
        """Have a group find a member ill: it is ended, and another is launched."""
        with self._lock:
            group = self.members.pop(instance_id).group
            self._end(instance_id)
            self.fill(group)

    def fill(self, group: str) -> None:
        """Launch what is missing from the desired capacity, while there is capacity and the process Launch is not suspended."""
        with self._lock:
            counted = [one for one in self.members.values() if one.group == group and one.state != "Standby"]
            if self.dry or "Launch" in self.sizes[group].suspended:
                return
            for _ in range(self.sizes[group].desired - len(counted)):
                self.members[self._launch(group)] = GroupMember(group=group, state="InService")

    def launched_for(self, group: str) -> list[str]:
        """Return the members of a group, without looking at it as a caller does."""
        return [one for one, seen in self.members.items() if seen.group == group]

    def member(self, instance_id: str) -> GroupMember | None:
        return self._points.carry_out("group_member", self._name_of(instance_id), lambda: self._seen(instance_id))

    def size(self, group: str) -> GroupSize:
        with self._lock:
            members = {one: seen.state for one, seen in self.members.items() if seen.group == group}
            return self.sizes[group].model_copy(update={"members": members})

    def enter_standby(self, group: str, instance_id: str) -> None:
        self._points.carry_out(
            "enter_standby", self._name_of(instance_id), lambda: self._move(instance_id, "EnteringStandby", -1)
        )

    def exit_standby(self, group: str, instance_id: str) -> None:
        self._points.carry_out("exit_standby", self._name_of(instance_id), lambda: self._move(instance_id, "Pending", 1))

    def terminate(self, instance_id: str, *, decrement: bool) -> None:
        self._points.carry_out(
            "terminate_in_group", self._name_of(instance_id), lambda: self._terminate(instance_id, 1 if decrement else 0)
        )

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

    def _terminate(self, instance_id: str, fewer: int) -> None:
        with self._lock:
            member = self.members.get(instance_id)
            if member is None:
                raise BadInput(f"ValidationError: instance {instance_id} is not part of an Auto Scaling group")
            size = self.sizes[member.group]
            if size.desired - fewer < size.smallest:
                raise BadInput(f"ValidationError: terminating it would violate the group's MinSize of {size.smallest}")
            self.sizes[member.group] = size.model_copy(update={"desired": size.desired - fewer})
            self.replace(instance_id)
