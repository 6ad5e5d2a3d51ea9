"""Permissions to run `hotspare doctor`, beside those of looking: `python -m infra.iam.doctor` writes people/doctor.json.

Each of them turns a line that cannot be told into one that is; none is needed. Put the cluster's name where the file says
CLUSTER. A message that is sent to the queue is a test event: the intake observes it, and does nothing for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.iam.policies import CLUSTER, OURS, QUEUES

SIMULATE = "iam:SimulatePrincipalPolicy"
LOOK_AT_QUEUE, SEND_TEST = "sqs:GetQueueAttributes", "sqs:SendMessage"
LIST_RULES, LOOK_AT_RULE = "events:ListRuleNamesByTarget", "events:DescribeRule"

ROLES = f"arn:*:iam::*:role/hotspare-{CLUSTER}-*"
"""The worker roles, as Terraform names them."""

FILE = Path(__file__).with_name("people") / "doctor.json"


def policy_of() -> dict[str, Any]:
    """Return the policy."""
    statements = [
        {"Sid": "SeeWhatTheRolesMay", "Effect": "Allow", "Action": [SIMULATE], "Resource": ROLES},
        {
            "Sid": "TryTheEventsOfTheCluster",
            "Effect": "Allow",
            "Action": [LOOK_AT_QUEUE, SEND_TEST],
            "Resource": QUEUES,
            "Condition": OURS,
        },
        {"Sid": "FindTheRules", "Effect": "Allow", "Action": [LIST_RULES], "Resource": "*"},
        {
            "Sid": "LookAtTheRules",
            "Effect": "Allow",
            "Action": [LOOK_AT_RULE],
            "Resource": f"arn:*:events:*:*:rule/hotspare-{CLUSTER}-*",
        },
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def text_of() -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text_of())
