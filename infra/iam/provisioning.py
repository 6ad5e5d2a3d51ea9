"""Permissions to launch spares and end retired nodes: `python -m infra.iam.provisioning` writes provisioning/aws.json.

A policy beside that of role aws, needed only where provision.templates names launch templates or policy.renew_retired is set.
Templates, reservations that are launched into, and Auto Scaling groups carry the cluster's tag; what else a launch uses has to
be named by the template. An instance profile in it needs iam:PassRole on its role too, which is not in here: only the account
knows that role.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from activities.names import TAG_CLUSTER
from infra.iam.policies import AUTO_SCALING_GROUPS, CLUSTER, OURS
from infra.iam.table import DESCRIBE, GROUPS, MEMBERS, TAG

RUN, TERMINATE = "ec2:RunInstances", "ec2:TerminateInstances"
END_MEMBER = "autoscaling:TerminateInstanceInAutoScalingGroup"

PERMISSIONS: dict[str, tuple[str, ...]] = {
    "launch_spare": (RUN,),
    "await_running": (DESCRIBE,),
    "terminate_node": (DESCRIBE, TERMINATE),
    "look_at_owner": (DESCRIBE, MEMBERS, GROUPS),
    "give_up_slot": (DESCRIBE, MEMBERS, GROUPS, END_MEMBER),
    "await_successor": (DESCRIBE, GROUPS),
}
"""Activity of role aws -> actions."""

MADE = ("instance", "volume", "network-interface")
"""What a launch makes; it is tagged at once with the cluster's name."""

NAMED = ("image", "snapshot", "subnet", "security-group", "key-pair", "placement-group")
"""What a launch uses. Source: Service Authorization Reference, Amazon EC2, RunInstances, "Resource types"."""

PUBLIC = ("image", "snapshot")
"""Kinds whose ARN names no account. Source: Service Authorization Reference, Amazon EC2, "Resource types"."""

ASKED = {"StringEquals": {f"aws:RequestTag/{TAG_CLUSTER}": CLUSTER}}


def policy_of() -> dict[str, Any]:
    """Return the policy."""
    at_launch = {"StringEquals": {**ASKED["StringEquals"], "ec2:CreateAction": "RunInstances"}}
    statements = [
        {"Sid": "LookAtInstances", "Effect": "Allow", "Action": [GROUPS, MEMBERS, DESCRIBE], "Resource": "*"},
        _allowed("EndNodesOfTheCluster", TERMINATE, ("instance",), OURS),
        {**_allowed("EndMembersOfItsGroups", END_MEMBER, (), OURS), "Resource": [AUTO_SCALING_GROUPS]},
        _allowed("LaunchForTheCluster", RUN, MADE, ASKED),
        _allowed("LaunchFromItsTemplates", RUN, ("launch-template", "capacity-reservation"), OURS),
        _allowed("LaunchWithWhatTheyName", RUN, NAMED, {"Bool": {"ec2:IsLaunchTemplateResource": "true"}}),
        _allowed("TagWhatIsLaunched", TAG, MADE, at_launch),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def _allowed(sid: str, action: str, kinds: tuple[str, ...], condition: dict[str, Any]) -> dict[str, Any]:
    resources = [f"arn:*:ec2:*:{'' if kind in PUBLIC else '*'}:{kind}/*" for kind in kinds]
    return {"Sid": sid, "Effect": "Allow", "Action": [action], "Resource": resources, "Condition": condition}


def text_of() -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(), indent=2) + "\n"


FILE = Path(__file__).with_name("provisioning") / "aws.json"

if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text_of())
