"""What doctor wants to be permitted on AWS, by mode, role and what is there; and how it tells what is refused or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from activities.clients.fake_permissions import FakePermissions
from activities.inventory import Node
from activities.owners import Owner
from activities.permissions import Identity, Permitted, Tried
from activities.settings import AwsRole, AwsSettings, EvidenceSettings, ProvisionSettings
from activities.settings_jobs import KubernetesSettings
from checks.model import Verdict
from tests.workers.fakes import node
from workers.cli.health import Line
from workers.cli.health_aws import check_aws, clock_line, permission_lines, resource_of, wanted_by
from workers.sections import IntakeSettings
from workers.settings import Settings
from workflows.decisions.settings import Mode, PolicySettings

ACT = PolicySettings(mode=Mode.ACT)
NODES = [node(1), node(2)]
QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/blue-events"


class Wired:
    """A wiring of which only permissions are asked for, the same for all credentials."""

    def __init__(self, permissions: FakePermissions) -> None:
        self.permissions = lambda credentials: permissions


def actions(settings: Settings, credentials: str = "", nodes: Sequence[Node] = NODES) -> set[str]:
    """The names of the actions that are wanted."""
    return {one.action for one in wanted_by(settings, credentials, nodes)}


async def told(permissions: FakePermissions, **more: Any) -> dict[str, Line]:
    """Doctor's lines by part; of several of one part the worst."""
    lines = await check_aws(Settings(policy=ACT, **more), Wired(permissions), NODES)  # type: ignore[arg-type]
    return {line.part: line for line in sorted(lines, key=lambda line: line.verdict.exit_status)}


def test_while_the_cluster_is_observed_nothing_that_writes_is_wanted() -> None:
    assert {"ec2:RebootInstances", "ec2:CreateTags"} <= actions(Settings(policy=ACT))
    assert actions(Settings()) == {"ec2:DescribeInstances", "ec2:DescribeInstanceStatus", "ec2:GetConsoleOutput"}


def test_a_role_of_its_own_wants_what_it_does_and_the_process_what_is_left() -> None:
    settings = Settings(policy=ACT, aws=AwsSettings(roles={"ssh": AwsRole(profile="ssh")}))
    assert "ec2:RebootInstances" not in actions(settings, "ssh")
    assert "ec2:CreateTags" in actions(settings, "ssh")
    assert "ec2:RebootInstances" in actions(settings, "")


def test_what_the_cluster_has_not_is_not_asked_for() -> None:
    plain = actions(Settings(policy=ACT))
    assert not {action.partition(":")[0] for action in plain} & {"autoscaling", "eks", "sqs", "sagemaker"}
    grouped = [one.model_copy(update={"group": "gpus", "owner": Owner.NODE_GROUP.value}) for one in NODES]
    everything = Settings(
        policy=ACT,
        kubernetes=KubernetesSettings(source="eks", eks_cluster="blue"),
        intake=IntakeSettings(event_queue=QUEUE),
        provision=ProvisionSettings(templates={"p5.48xlarge": "gpu-a"}),
    )
    wanted = actions(everything, "", grouped)
    assert {"autoscaling:EnterStandby", "eks:DescribeCluster", "eks:UpdateNodegroupConfig", "sqs:ReceiveMessage"} <= wanted
    assert "ec2:RunInstances" in wanted


def test_on_hyperpod_its_own_calls_are_wanted_instead_of_those_of_ec2() -> None:
    wanted = actions(Settings(policy=ACT, aws=AwsSettings(provider="hyperpod", hyperpod_cluster="gpus")))
    assert wanted
    assert all(action.startswith("sagemaker:") for action in wanted)


def test_a_bucket_for_evidence_is_asked_for_with_the_role_that_writes_it() -> None:
    settings = Settings(policy=ACT, evidence=EvidenceSettings(bucket="bundles"))
    [put] = [one for one in wanted_by(settings, "", NODES) if one.action == "s3:PutObject"]
    assert put.roles == ("ssh",)
    who = Identity("arn:aws:sts::1:assumed-role/r/s", "us-east-1")
    assert resource_of("s3:PutObject", who, settings, NODES) == "arn:aws:s3:::bundles/hotspare/evidence/doctor"


