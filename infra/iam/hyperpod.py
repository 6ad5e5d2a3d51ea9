"""Permissions on a SageMaker HyperPod cluster, by worker role: `python -m infra.iam.hyperpod` writes hyperpod/ROLE.json.

They are policies beside those of the table, needed only where aws.provider is "hyperpod": put the cluster's ARN where they say
HYPERPOD_CLUSTER_ARN.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.iam.table import HYPERPOD

ARN = "HYPERPOD_CLUSTER_ARN"
"""Stands for the ARN of the HyperPod cluster."""


def policy_of(role: str) -> dict[str, Any]:
    """Return the policy of a role on the one cluster."""
    actions = sorted(f"sagemaker:{operation}" for operation in HYPERPOD[role])
    return {
        "Version": "2012-10-17",
        "Statement": [{"Sid": "NodesOfHyperPod", "Effect": "Allow", "Action": actions, "Resource": ARN}],
    }


def text_of(role: str) -> str:
    """The policy as its file has it."""
    return json.dumps(policy_of(role), indent=2) + "\n"


def file_of(role: str) -> Path:
    """Where the policy of a role is kept."""
    return Path(__file__).with_name("hyperpod") / f"{role}.json"


if __name__ == "__main__":
    for name in HYPERPOD:
        file_of(name).parent.mkdir(exist_ok=True)
        file_of(name).write_text(text_of(name))
