"""Permissions tried dry against an endpoint that enforces IAM, and against one that knows no dry runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.stub import ANY, Stubber

from activities import names
from activities.clients.permissions_boto3 import PermissionsBoto3
from activities.permissions import Permitted
from activities.settings import AwsRole, AwsSettings
from infra.iam.policies import policy_of
from infra.lab.options import REGION
from tests.activities.iam_endpoint import IamEndpoint, enforced, of_cluster, unenforced, without

ROLE = "hotspare-tried"
CHANGES = ("ec2:RebootInstances", "ec2:StopInstances", "ec2:StartInstances", "ec2:CreateTags")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[IamEndpoint]:
    with unenforced():
        running = IamEndpoint()
        key, secret = running.person("doctor")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            running.role(ROLE)
            running.launch("node-1", "worker", "c1")
            yield running
        running.stop()


@pytest.fixture
def permissions(endpoint: IamEndpoint) -> PermissionsBoto3:
    who = AwsRole(role_arn=f"arn:aws:iam::123456789012:role/{ROLE}")
    return PermissionsBoto3(AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"aws": who}), "aws")


def test_who_we_are_comes_with_the_time_of_aws(endpoint: IamEndpoint, permissions: PermissionsBoto3) -> None:
    who = permissions.identity()
    assert f"assumed-role/{ROLE}/" in who.arn
    assert who.region == REGION
    assert who.skew_s is not None
    assert abs(who.skew_s) < 30


@pytest.mark.parametrize("lacking", CHANGES)
def test_a_permission_that_lacks_is_seen_and_the_others_too_and_nothing_is_done(
    endpoint: IamEndpoint, permissions: PermissionsBoto3, lacking: str
) -> None:
    endpoint.permit(ROLE, of_cluster(without(policy_of("aws"), lacking), "c1"))
    node = endpoint.instances["node-1"]
    with enforced():
        tried = {action: permissions.try_dry(action, node, names.TAG_FATE).permitted for action in CHANGES}
    assert tried == {action: Permitted.NO if action == lacking else Permitted.YES for action in CHANGES}
    [seen] = endpoint.ec2.describe_instances(InstanceIds=[node])["Reservations"][0]["Instances"]
    assert seen["State"]["Name"] == "running"
    assert names.TAG_FATE not in {tag["Key"] for tag in seen["Tags"]}


def test_where_dry_runs_are_not_kept_to_no_call_that_changes_is_made(permissions: PermissionsBoto3) -> None:
    ec2 = permissions._client("ec2")
    with Stubber(ec2) as stub:
        stub.add_response("describe_instances", {"Reservations": []}, {"DryRun": True})
        tried = [permissions.try_dry(action, "i-001", names.TAG_FATE) for action in CHANGES]
        stub.assert_no_pending_responses()
    assert {one.permitted for one in tried} == {Permitted.UNKNOWN}


@pytest.mark.parametrize(
    ("decision", "permitted"),
    [("allowed", Permitted.YES), ("implicitDeny", Permitted.NO), ("explicitDeny", Permitted.NO)],
)
def test_iam_is_asked_about_the_role_behind_the_session(
    endpoint: IamEndpoint, permissions: PermissionsBoto3, decision: str, permitted: Permitted
) -> None:
    permissions.identity()
    with Stubber(permissions._client("iam")) as stub:
        stub.add_response(
            "simulate_principal_policy",
            {"EvaluationResults": [{"EvalActionName": "sqs:ReceiveMessage", "EvalDecision": decision}]},
            {
                "PolicySourceArn": f"arn:aws:iam::123456789012:role/{ROLE}",
                "ActionNames": ["sqs:ReceiveMessage"],
                "ResourceArns": ["arn:q"],
                "ContextEntries": ANY,
            },
        )
        tried = permissions.simulate("sqs:ReceiveMessage", "arn:q", {"aws:ResourceTag/hotspare:cluster": "c1"})
    assert tried.permitted is permitted


def test_an_iam_that_refuses_the_question_is_asked_once_and_tells_nothing(
    endpoint: IamEndpoint, permissions: PermissionsBoto3
) -> None:
    permissions.identity()
    with Stubber(permissions._client("iam")) as stub:
        stub.add_client_error("simulate_principal_policy", "AccessDenied", "not authorized: iam:SimulatePrincipalPolicy")
        tried = [permissions.simulate(action, "arn:q", {}) for action in ("sqs:ReceiveMessage", "sqs:DeleteMessage")]
        stub.assert_no_pending_responses()
    assert {one.permitted for one in tried} == {Permitted.UNKNOWN}
    assert all("iam:SimulatePrincipalPolicy" in one.said for one in tried)