async def test_all_permitted_is_one_line_that_is_well() -> None:
    lines = await told(FakePermissions())
    assert {part: line.verdict for part, line in lines.items()} == dict.fromkeys(("AWS", "AWS permissions", "clock"), Verdict.OK)


async def test_mutating_calls_are_tried_dry_on_a_node_of_the_cluster_alone() -> None:
    permissions = FakePermissions()
    await told(permissions)
    assert ("ec2:RebootInstances", "i-001") in permissions.asked
    assert {instance for _, instance in permissions.asked} == {"i-001"}


async def test_what_is_refused_is_named_with_the_policy_to_attach() -> None:
    permissions = FakePermissions()
    permissions.refused = {"ec2:StopInstances"}
    line = (await told(permissions))["AWS permissions"]
    assert (line.verdict, line.text) == (Verdict.CRITICAL, "refused: ec2:StopInstances")
    assert "DIR/iam" in line.do


@pytest.mark.parametrize(
    ("simulates", "verdict"),
    [
        (None, Verdict.UNKNOWN),
        (set(), Verdict.CRITICAL),
        ({"sqs:ReceiveMessage", "sqs:DeleteMessage"}, Verdict.OK),
    ],
)
async def test_what_has_no_dry_run_is_asked_of_iam_and_never_taken_for_granted(
    simulates: set[str] | None, verdict: Verdict
) -> None:
    permissions = FakePermissions()
    permissions.simulates = simulates
    line = (await told(permissions, intake=IntakeSettings(event_queue=QUEUE)))["AWS permissions"]
    assert line.verdict is verdict
    assert line.can_tell is (verdict is not Verdict.UNKNOWN)
    if simulates is not None:
        assert ("sqs:ReceiveMessage", "arn:aws:sqs:us-east-1:123456789012:blue-events") in permissions.asked


async def test_without_credentials_nothing_more_is_asked() -> None:
    permissions = FakePermissions()
    permissions.no_credentials = True
    lines = await told(permissions)
    assert lines["AWS"].verdict is Verdict.CRITICAL
    assert "AWS_PROFILE" in lines["AWS"].do
    assert "AWS permissions" not in lines
    assert (lines["clock"].verdict, lines["clock"].can_tell) == (Verdict.UNKNOWN, False)


@pytest.mark.parametrize(("skew_s", "verdict"), [(5, Verdict.OK), (-90, Verdict.WARN), (400, Verdict.CRITICAL)])
async def test_a_clock_that_aws_would_not_take_is_told(skew_s: float, verdict: Verdict) -> None:
    permissions = FakePermissions()
    permissions.skew_s = skew_s
    line = (await told(permissions))["clock"]
    assert line.verdict is verdict
    if verdict is not Verdict.OK:
        assert f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} AWS's" in line.text
        assert "time service" in line.do


def test_many_refusals_are_named_in_a_line_and_counted() -> None:
    tried = [Tried(f"ec2:Call{n}", Permitted.NO) for n in range(10)]
    [line] = permission_lines("AWS as ssh", tried)
    assert line.part == "AWS permissions as ssh"
    assert line.text.endswith("and 4 more")


@pytest.mark.parametrize(
    ("action", "arn"),
    [
        ("autoscaling:EnterStandby", "arn:aws-cn:autoscaling:cn-north-1:1:autoScalingGroup:*:autoScalingGroupName/gpus"),
        ("eks:UpdateNodegroupConfig", "arn:aws-cn:eks:cn-north-1:1:nodegroup/blue/*/*"),
        ("eks:DescribeCluster", "arn:aws-cn:eks:cn-north-1:1:cluster/blue"),
        ("sqs:DeleteMessage", "arn:aws-cn:sqs:cn-north-1:1:blue-events"),
        ("dynamodb:GetItem", ""),
    ],
)
def test_iam_is_asked_about_the_cluster_s_own_things_in_its_partition(action: str, arn: str) -> None:
    settings = Settings(intake=IntakeSettings(event_queue=QUEUE), kubernetes=KubernetesSettings(source="eks", eks_cluster="blue"))
    who = Identity("arn:aws-cn:sts::1:assumed-role/r/s", "cn-north-1")
    assert resource_of(action, who, settings, [node(1).model_copy(update={"group": "gpus"})]) == arn


def test_a_clock_line_says_whose_clock_it_is() -> None:
    assert "Temporal agree within 2 s" in clock_line("Temporal", 1.7).text
