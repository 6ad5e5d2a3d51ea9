"""Capacity Reservations of the lab, which moto has not: slots that are taken, cleaned and free, shared with other launchers.

A slot that an instance has left is cleaned before it can be launched into again; one that is full refuses a start and a launch.
Other launchers that wait for a slot take it as soon as it is free, before anybody of the cluster can.
Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html. Left out: EC2 terminates what runs in a
Capacity Block from 30 minutes before its end; here it runs on.
"""

from __future__ import annotations

import re
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from moto.core.models import DEFAULT_ACCOUNT_ID

from infra.lab.capacity import LabClock
from infra.lab.ec2_calls import Answer, AwsCall, error
from infra.lab.moto_instances import state_of
from infra.lab.options import REGION

HOLDS_SLOT = ("pending", "running", "stopping", "shutting-down")
"""States in which an instance takes its slot."""

TARGET = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
"""Parameter of RunInstances that names the reservation. Source: EC2 API reference, CapacityReservationTarget."""

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_LEAVES = ("StopInstances", "TerminateInstances", "TerminateInstanceInAutoScalingGroup")


@dataclass
class LabReservation:
    """One reservation. `others` are slots that somebody else has taken, `rivals` launches of others that wait for a free one;
    `members` the instances launched into it."""

    reservation_id: str
    total: int
    instance_type: str = "p5.48xlarge"
    match: str = "targeted"
    kind: str = "default"
    account: str = DEFAULT_ACCOUNT_ID
    ends_at: datetime | None = None
    others: int = 0
    rivals: int = 0
    cleaning_s: float = 0.0
    members: set[str] = field(default_factory=set)
    cleaned_at: dict[str, float] = field(default_factory=dict)
    clock: LabClock = field(default_factory=LabClock)

    def free(self) -> int:
        """Slots that can be launched into now, after the others who wait have taken theirs."""
        taken = sum(state_of(one) in HOLDS_SLOT or self._is_cleaned(one) for one in self.members)
        free = max(0, self.total - self.others - taken)
        won = min(free, self.rivals)
        self.others, self.rivals = self.others + won, self.rivals - won
        return free - won

    def _is_cleaned(self, instance_id: str) -> bool:
        return self.clock.now() < self.cleaned_at.get(instance_id, float("-inf"))


class Reservations:
    """All reservations, by id. Called from server threads."""

    def __init__(self, clock: LabClock | None = None) -> None:
        self._lock = threading.Lock()
        self._clock = clock or LabClock()
        self.by_id: dict[str, LabReservation] = {}

    def add(self, reservation: LabReservation, *instance_ids: str) -> LabReservation:
        """Make a reservation, and have instances that are there run in it."""
        with self._lock:
            reservation.clock = self._clock
            reservation.members |= set(instance_ids)
            self.by_id[reservation.reservation_id] = reservation
        return reservation

    def refusal(self, call: AwsCall) -> Answer | None:
        """Refuse a start or a launch into a reservation that has no free slot."""
        if call.operation == "RunInstances" and (wanted := call.parameters.get(TARGET)):
            held = self.by_id.get(wanted)
            if held is None:
                return error(400, "InvalidCapacityReservationId.NotFound", f"The capacity reservation {wanted} does not exist")
            return None if held.free() else _full(held)
        if call.operation == "StartInstances":
            for instance_id in call.instance_ids:
                held = self._of(instance_id)
                if held is not None and state_of(instance_id) == "stopped" and not held.free():
                    return _full(held)
        return None

    def carried_out(self, call: AwsCall, instance_ids: tuple[str, ...]) -> None:
        """Take note of a call that was carried out: what left a slot, and what took one."""
        wanted = call.parameters.get(TARGET)
        with self._lock:
            if call.operation == "RunInstances" and wanted in self.by_id:
                self.by_id[wanted].members |= set(instance_ids)
            for instance_id in instance_ids if call.operation in _LEAVES else ():
                held = self._of(instance_id)
                if held is not None:
                    held.cleaned_at[instance_id] = self._clock.now() + held.cleaning_s

    def describe(self, call: AwsCall) -> Answer:
        """The answer to DescribeCapacityReservations."""
        wanted = {value for key, value in call.parameters.items() if key.startswith("CapacityReservationId")}
        if unknown := sorted(wanted - set(self.by_id)):
            said = f"The capacity reservation {unknown[0]} does not exist"
            return error(400, "InvalidCapacityReservationId.NotFound", said)
        rows = "".join(_row(held) for held in self.by_id.values() if not wanted or held.reservation_id in wanted)
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<DescribeCapacityReservationsResponse xmlns="{_NAMESPACE}">'
            f"<requestId>{uuid.uuid4()}</requestId><capacityReservationSet>{rows}</capacityReservationSet>"
            "</DescribeCapacityReservationsResponse>"
        )
        return Answer(200, text.encode())

    def shown(self, answer: Answer) -> Answer:
        """The answer to DescribeInstances, in which each instance names its reservation."""
        if not self.by_id:
            return answer

        def with_reservation(found: re.Match[bytes]) -> bytes:
            held = self._of(found[1].decode())
            named = f"<capacityReservationId>{held.reservation_id}</capacityReservationId>" if held else ""
            return found[0] + named.encode()

        body = re.sub(rb"<instanceId>(i-[0-9a-f]+)</instanceId>(?=\s*<imageId>)", with_reservation, answer.body)
        headers = tuple((key, str(len(body)) if key.lower() == "content-length" else value) for key, value in answer.headers)
        return Answer(answer.status, body, headers)

    def concerns(self, call: AwsCall) -> bool:
        """Whether a start or a launch is one into a reservation."""
        return bool(call.parameters.get(TARGET)) or any(self._of(one) is not None for one in call.instance_ids)

    def _of(self, instance_id: str) -> LabReservation | None:
        return next((held for held in list(self.by_id.values()) if instance_id in held.members), None)


def _full(held: LabReservation) -> Answer:
    said = f"The requested capacity is not available in the reservation {held.reservation_id}: {held.total} slots, none free"
    return error(400, "ReservationCapacityExceeded", said)


def _row(held: LabReservation) -> str:
    end = f"<endDate>{held.ends_at.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%S.000Z')}</endDate>" if held.ends_at else ""
    return (
        f"<item><capacityReservationId>{held.reservation_id}</capacityReservationId><ownerId>{held.account}</ownerId>"
        f"<instanceType>{held.instance_type}</instanceType><availabilityZone>{REGION}a</availabilityZone>"
        f"<totalInstanceCount>{held.total}</totalInstanceCount><availableInstanceCount>{held.free()}</availableInstanceCount>"
        f"<state>active</state><instanceMatchCriteria>{held.match}</instanceMatchCriteria>"
        f"<reservationType>{held.kind}</reservationType>{end}"
        f"<endDateType>{'limited' if held.ends_at else 'unlimited'}</endDateType></item>"
    )
