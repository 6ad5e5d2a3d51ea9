"""Judges IAM policies by parliament: unknown actions, resources and conditions that do not fit, grants wider than they look."""

from __future__ import annotations

import json
import warnings
from functools import cache

from botocore.loaders import create_loader

with warnings.catch_warnings():
    # It imports a module of setuptools that is on its way out.
    warnings.simplefilter("ignore")
    from parliament import analyze_policy_string  # type: ignore[import-untyped]
    from parliament.finding import Finding  # type: ignore[import-untyped]

SDK = create_loader()

ACCEPTED = {"RESOURCE_EFFECTIVELY_STAR"}
"""Nodes come and go, so a statement is for all instances or groups that have the cluster's tag: a condition narrows it."""

IN_PARTS = {"ec2:RunInstances", "ssm:SendCommand"}
"""Actions on several kinds of resources at once, which our policies allow in one statement a kind, each under its condition."""


def findings(policy: str) -> list[str]:
    """What is wrong with a policy, given as JSON text. One that only denies grants nothing that could be wrong."""
    if all(statement["Effect"] == "Deny" for statement in json.loads(policy)["Statement"]):
        return []
    found = analyze_policy_string(policy, include_community_auditors=True).findings
    return [f"{one.issue}: {one.detail} at {one.location}" for one in found if not _is_well(one)]


def _is_well(one: Finding) -> bool:
    if one.issue == "RESOURCE_MISMATCH":
        return {mismatch["action"] for mismatch in one.detail} <= IN_PARTS
    if one.issue == "UNKNOWN_ACTION":  # actions newer than its tables: the SDK knows them
        service, operation = str(one.detail).removeprefix("Unknown action ").split(":")
        return service in SDK.list_available_services("service-2") and operation in _operations(service)
    return one.issue in ACCEPTED


@cache
def _operations(service: str) -> frozenset[str]:
    return frozenset(SDK.load_service_model(service, "service-2")["operations"])
