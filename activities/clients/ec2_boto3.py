"""EC2 through boto3. Calls that change something are never retried here and give up soon; looks are retried as AWS advises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError, ProfileNotFound
from botocore.parsers import ResponseParserError

from activities import names
from activities.clients.aws_session import session_of
from activities.ec2 import InstanceStatus, InstanceView
from activities.errors import (
    AccessRefused,
    BadInput,
    HotspareError,
    NoCapacity,
    PreconditionFailed,
    ProviderBusy,
    Throttled,
    UnknownNode,
)
from activities.settings import AwsSettings

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 10
"""Limits of one call, seconds. Hotspare default: together below the margin of an attempt; EC2 answers in well under a second."""

ONCE = Config(connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S, retries={"total_max_attempts": 1})
PATIENT = Config(
    connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S, retries={"mode": "standard", "total_max_attempts": 5}
)

THROTTLES = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "TooManyRequestsException"}
)
UNKNOWN_INSTANCE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
WRONG_STATE = frozenset(
    {"IncorrectInstanceState", "IncorrectState", "UnsupportedOperation", "OperationNotPermitted", "UnsupportedHibernation"}
)
REFUSED = frozenset(
    {"UnauthorizedOperation", "AuthFailure", "AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "ExpiredToken"}
)
BUSY = frozenset({"ScalingActivityInProgress", "ResourceContention"})
NO_CAPACITY = frozenset({"InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity", "ReservationCapacityExceeded"})
FOR_A_PERSON = frozenset(
    {
        "InsufficientCapacityOnHost",
        "InsufficientHostCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "InvalidCapacityReservationId.NotFound",
        "IdempotentParameterMismatch",
    }
)
"""Error codes. Sources: EC2 API reference, "Error codes for the Amazon EC2 API"; EC2 Auto Scaling API reference, "Errors"."""

NO_DATA = "insufficient-data"
"""EC2's word for a check that has no result yet; also ours where the answer leaves a check out."""


class Ec2Boto3:
    """`Ec2Client` on AWS or on an endpoint that speaks its protocol, as the worker role that the settings say.

    Credentials come from AWS's own variables and files.
    """

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        session = session_of(settings, role)
        self._read = _client(session, settings, PATIENT)
        self._change = _client(session, settings, ONCE)

    def describe(self, instance_id: str) -> InstanceView:
        with mapped(f"describe {instance_id}"):
            answer = self._read.describe_instances(InstanceIds=[instance_id])
        found = [
            _view(instance, reservation.get("OwnerId", ""))
            for reservation in answer["Reservations"]
            for instance in reservation["Instances"]
        ]
        if not found:
            raise UnknownNode(f"EC2 has no instance {instance_id}")
        return found[0]

    def describe_cluster(self, cluster: str) -> list[InstanceView]:
        with mapped(f"describe the instances of cluster {cluster}"):
            pages = self._read.get_paginator("describe_instances").paginate(
                Filters=[
                    {"Name": f"tag:{names.TAG_CLUSTER}", "Values": [cluster]},
                    {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
                ]
            )
            return [
                _view(one, reservation.get("OwnerId", ""))
                for page in pages
                for reservation in page["Reservations"]
                for one in reservation["Instances"]
            ]

    def status(self, instance_id: str) -> InstanceStatus:
        with mapped(f"read the status checks of {instance_id}"):
            answer = self._read.describe_instance_status(InstanceIds=[instance_id], IncludeAllInstances=True)
        if not answer["InstanceStatuses"]:
            raise UnknownNode(f"EC2 has no instance {instance_id}")
        seen = answer["InstanceStatuses"][0]
        return InstanceStatus(
            state=seen.get("InstanceState", {}).get("Name", ""),
            system=seen.get("SystemStatus", {}).get("Status", NO_DATA),
            instance=seen.get("InstanceStatus", {}).get("Status", NO_DATA),
        )

    def reboot(self, instance_id: str) -> None:
        with mapped(f"reboot {instance_id}"):
            self._change.reboot_instances(InstanceIds=[instance_id])

    def stop(self, instance_id: str) -> None:
        with mapped(f"stop {instance_id}"):
            self._change.stop_instances(InstanceIds=[instance_id])

    def start(self, instance_id: str) -> None:
        with mapped(f"start {instance_id}"):
            self._change.start_instances(InstanceIds=[instance_id])

    def set_tags(self, instance_id: str, tags: dict[str, str]) -> None:
        with mapped(f"tag {instance_id}"):
            self._change.create_tags(Resources=[instance_id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])

    def remove_tags(self, instance_id: str, keys: list[str]) -> None:
        with mapped(f"remove tags of {instance_id}"):
            self._change.delete_tags(Resources=[instance_id], Tags=[{"Key": key} for key in keys])

    def console_output(self, instance_id: str, *, latest: bool = False) -> str:
        with mapped(f"read the console of {instance_id}"):
            return self._read.get_console_output(InstanceId=instance_id, Latest=latest).get("Output", "")


def _client(session: boto3.session.Session, settings: AwsSettings, config: Config) -> EC2Client:
    with mapped("open the EC2 client"):
        return session.client(
            "ec2", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=config
        )


def _view(instance: InstanceTypeDef, account: str) -> InstanceView:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    return InstanceView(
        instance_id=instance["InstanceId"],
        state=instance["State"]["Name"],
        instance_type=instance.get("InstanceType", ""),
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        placement_group=instance.get("Placement", {}).get("GroupName", ""),
        image_id=instance.get("ImageId", ""),
        capacity_reservation=instance.get("CapacityReservationId", ""),
        private_ip=instance.get("PrivateIpAddress", ""),
        private_dns=instance.get("PrivateDnsName", ""),
        tags=tags,
        launched_at=instance.get("LaunchTime"),
        operator=instance.get("Operator", {}).get("Principal", ""),
        lifecycle=instance.get("InstanceLifecycle", ""),
        account=account,
    )


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Turn boto3's errors into ours."""
    try:
        yield
    except ClientError as error:
        raise _explained(what, error) from error
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise AccessRefused(
            f"EC2: {what}: {error}; check AWS_PROFILE and the other AWS variables: aws sts get-caller-identity"
        ) from error
    except (BotoCoreError, ResponseParserError) as error:  # the latter stands outside of botocore's own errors
        raise ProviderBusy(f"EC2: {what}: no clear answer: {error}") from error


def _explained(what: str, error: ClientError) -> HotspareError:
    code = error.response.get("Error", {}).get("Code", "")
    message = f"EC2: {what}: {code}: {error.response.get('Error', {}).get('Message', '')}"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLES:
        return Throttled(message)
    if code in UNKNOWN_INSTANCE:
        return UnknownNode(message)
    if code in NO_CAPACITY and "spread placement group" not in message.lower():  # a full one stays full
        return NoCapacity(message)
    if code in WRONG_STATE or code in FOR_A_PERSON or code in NO_CAPACITY:
        return PreconditionFailed(message)
    if code in REFUSED:
        return AccessRefused(f"{message}; infra/iam has the policy that each worker role needs (docs/security.md)")
    return ProviderBusy(message) if status >= 500 or code in BUSY else BadInput(message)
