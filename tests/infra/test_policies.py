"""The IAM policies that are shipped, judged by a linter that knows every action of AWS; what it lets pass is looked at here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from activities import names
from infra.iam import doctor, hyperpod
from infra.iam.policies import WITHOUT_RESOURCES
from infra.iam.run_command import CANCEL
from infra.iam.run_command import WITHOUT_RESOURCES as FOLLOW
from infra.iam.table import HYPERPOD
from tests.activities.iam_endpoint import ACCOUNT
from tests.infra.policy_lint import findings

FOLDER = Path(__file__).parents[2] / "infra" / "iam"
FILES = {file.relative_to(FOLDER).as_posix(): file for file in sorted(FOLDER.rglob("*.json"))}


def statements(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["Statement"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_linter_finds_nothing(name: str) -> None:
    assert findings(FILES[name].read_text().replace(hyperpod.ARN, f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:cluster/abc")) == []


def test_the_policies_on_hyperpod_are_those_of_the_table() -> None:
    kept = {file.stem: file.read_text() for file in (FOLDER / "hyperpod").glob("*.json")}
    assert kept == {role: hyperpod.text_of(role) for role in HYPERPOD}, "write them anew: python -m infra.iam.hyperpod"


def test_the_policy_of_who_runs_doctor_is_that_of_its_module_and_changes_nothing() -> None:
    assert doctor.FILE.read_text() == doctor.text_of(), "write it anew: python -m infra.iam.doctor"
    actions = {action for statement in statements(doctor.FILE) for action in statement["Action"]}
    assert actions == {doctor.SIMULATE, doctor.LOOK_AT_QUEUE, doctor.SEND_TEST, doctor.LIST_RULES, doctor.LOOK_AT_RULE}


@pytest.mark.parametrize("name", FILES)
def test_what_is_granted_on_everything_only_looks_and_the_rest_is_the_clusters(name: str) -> None:
    for statement in statements(FILES[name]):
        if statement["Effect"] == "Deny":
            continue
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        if "*" in resources:
            # A command is cancelled by its id, which AWS limits to no resource; only who may change a node has it.
            assert set(statement["Action"]) <= {*WITHOUT_RESOURCES, *FOLLOW, doctor.LIST_RULES}, statement["Sid"]
            assert CANCEL not in statement["Action"] or name in ("run_command/aws.json", "run_command/ssh.json")
        elif any(resource.endswith(("/*", ":*")) and "/index/" not in resource for resource in resources):
            if statement["Condition"].get("Bool") == {"ec2:IsLaunchTemplateResource": "true"}:
                continue  # a launch template of the cluster names it
            equals = statement["Condition"]["StringEquals"]
            kinds = ("aws:ResourceTag", "aws:RequestTag", "ssm:resourceTag")
            assert {f"{kind}/{names.TAG_CLUSTER}" for kind in kinds} & set(equals), statement["Sid"]


@pytest.mark.parametrize(
    ("broken", "issue"),
    [
        ({"Action": ["ec2:RebootInstance"]}, "UNKNOWN_ACTION"),
        ({"Action": ["sqs:SendMessage"]}, "RESOURCE_MISMATCH"),
        ({"Condition": {"StringEquals": {"autoscaling:ResourceTag/x": "y"}}}, "UNKNOWN_CONDITION_FOR_ACTION"),
    ],
)
def test_the_linter_would_find_a_slip(broken: dict[str, Any], issue: str) -> None:
    statement = {"Effect": "Allow", "Action": ["ec2:RebootInstances"], "Resource": "arn:*:ec2:*:*:instance/*", **broken}
    (found,) = findings(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    assert found.startswith(issue)
