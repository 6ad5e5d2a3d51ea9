"""Capacity Reservations and Capacity Blocks through boto3. They are only read here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from activities.capacity import Reservation
from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import PATIENT, mapped
from activities.errors import PreconditionFailed
from activities.settings import AwsSettings

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef


class CapacityBoto3:
    """`CapacityClient` on AWS or on an endpoint that speaks its protocol, as the worker role that the settings say."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        session = session_of(settings, role)
        with mapped("open the EC2 client"):
            self._read = session.client(
                "ec2", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=PATIENT
            )

    def reservation(self, reservation_id: str) -> Reservation:
        with mapped(f"describe the reservation {reservation_id}"):
            seen = self._read.describe_capacity_reservations(CapacityReservationIds=[reservation_id])["CapacityReservations"]
        if not seen:
            raise PreconditionFailed(f"EC2 has no Capacity Reservation {reservation_id}")
        return _reservation(seen[0])


def _reservation(seen: CapacityReservationTypeDef) -> Reservation:
    return Reservation(
        reservation_id=seen["CapacityReservationId"],
        account=seen.get("OwnerId", ""),
        state=seen.get("State", ""),
        kind=seen.get("ReservationType", "default"),
        match=seen.get("InstanceMatchCriteria", "targeted"),
        instance_type=seen.get("InstanceType", ""),
        zone=seen.get("AvailabilityZone", ""),
        total=seen.get("TotalInstanceCount", 0),
        available=seen.get("AvailableInstanceCount", 0),
        ends_at=seen.get("EndDate"),
    )
