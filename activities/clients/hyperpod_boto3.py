"""SageMaker HyperPod through boto3, also as an `Ec2Client`: EC2's own calls do not reach its instances.

An instance of HyperPod cannot be tagged. Our tags of a node are tags of its cluster, with the instance id at the end of the key.
AWS allows 50 of them, so about 20 nodes can be quarantined, leased or otherwise marked at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from activities import names
from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import ONCE, PATIENT, mapped
from activities.ec2_messages import InstanceStatus, InstanceView
from activities.errors import CapabilityMissing, PreconditionFailed, UnknownNode
from activities.hyperpod import BATCH, NodeRefused, error_of
from activities.settings import AwsSettings

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

OPERATOR = "sagemaker.amazonaws.com"

STATES = {
    "Running": ("running", "ok"),
    "DeepHealthCheckInProgress": ("running", "initializing"),
    "SystemUpdating": ("running", "initializing"),
    "Failure": ("running", "impaired"),
    "Pending": ("pending", "initializing"),
    "AttachInProgress": ("pending", "initializing"),
    "DetachInProgress": ("shutting-down", "not-applicable"),
    "ShuttingDown": ("shutting-down", "not-applicable"),
    "NotFound": ("terminated", "not-applicable"),
}
"""InstanceStatus of HyperPod -> state and status check as EC2 words them. Source of the first: SageMaker API reference,
ClusterInstanceStatusDetails; what they mean for a repair is Hotspare's reading."""

GONE = ("ResourceNotFound", "ResourceNotFoundException")
TOO_MANY = "ResourceLimitExceeded"
"""Error codes. Source: Amazon SageMaker API reference, AddTags and DescribeClusterNode, "Errors"."""

_KEY = re.compile(rf"(?P<tag>{names.PREFIX}:[a-z-]+):(?P<instance>i-[0-9a-f]+)")
_HOST = re.compile(r"ip-(\d+)-(\d+)-(\d+)-(\d+)\b")


