"""FakeFleet's EC2: instances with states and tags, and an inventory that reads them. Every changing call is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime

from activities import names
from activities.clients.aliases import KnownNode, resolve_alias
from activities.clients.fake_machine import FakeMachine
from activities.clients.fake_points import Points
from activities.ec2 import InstanceStatus, InstanceView
from activities.errors import PreconditionFailed, UnknownNode
from activities.inventory import Node


class FakeEc2:
    """An `Ec2Client` over machines. `ended` is called with the name of a machine whose work has ended.

    `statuses` are status checks by instance id that a test tells in place of those that follow from the machine; `reserved` is
    the reservation that an instance runs in.
    """

    def __init__(
        self,
        machines: Mapping[str, FakeMachine],
        nodes: list[Node],
        points: Points,
        lock: threading.RLock,
        ended: Callable[[str], None],
    ) -> None:
        self._machines, self._points, self._lock, self._ended = machines, points, lock, ended
        self._nodes = {node.instance_id: node for node in nodes}
        self.statuses: dict[str, InstanceStatus] = {}
        self.launched: dict[str, datetime] = {}
        self.reserved: dict[str, str] = {}
        self.tags: dict[str, dict[str, str]] = {
            node.instance_id: {"Name": node.name, names.TAG_ROLE: node.role} for node in nodes
        }

    def describe(self, instance_id: str) -> InstanceView:
        return self._points.carry_out("describe", self._name(instance_id), lambda: self._view(instance_id))

    def describe_cluster(self, cluster: str) -> list[InstanceView]:
        return self._points.carry_out("describe_cluster", "", lambda: [self._view(instance_id) for instance_id in self._nodes])

    def status(self, instance_id: str) -> InstanceStatus:
        return self._points.carry_out("status", self._name(instance_id), lambda: self._status(instance_id))

    def reboot(self, instance_id: str) -> None:
        self._points.carry_out("reboot", self._name(instance_id), lambda: self._reboot(instance_id))

    def stop(self, instance_id: str) -> None:
        self._points.carry_out("stop", self._name(instance_id), lambda: self._stop(instance_id))

    def start(self, instance_id: str) -> None:
        self._points.carry_out("start_instance", self._name(instance_id), lambda: self._start(instance_id))

    def set_tags(self, instance_id: str, tags: dict[str, str]) -> None:
        self._points.carry_out("set_tags", self._name(instance_id), lambda: self.tags[instance_id].update(tags))

    def remove_tags(self, instance_id: str, keys: list[str]) -> None:
        def remove() -> None:
            for key in keys:
                self.tags[instance_id].pop(key, None)

        self._points.carry_out("remove_tags", self._name(instance_id), remove)

    def console_output(self, instance_id: str, *, latest: bool = False) -> str:
        return self._points.carry_out("console", self._name(instance_id), lambda: self._console(instance_id))

    def _console(self, instance_id: str) -> str:
        with self._lock:
            return "\n".join(self._machine(instance_id).kernel_log)

    def machine_state(self, instance_id: str) -> str:
        """Return the state of an instance without looking at it as a poller does."""
        with self._lock:
            return self._machine(instance_id).state

    def add(self, node: Node, tags: dict[str, str]) -> None:
        """Take in an instance that was launched."""
        self.tags[node.instance_id] = {"Name": node.name, **tags}
        self._nodes[node.instance_id] = node

    def terminate(self, instance_id: str) -> None:
        """End an instance for good."""
        with self._lock:
            machine = self._machine(instance_id)
            machine.state = "terminated"
            machine.halt()
            self._ended(machine.name)

    def name_of(self, instance_id: str) -> str:
        """Return the name of an instance, of one that is terminated too."""
        return self._name(instance_id)

    def running_in(self, reservation_id: str) -> int:
        """Return how many instances hold a slot of a reservation."""
        ids = [one for one, held in self.reserved.items() if held == reservation_id]
        return sum(self.machine_state(one) in ("pending", "running", "stopping") for one in ids)

    def _name(self, instance_id: str) -> str:
        if instance_id not in self._nodes:
            raise UnknownNode(f"EC2 has no instance {instance_id}")
        return self._nodes[instance_id].name

    def _machine(self, instance_id: str) -> FakeMachine:
        return self._machines[self._name(instance_id)]

    def _view(self, instance_id: str) -> InstanceView:
        with self._lock:
            machine, node = self._machine(instance_id), self._nodes[instance_id]
            state = machine.state
            if state == "stopping":
                machine.state = "stopped"  # seen once as stopping, as a poller would
            return InstanceView(
                instance_id=instance_id,
                state=state,
                instance_type=node.instance_type,
                zone=node.zone,
                private_ip=node.ip,
                private_dns=f"{node.host}.ec2.internal",
                tags=dict(self.tags[instance_id]),
                launched_at=self.launched.get(instance_id),
                capacity_reservation=self.reserved.get(instance_id, ""),
                account="111122223333",
            )

    def _status(self, instance_id: str) -> InstanceStatus:
        with self._lock:
            machine = self._machine(instance_id)
            if (told := self.statuses.get(instance_id)) is not None:
                return told
            if machine.state != "running":
                return InstanceStatus(state=machine.state, system="not-applicable", instance="not-applicable")
            return InstanceStatus(state=machine.state, system="ok", instance="ok" if machine.responds else "impaired")

    def _reboot(self, instance_id: str) -> None:
        with self._lock:
            machine = self._running(instance_id)
            machine.reboot()
            self._ended(machine.name)

    def _stop(self, instance_id: str) -> None:
        with self._lock:
            machine = self._running(instance_id)
            machine.state = "stopping"
            machine.halt()
            self._ended(machine.name)

    def _start(self, instance_id: str) -> None:
        with self._lock:
            machine = self._machine(instance_id)
            if machine.state != "stopped":
                raise PreconditionFailed(f"{instance_id} is {machine.state}, not stopped")
            machine.power_on()

    def _running(self, instance_id: str) -> FakeMachine:
        machine = self._machine(instance_id)
        if machine.state != "running":
            raise PreconditionFailed(f"{instance_id} is {machine.state}, not running")
        return machine


class FakeInventory:
    """An `Inventory` over FakeFleet's EC2. It has one cluster and answers for it under any name."""

    def __init__(self, ec2: FakeEc2, nodes: list[Node], points: Points) -> None:
        self._ec2, self._nodes, self._points = ec2, nodes, points

    def resolve(self, cluster: str, alias: str) -> Node:
        known = [KnownNode(node, (f"{node.host}.ec2.internal",)) for node in self.list(cluster)]
        return resolve_alias(known, alias, f"cluster {cluster or 'of FakeFleet'}")

    def list(self, cluster: str) -> list[Node]:
        return self._points.carry_out(
            "inventory", "", lambda: [self._with_tags(node) for node in self._nodes if self._there(node)]
        )

    def _there(self, node: Node) -> bool:
        return self._ec2.machine_state(node.instance_id) != "terminated"

    def _with_tags(self, node: Node) -> Node:
        tags = self._ec2.tags[node.instance_id]
        seen = {
            "role": tags.get(names.TAG_ROLE, node.role),
            "quarantine": tags.get(names.TAG_QUARANTINE, ""),
            "lease": tags.get(names.TAG_LEASE, ""),
            "fate": tags.get(names.TAG_FATE, ""),
            "replaces": tags.get(names.TAG_REPLACES, ""),
            "stood_back": tags.get(names.TAG_STOOD_BACK, ""),
            "group": tags.get(names.AWS_TAG_GROUP, ""),
            "launched_at": self._ec2.launched.get(node.instance_id),
            "state": self._ec2.machine_state(node.instance_id),
        }
        return node.model_copy(update=seen)
