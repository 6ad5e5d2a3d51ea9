"""Managed node groups at moto's EKS endpoint, with the tags that AWS lets them have, and the calls to EKS by their names."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import urllib.parse
from typing import Any

import pytest
from moto import backends
from moto.eks.models import EKSBackend

from infra.lab.ec2_calls import AwsCall

CLUSTER = "train"
ROLE, NETWORK = "arn:aws:iam::123456789012:role/eks", {"subnetIds": ["subnet-1"], "securityGroupIds": ["sg-1"]}
REPAIR = {"enabled": True, "maxParallelNodesRepairedCount": 1}

CALLS = {
    r"Get /clusters/(?P<cluster>[^/]+)": "DescribeCluster",
    r"Get /clusters/(?P<cluster>[^/]+)/node-groups/(?P<group>[^/]+)": "DescribeNodegroup",
    r"POST /clusters/(?P<cluster>[^/]+)/node-groups/(?P<group>[^/]+)/update-config": "UpdateNodegroupConfig",
    r"POST /tags/(?P<arn>.+)": "TagResource",
    r"DELETE /tags/(?P<arn>.+)": "UntagResource",
}
"""How EKS names its REST calls. Source: Amazon EKS API reference."""


def named(call: AwsCall, environ: dict[str, Any]) -> AwsCall:
    """A call to EKS under its name, with the ARN that it is about and the keys of the tags that it writes; others as they are."""
    if call.service != "eks":
        return call
    for pattern, name in CALLS.items():
        if found := re.fullmatch(pattern, urllib.parse.unquote(call.operation)):
            keys = _tag_keys(environ)
            tags = {f"Tag.{number}.Key": key for number, key in enumerate(keys, 1)}
            return dataclasses.replace(call, operation=name, parameters={"arn": _arn(**found.groupdict()), **tags})
    return call


def tags_at(arn: str, account: str, region: str) -> dict[str, str]:
    """The tags of a cluster or node group."""
    backend: Any = backends.get_backend("eks")[account][region]
    if ":cluster/" in arn:
        return dict(backend.clusters[arn.rpartition("/")[2]].tags)
    return dict(group_of(backend, arn).tags)


def _arn(arn: str = "", cluster: str = "", group: str = "") -> str:
    if arn:
        return arn
    backend: Any = backends.get_backend("eks")["123456789012"]["us-east-1"]
    found = backend.clusters[cluster]
    return str(found.nodegroups[group].arn if group else found.arn)


def _tag_keys(environ: dict[str, Any]) -> list[str]:
    body = environ["wsgi.input"].read()
    environ["wsgi.input"] = io.BytesIO(body)
    query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
    return sorted([*(json.loads(body or b"{}").get("tags") or {}), *query.get("tagKeys", [])])


def let_groups_have_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teach moto to tag node groups too: it tags clusters only. Source: Amazon EKS API reference, TagResource."""
    monkeypatch.setattr(EKSBackend, "tag_resource", _tag)
    monkeypatch.setattr(EKSBackend, "untag_resource", _untag)


def make_cluster(client: Any, tags: dict[str, str] | None = None) -> None:
    """Make an EKS cluster without nodes."""
    client.create_cluster(name=CLUSTER, roleArn=ROLE, resourcesVpcConfig=NETWORK, tags=tags or {})


def make_group(client: Any, name: str, tags: dict[str, str], repair: dict[str, Any] | None = None) -> None:
    """Make a node group in it."""
    client.create_nodegroup(clusterName=CLUSTER, nodegroupName=name, nodeRole=ROLE, subnets=["subnet-1"], tags=tags)
    client.update_nodegroup_config(clusterName=CLUSTER, nodegroupName=name, nodeRepairConfig=repair or REPAIR)


def _tag(backend: Any, resource_arn: str, tags: dict[str, str]) -> None:
    group_of(backend, resource_arn).tags.update(tags)


def _untag(backend: Any, resource_arn: str, tag_keys: Any) -> None:
    for key in [tag_keys] if isinstance(tag_keys, str) else tag_keys:
        group_of(backend, resource_arn).tags.pop(key, None)


def group_of(backend: Any, arn: str) -> Any:
    """Find a node group by its ARN."""
    return next(group for cluster in backend.clusters.values() for group in cluster.nodegroups.values() if group.arn == arn)
