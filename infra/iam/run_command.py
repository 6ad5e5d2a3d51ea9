"""Permissions for node access by Run Command, by worker role: `python -m infra.iam.run_command` writes run_command/ROLE.json.

They are policies beside those of the table in `infra.iam.table`, needed only where access.kind is "ssm": put the cluster's name
where they say CLUSTER. A role may send two documents or one, to nodes of the cluster, and nothing else: not the documents of AWS
that run any text. Sources: Service Authorization Reference, "AWS Systems Manager"; Systems Manager User Guide, "Restricting Run
Command access based on tags".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from activities.names import TAG_CLUSTER
from infra.iam.policies import CLUSTER, INSTANCES

SEND, RESULT = "ssm:SendCommand", "ssm:GetCommandInvocation"
AGENT, CANCEL = "ssm:DescribeInstanceInformation", "ssm:CancelCommand"

WITHOUT_RESOURCES = (AGENT, CANCEL, RESULT)
"""Actions that AWS grants for all commands of an account or none."""

DOCUMENT, LOOK_DOCUMENT = f"hotspare-{CLUSTER}-node", f"hotspare-{CLUSTER}-node-look"
"""Names of the documents, as Terraform makes them: the one that may change a node, the one that only looks."""

LOOKS, CHANGES = (SEND, RESULT, AGENT), (SEND, RESULT, AGENT, CANCEL)

PERMISSIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "aws": (CHANGES, (DOCUMENT, LOOK_DOCUMENT)),
    "ssh": (CHANGES, (DOCUMENT, LOOK_DOCUMENT)),
    "intake": (LOOKS, (LOOK_DOCUMENT,)),
    "observe": (LOOKS, (LOOK_DOCUMENT,)),
}
"""Role -> actions, and the documents that it sends. Who only looks cancels nothing: its commands end by their own deadline.

`aws` reads boot ids before and after a restart, and has the rung of the soft reboot; `intake` asks a node for its boot when it
delivers a report that waited.
"""


def policy_of(role: str) -> dict[str, Any]:
    """Return the policy of a role."""
    actions, documents = PERMISSIONS[role]
    ours = {"StringEquals": {f"ssm:resourceTag/{TAG_CLUSTER}": CLUSTER}}
    statements = [
        {
            "Sid": "FollowCommands",
            "Effect": "Allow",
            "Action": sorted(set(actions) & set(WITHOUT_RESOURCES)),
            "Resource": "*",
        },
        {
            "Sid": "SendTheseDocuments",
            "Effect": "Allow",
            "Action": [SEND],
            "Resource": [f"arn:*:ssm:*:*:document/{name}" for name in documents],
        },
        {"Sid": "ToNodesOfTheCluster", "Effect": "Allow", "Action": [SEND], "Resource": INSTANCES, "Condition": ours},
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def text_of(role: str) -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(role), indent=2) + "\n"


def file_of(role: str) -> Path:
    """Where the policy of a role is kept."""
    return Path(__file__).with_name("run_command") / f"{role}.json"


if __name__ == "__main__":
    for name in PERMISSIONS:
        file_of(name).parent.mkdir(exist_ok=True)
        file_of(name).write_text(text_of(name))
