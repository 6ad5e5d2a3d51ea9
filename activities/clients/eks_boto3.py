"""Amazon EKS's managed node groups through boto3. Calls that change something are never retried here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import ONCE, PATIENT, mapped
from activities.eks_repair import NodeGroup
from activities.errors import ProviderBusy
from activities.settings import AwsSettings

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

BUSY = "ResourceInUseException"
"""The group is being updated. Source: Amazon EKS API reference, UpdateNodegroupConfig, "Errors"."""


class EksBoto3:
    """`EksClient` on AWS or on an endpoint that speaks its protocol, as the worker role that the settings say."""

    def __init__(self, settings: AwsSettings, role: str = "") -> None:
        session = session_of(settings, role)
        self._read = _client(session, settings, PATIENT)
        self._change = _client(session, settings, ONCE)

    def node_group(self, cluster: str, group: str) -> NodeGroup:
        with mapped(f"describe node group {group} of {cluster}"):
            seen = self._read.describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"]
        issues = (seen.get("health") or {}).get("issues") or []
        said = tuple(": ".join(filter(None, (one.get("code", ""), one.get("message", "")))) for one in issues)
        return NodeGroup(seen["nodegroupArn"], dict(seen.get("nodeRepairConfig") or {}), dict(seen.get("tags") or {}), said)

    def set_repair(self, cluster: str, group: str, config: dict[str, Any]) -> None:
        with _mapped(f"change node auto repair of node group {group} of {cluster}"):
            self._change.update_nodegroup_config(clusterName=cluster, nodegroupName=group, nodeRepairConfig=config)

    def tag(self, arn: str, tags: dict[str, str]) -> None:
        with _mapped(f"tag {arn}"):
            self._change.tag_resource(resourceArn=arn, tags=tags)

    def untag(self, arn: str, keys: list[str]) -> None:
        with _mapped(f"remove tags of {arn}"):
            self._change.untag_resource(resourceArn=arn, tagKeys=keys)


def _client(session: boto3.session.Session, settings: AwsSettings, config: Config) -> Any:
    with mapped("open the EKS client"):
        return session.client(
            "eks", region_name=settings.region or None, endpoint_url=settings.endpoint_url or None, config=config
        )


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    with mapped(what):
        try:
            yield
        except ClientError as error:
            if error.response["Error"]["Code"] == BUSY:
                raise ProviderBusy(f"{what}: {error.response['Error']['Message']}") from error
            raise
