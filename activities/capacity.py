"""The capacity under a node: the reservation that its instance is in, and what a stop or a terminate would give up.

Both give the slot up: while the instance is stopped its place may go to another launcher, and a Capacity Block that nears its end
starts nothing. Sources: Amazon EC2 User Guide, "Capacity Reservations" and "Launch instances using Capacity Blocks".
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from temporalio import activity

from activities import names
from activities.clock import Clock, SystemClock
from activities.ec2_messages import Ec2Client, InstanceView
from activities.effects import act_once
from activities.errors import FinalError, NotOurs, as_application_error
from activities.host_memory import HostMemory
from activities.inventory import Node
from activities.message import Message
from activities.settings import EffectSettings

CAPACITY_BLOCK = "capacity-block"
"""ReservationType, and InstanceLifecycle, of a Capacity Block. Source: botocore, CapacityReservation."""

ACTIVE = "active"
"""State of a reservation that can be launched into. Source: botocore, CapacityReservationState."""


class Reservation(Message):
    """A Capacity Reservation as EC2 describes it. `kind` is default or capacity-block, `match` open or targeted."""

    reservation_id: str
    account: str = ""
    state: str = ""
    kind: str = "default"
    match: str = "targeted"
    instance_type: str = ""
    zone: str = ""
    total: int = 0
    available: int = 0
    ends_at: datetime | None = None


class Slot(Message):
    """What is known of the place that a node's instance has. Without `reservation` it is on-demand capacity.

    `usable_elsewhere` counts the other slots of the reservation that are free or have a node of ours that serves; `of_others` the
    instances in it that are not ours. `foreign`: another account shares it with us. `unknown` is why it could not be read.
    """

    reservation: Reservation | None = None
    lifecycle: str = ""
    usable_elsewhere: int = 0
    of_others: int = 0
    foreign: bool = False
    unknown: str = ""


class LookAtSlot(Message):
    """Ask for the slot of a node."""

    cluster: str
    node: Node


class StartNode(Message):
    """Start an instance that was stopped for a repair. Refused unless `quarantined_by` owns its quarantine."""

    node: Node
    token: str
    quarantined_by: str = ""


class NodeStarted(Message):
    """The instance is on its way up. `made_now` is False where somebody else, or an earlier attempt, had started it."""

    made_now: bool


class CapacityClient(Protocol):
    """What EC2 says of reservations. Errors as for `Ec2Client`; PreconditionFailed for a reservation that is not there."""

    def reservation(self, reservation_id: str) -> Reservation: ...


class CapacityActivities:
    """Looks at slots, and waits for them."""

    def __init__(
        self,
        ec2: Ec2Client,
        capacity: CapacityClient,
        memory: HostMemory,
        settings: EffectSettings,
        clock: Clock | None = None,
    ) -> None:
        self._ec2 = ec2
        self._capacity = capacity
        self._memory = memory
        self._settings = settings
        self._clock = clock or SystemClock()

    @activity.defn
    def look_at_slot(self, request: LookAtSlot) -> Slot:
        """Say what would be given up with a node's instance. What may not be read is unknown, with the reason."""
        with as_application_error():
            try:
                return self._slot(request)
            except FinalError as error:
                return Slot(unknown=str(error))

    @activity.defn
    def start_node(self, request: StartNode) -> NodeStarted:
        """Start a stopped instance. NoCapacity where EC2 has none to give now."""
        with as_application_error():
            node = request.node
            made = act_once(
                request.token,
                f"start of {node.name}",
                self._memory,
                happened=lambda: self._ec2.describe(node.instance_id).state in ("pending", "running"),
                act=lambda: self._start(request),
                settle_s=self._settings.settle_s,
                clock=self._clock,
            )
            return NodeStarted(made_now=made)

    def _start(self, request: StartNode) -> None:
        owner = self._ec2.describe(request.node.instance_id).tags.get(names.TAG_QUARANTINE, "")
        if request.quarantined_by and owner != request.quarantined_by:
            raise NotOurs(f"{request.node.name} is quarantined by {owner or 'nobody'}, not by {request.quarantined_by}")
        self._ec2.start(request.node.instance_id)

    def _slot(self, request: LookAtSlot) -> Slot:
        view = self._ec2.describe(request.node.instance_id)
        if not view.capacity_reservation:
            return Slot(lifecycle=view.lifecycle)
        seen = self._capacity.reservation(view.capacity_reservation)
        ours = [one for one in self._ec2.describe_cluster(request.cluster) if one.capacity_reservation == seen.reservation_id]
        others = [one for one in ours if one.instance_id != view.instance_id]
        running = [one for one in ours if one.state in ("pending", "running")]
        return Slot(
            reservation=seen,
            lifecycle=view.lifecycle,
            usable_elsewhere=seen.available + sum(map(_serves, others)),
            of_others=max(0, seen.total - seen.available - len(running)),
            foreign=bool(seen.account and view.account and seen.account != view.account),
        )


def _serves(view: InstanceView) -> bool:
    """Whether an instance is a usable one: quarantined and retired ones hold a slot and are of no use."""
    ill = view.tags.get(names.TAG_QUARANTINE) or view.tags.get(names.TAG_FATE) == names.FATE_RETIRED
    return view.state == "running" and not ill
