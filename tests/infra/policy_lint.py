"""Judges IAM policies by parliament: unknown actions, resources and conditions that do not fit, grants wider than they look."""

from __future__ import annotations

import json
import warnings

with warnings.catch_warnings():
    # It imports a module of setuptools that is on its way out.
    warnings.simplefilter("ignore")
    from parliament import analyze_policy_string

ACCEPTED = {"RESOURCE_EFFECTIVELY_STAR"}
"""Nodes come and go, so a statement is for all instances or groups that have the cluster's tag: a condition narrows it."""


def findings(policy: str) -> list[str]:
    """What is wrong with a policy, given as JSON text. One that only denies grants nothing that could be wrong."""
    if all(statement["Effect"] == "Deny" for statement in json.loads(policy)["Statement"]):
        return []
    found = analyze_policy_string(policy, include_community_auditors=True).findings
    return [f"{one.issue}: {one.detail} at {one.location}" for one in found if one.issue not in ACCEPTED]