class HyperPodBoto3:
    """`Ec2Client` and `HyperPodClient` over one HyperPod cluster, as the worker role that the settings say."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        if not settings.hyperpod_cluster:
            raise CapabilityMissing('aws.provider = "hyperpod" needs aws.hyperpod_cluster, the name or ARN of the cluster')
        session = session_of(settings, role)
        self._cluster, self._groups = settings.hyperpod_cluster, settings.hyperpod_groups
        with mapped("open the SageMaker client"):
            self._read = _client(session, settings, PATIENT)
            self._change = _client(session, settings, ONCE)
        self._arn = ""

    def describe(self, instance_id: str) -> InstanceView:
        with _mapped(f"describe {instance_id}"):
            seen = self._read.describe_cluster_node(ClusterName=self._cluster, NodeId=instance_id)["NodeDetails"]
        return self._view(seen, self._marks().get(instance_id, {}))

    def describe_cluster(self, cluster: str) -> list[InstanceView]:
        with _mapped(f"list the nodes of {self._cluster}"):
            pages = self._read.get_paginator("list_cluster_nodes").paginate(ClusterName=self._cluster)
            seen = [node for page in pages for node in page["ClusterNodeSummaries"]]
        marks = self._marks()
        views = [self._view(node, marks.get(node["InstanceId"], {})) for node in seen]
        return [view for view in views if view.state not in ("shutting-down", "terminated")]

    def status(self, instance_id: str) -> InstanceStatus:
        with _mapped(f"describe {instance_id}"):
            seen = self._read.describe_cluster_node(ClusterName=self._cluster, NodeId=instance_id)["NodeDetails"]
        state, check = STATES.get(seen["InstanceStatus"]["Status"], ("pending", "insufficient-data"))
        return InstanceStatus(state=state, system=check, instance=check)

    def reboot(self, instance_id: str) -> None:
        for refused in self.reboot_nodes([instance_id]):
            raise error_of(refused, "reboot")

    def stop(self, instance_id: str) -> None:
        raise CapabilityMissing(f"{instance_id}: HyperPod stops no instance; it reboots and replaces")

    def start(self, instance_id: str) -> None:
        raise CapabilityMissing(f"{instance_id}: HyperPod starts no instance; it reboots and replaces")

    def set_tags(self, instance_id: str, tags: dict[str, str]) -> None:
        added = [{"Key": f"{key}:{instance_id}", "Value": value} for key, value in tags.items()]
        with _mapped(f"note tags of {instance_id} on {self._cluster}"):
            self._change.add_tags(ResourceArn=self._resource(), Tags=added)

    def remove_tags(self, instance_id: str, keys: list[str]) -> None:
        with _mapped(f"remove tags of {instance_id} from {self._cluster}"):
            self._change.delete_tags(ResourceArn=self._resource(), TagKeys=[f"{key}:{instance_id}" for key in keys])

    def console_output(self, instance_id: str, *, latest: bool = False) -> str:
        raise CapabilityMissing(f"{instance_id}: HyperPod shows no console of its instances")

    def node_recovery(self) -> str:
        """As `HyperPodClient`."""
        with _mapped(f"describe {self._cluster}"):
            return str(self._read.describe_cluster(ClusterName=self._cluster).get("NodeRecovery", ""))

    def reboot_nodes(self, instance_ids: Sequence[str]) -> list[NodeRefused]:
        """As `HyperPodClient`."""
        return self._in_batches("reboot", self._change.batch_reboot_cluster_nodes, instance_ids)

    def replace_nodes(self, instance_ids: Sequence[str]) -> list[NodeRefused]:
        """As `HyperPodClient`."""
        return self._in_batches("replace", self._change.batch_replace_cluster_nodes, instance_ids)

    def _in_batches(self, what: str, call: Callable[..., Any], instance_ids: Sequence[str]) -> list[NodeRefused]:
        """Make the calls. That some nodes were refused is no exception of boto3: the answer has to be read."""
        refused: list[NodeRefused] = []
        for first in range(0, len(instance_ids), BATCH):
            some = list(instance_ids[first : first + BATCH])
            with _mapped(f"{what} {', '.join(some)}"):
                failed = call(ClusterName=self._cluster, NodeIds=some).get("Failed", [])
            refused += [
                NodeRefused(instance_id=one["NodeId"], code=one["ErrorCode"], message=one.get("Message", "")) for one in failed
            ]
        return refused

    def _marks(self) -> dict[str, dict[str, str]]:
        with _mapped(f"read the tags of {self._cluster}"):
            pages = self._read.get_paginator("list_tags").paginate(ResourceArn=self._resource())
            tags = [tag for page in pages for tag in page["Tags"]]
        found: dict[str, dict[str, str]] = {}
        for tag in tags:
            if match := _KEY.fullmatch(tag["Key"]):
                found.setdefault(match["instance"], {})[match["tag"]] = tag["Value"]
        return found

    def _resource(self) -> str:
        if not self._arn:
            with _mapped(f"describe {self._cluster}"):
                self._arn = str(self._read.describe_cluster(ClusterName=self._cluster)["ClusterArn"])
        return self._arn

    def _view(self, node: dict[str, Any], marks: dict[str, str]) -> InstanceView:
        dns = node.get("PrivateDnsHostname", "")
        address = _HOST.match(dns)
        role = self._groups.get(node.get("InstanceGroupName", ""), names.ROLE_WORKER)
        return InstanceView(
            instance_id=node["InstanceId"],
            state=STATES.get(node["InstanceStatus"]["Status"], ("pending", ""))[0],
            instance_type=node.get("InstanceType", "").removeprefix("ml."),
            zone=node.get("Placement", {}).get("AvailabilityZone", ""),
            private_ip=node.get("PrivatePrimaryIp", "") or (".".join(address.groups()) if address else ""),
            private_dns=dns,
            tags={names.TAG_ROLE: role, **marks},
            launched_at=node.get("LaunchTime"),
            operator=OPERATOR,
        )


def _client(session: boto3.session.Session, settings: AwsSettings, config: Config) -> Any:
    return session.client(
        "sagemaker", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=config
    )


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    with mapped(f"HyperPod: {what}"):
        try:
            yield
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
            if code in GONE:
                raise UnknownNode(f"HyperPod: {what}: {message}") from error
            if code == TOO_MANY:
                raise PreconditionFailed(f"HyperPod: {what}: {message}; a cluster has 50 tags at most") from error
            raise
