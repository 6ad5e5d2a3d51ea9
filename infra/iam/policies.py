"""Makes the IAM policies from the table: `python -m infra.iam.policies` writes one JSON file a role beside this one.

They hold for the instances of one cluster: put its name where they say CLUSTER.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from activities.names import TAG_CLUSTER
from infra.iam.table import (
    DESCRIBE,
    EKS_CLUSTER,
    ENTER,
    EXIT,
    GROUPS,
    MEMBERS,
    NODE_GROUP,
    PAUSE_REPAIR,
    PERMISSIONS,
    RECEIVE,
    RESERVATIONS,
    STATUS,
    TAG,
    TAG_GROUP,
    TAGS_OF_GROUPS,
    TAGS_WRITTEN,
    TAKE_OFF,
    UNTAG,
    UNTAG_GROUP,
    actions_of,
)

CLUSTER = "CLUSTER"
"""Stands for the cluster's name."""

WITHOUT_RESOURCES = (DESCRIBE, STATUS, MEMBERS, GROUPS, RESERVATIONS)
"""Actions that AWS grants for all instances and groups or none. Source: Service Authorization Reference, Amazon EC2 and Amazon
EC2 Auto Scaling, "Resource types"."""

ON_GROUPS = (ENTER, EXIT)
"""Actions on an Auto Scaling group, which is the cluster's when it has the cluster's tag, as its instances have."""

ON_NODE_GROUPS, TAGS_ON_NODE_GROUPS = (NODE_GROUP, PAUSE_REPAIR), (TAG_GROUP, UNTAG_GROUP)
"""Actions on a managed node group, which is the cluster's by its tag. Source: Service Authorization Reference, "Amazon EKS"."""

OURS = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": CLUSTER}}
INSTANCES = "arn:*:ec2:*:*:instance/*"
NODE_GROUPS, KUBERNETES = "arn:*:eks:*:*:nodegroup/*", "arn:*:eks:*:*:cluster/*"
QUEUES = "arn:*:sqs:*:*:*"
AUTO_SCALING_GROUPS = "arn:*:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*"


def policy_of(role: str) -> dict[str, Any]:
    """Return the policy of a role. One that needs nothing is denied everything, so that it is seen to need nothing."""
    actions = actions_of(role)
    statements = []
    if looks := [action for action in actions if action in WITHOUT_RESOURCES]:
        statements.append({"Sid": "LookAtInstances", "Effect": "Allow", "Action": looks, "Resource": "*"})
    if on_nodes := [action for action in actions if action.startswith("ec2:") and action not in (*WITHOUT_RESOURCES, TAG, UNTAG)]:
        statements.append(_on_nodes("NodesOfTheCluster", on_nodes, OURS))
    for sid, chosen, resource in (
        ("GroupsOfTheCluster", ON_GROUPS, AUTO_SCALING_GROUPS),
        ("NodeGroupsOfTheCluster", ON_NODE_GROUPS, NODE_GROUPS),
        ("KubernetesOfTheCluster", (EKS_CLUSTER,), KUBERNETES),
        ("EventsOfTheCluster", (RECEIVE, TAKE_OFF), QUEUES),
    ):
        if on_others := [action for action in actions if action in chosen]:
            statements.append({**_on_nodes(sid, on_others, OURS), "Resource": resource})
    if tagging_groups := [action for action in actions if action in TAGS_ON_NODE_GROUPS]:
        keys = {"ForAllValues:StringLike": {"aws:TagKeys": list(TAGS_OF_GROUPS)}, "Null": {"aws:TagKeys": "false"}}
        statements.append({**_on_nodes("TagsOnNodeGroups", tagging_groups, {**OURS, **keys}), "Resource": NODE_GROUPS})
    if tagging := [action for action in actions if action in (TAG, UNTAG)]:
        keys = {"ForAllValues:StringEquals": {"aws:TagKeys": list(TAGS_WRITTEN[role])}, "Null": {"aws:TagKeys": "false"}}
        statements.append(_on_nodes("TagsOfHotspare", tagging, {**OURS, **keys}))
    nothing = {"Sid": "NeedsNothingOnAws", "Effect": "Deny", "Action": "*", "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": statements or [nothing]}


def _on_nodes(sid: str, actions: list[str], condition: dict[str, Any]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": INSTANCES, "Condition": condition}


def text_of(role: str) -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(role), indent=2) + "\n"


def file_of(role: str) -> Path:
    """Where the policy of a role is kept."""
    return Path(__file__).with_name(f"{role}.json")


if __name__ == "__main__":
    for name in PERMISSIONS:
        file_of(name).write_text(text_of(name))
