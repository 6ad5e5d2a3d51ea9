"""Least privilege: every activity works under the policy of its worker role, and no permission of a policy is idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities import eks_repair, names
from activities.auto_scaling import KIND
from activities.clients.asg_boto3 import AsgBoto3
from activities.clients.aws_session import session_of
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.errors import AccessRefused
from activities.settings import AwsRole, AwsSettings
from infra.iam import provisioning
from infra.iam.policies import file_of, policy_of, text_of
from infra.iam.table import PERMISSIONS, RECEIVE, TAKE_OFF, WITHOUT_AWS, actions_of
from infra.lab.options import REGION
from infra.lab.reservations import LabReservation
from tests.activities.eks_groups import let_groups_have_tags, make_cluster, make_group
from tests.activities.iam_cases import CASES, INCIDENT, Rig
from tests.activities.iam_endpoint import IamEndpoint, enforced, of_cluster, unenforced, without
from tests.workers.test_wiring import calls
from workers.credentials import ROLE_OF_QUEUE

ROWS = [(role, activity) for role, rows in PERMISSIONS.items() for activity in rows]
NEEDS = [(role, activity, action) for role, rows in PERMISSIONS.items() for activity in rows for action in rows[activity]]
ROLE = "hotspare-under-test"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[IamEndpoint]:
    with unenforced():
        running = IamEndpoint()
        key, secret = running.person("worker")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            running.role(ROLE)
            let_groups_have_tags(patch)
            yield running
        running.stop()


@pytest.fixture(scope="module")
def aws(endpoint: IamEndpoint) -> AwsSettings:
    """Where AWS is; "ssh" stands for whichever role is under test."""
    who = AwsRole(role_arn=f"arn:aws:iam::123456789012:role/{ROLE}")
    return AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"ssh": who})


@pytest.fixture(scope="module")
def ec2(aws: AwsSettings) -> Ec2Boto3:
    """The product's client, which assumes the role under test."""
    return Ec2Boto3(aws, "ssh")


@pytest.fixture(scope="module")
def groups(aws: AwsSettings) -> AsgBoto3:
    """Auto Scaling as the same role."""
    return AsgBoto3(aws, "ssh")


@pytest.fixture
def rig(endpoint: IamEndpoint, ec2: Ec2Boto3, groups: AsgBoto3, aws: AwsSettings, tmp_path: Path) -> Rig:
    """A cluster of its own: two workers, a spare, a head node. The second is quarantined by the incident, which has it in Standby
    and has paused the repair of its managed node group."""
    cluster = "c1"
    with unenforced():
        endpoint.forget_instances()
        for name, role in (("node-1", "worker"), ("node-2", "worker"), ("spare-1", "spare"), ("head", "head")):
            endpoint.launch(name, role, cluster)
        endpoint.group("gpus", ["node-1", "node-2"], cluster, standby="node-2")
        endpoint.reservations.add(LabReservation("cr-1", total=4), *endpoint.instances.values())
        stood_back = {"Key": names.TAG_STOOD_BACK, "Value": f"{INCIDENT} {KIND} + {eks_repair.KIND}"}
        tags = [{"Key": names.TAG_QUARANTINE, "Value": INCIDENT}, stood_back]
        endpoint.ec2.create_tags(Resources=[endpoint.instances["node-2"]], Tags=tags)
        ours = {names.TAG_CLUSTER: cluster}
        make_cluster(endpoint.eks, ours)
        make_group(endpoint.eks, "repaired", ours)
        paused = {f"{names.TAG_STOOD_BACK}:{endpoint.instances['node-2']}": INCIDENT, names.TAG_REPAIR_PAUSED: INCIDENT}
        make_group(endpoint.eks, "paused", {**ours, **paused}, {"enabled": False})
        made = Rig(ec2, groups, aws, cluster, tmp_path)
        made.queue_url = endpoint.queue(cluster, "an event")
        endpoint.permit(ROLE, policy_of("observe"))
        made.seen = {node.name: node for node in made.inventory.list("")}
    return made


def play(endpoint: IamEndpoint, rig: Rig, activity: str, policy: dict[str, Any]) -> None:
    """Run an activity with a role that may do what a policy says."""
    endpoint.permit(ROLE, of_cluster(policy, rig.cluster))
    with enforced():
        CASES[activity](rig)


def action_of(operation: str) -> str:
    """Name the action of a call as a policy does."""
    services = {
        "AutoScaling": "autoscaling",
        "Standby": "autoscaling",
        "Nodegroup": "eks",
        "Cluster": "eks",
        "Resource": "eks",
        "Message": "sqs",
    }
    return f"{next((service for part, service in services.items() if part in operation), 'ec2')}:{operation}"


def test_the_policies_are_those_of_the_table() -> None:
    for role in PERMISSIONS:
        assert file_of(role).read_text() == text_of(role), "write them anew: python -m infra.iam.policies"


def test_every_activity_that_workflows_call_is_in_the_table_under_the_role_that_serves_it() -> None:
    rows = {(activity, role) for role, named in PERMISSIONS.items() for activity in named}
    rows |= {(activity, role) for role, named in WITHOUT_AWS.items() for activity in named}
    rows |= {(activity, "aws") for activity in provisioning.PERMISSIONS}
    wanted = {(activity, ROLE_OF_QUEUE[queue]) for activity, queue in calls()}
    missing = {(activity, role) for activity, role in wanted - rows if PERMISSIONS[role]}
    assert missing == set(), "say in infra/iam/table.py which AWS actions they need, or that they need none"


@pytest.mark.parametrize(("role", "activity"), ROWS, ids=lambda word: word)
def test_an_activity_works_under_the_policy_of_its_role(endpoint: IamEndpoint, rig: Rig, role: str, activity: str) -> None:
    play(endpoint, rig, activity, policy_of(role))
    assert endpoint.denied == []
    used = {action_of(operation) for operation in endpoint.made if operation != "AssumeRole"}
    assert used == set(PERMISSIONS[role][activity]), "the table and what the activity does differ"


@pytest.mark.parametrize(("role", "activity", "action"), NEEDS, ids=lambda word: word)
def test_an_activity_is_denied_without_any_one_of_its_actions(
    endpoint: IamEndpoint, rig: Rig, role: str, activity: str, action: str
) -> None:
    with pytest.raises((AccessRefused, ApplicationError)) as raised:
        play(endpoint, rig, activity, without(policy_of(role), action))
    assert set(endpoint.denied) == {action.split(":")[1]}
    refused = raised.value
    if isinstance(refused, ApplicationError):
        assert (refused.type, refused.non_retryable) == ("AccessRefused", True)
    assert "infra/iam" in str(refused)


def test_a_policy_ends_at_the_border_of_its_cluster(endpoint: IamEndpoint, rig: Rig) -> None:
    for activity in (
        "reboot_node",
        "power_cycle_node",
        "tag_node",
        "learn_host_key",
        "stand_back",
        "release_healers",
        "reach_kubernetes",
        "read_events",
    ):
        endpoint.permit(ROLE, of_cluster(policy_of("intake" if activity == "read_events" else "aws"), "another"))
        with enforced(), pytest.raises((AccessRefused, ApplicationError)):
            CASES[activity](rig)
        assert endpoint.denied, activity
        assert [one for one in endpoint.made if not one.startswith(("Describe", "Get", "AssumeRole"))] == [], activity


@pytest.mark.parametrize("tag", [names.TAG_CLUSTER, "Name", names.TAG_QUARANTINE])
def test_a_role_writes_no_tags_but_its_own(endpoint: IamEndpoint, rig: Rig, tag: str) -> None:
    endpoint.permit(ROLE, of_cluster(policy_of("aws"), rig.cluster))
    node = rig.node("node-1").instance_id
    with enforced():
        with pytest.raises(AccessRefused):
            rig.ec2.set_tags(node, {tag: "x", names.TAG_FATE: "x"})
        with pytest.raises(AccessRefused):
            rig.ec2.remove_tags(node, [tag])
        with pytest.raises(AccessRefused):
            rig.ec2.remove_tags(node, [])
    assert endpoint.made.count("CreateTags") == endpoint.made.count("DeleteTags") == 0


def test_the_observing_policy_only_reads() -> None:
    """And takes what it has read off the queue of events, which is nobody else's."""
    reads = set(actions_of("observe")) - {RECEIVE, TAKE_OFF}
    assert all(action.split(":")[1].startswith(("Describe", "Get")) for action in reads)
    for role in ("watcher", "intake", "control", "notify", "k8s"):
        assert set(actions_of(role)) <= set(actions_of("observe"))


def test_moto_itself_enforces_the_actions(endpoint: IamEndpoint, rig: Rig) -> None:
    endpoint.permit(ROLE, of_cluster(policy_of("aws"), rig.cluster))
    with unenforced():
        allowed = endpoint.iam.get_role_policy(RoleName=ROLE, PolicyName="hotspare")["PolicyDocument"]
    assert {action for one in allowed["Statement"] for action in one["Action"]} == set(actions_of("aws"))
    client = session_of(AwsSettings(region=REGION, endpoint_url=endpoint.url)).client("ec2", REGION, endpoint_url=endpoint.url)
    with enforced(), pytest.raises(client.exceptions.ClientError, match="user/worker is not authorized"):
        client.describe_instances()  # the user may only assume roles


def test_a_role_that_cannot_be_assumed_is_a_closed_door(endpoint: IamEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    who = AwsRole(role_arn=f"arn:aws:iam::123456789012:role/{ROLE}")
    client = Ec2Boto3(AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"ssh": who}), "ssh")
    with enforced(), pytest.raises(AccessRefused):
        client.describe_cluster("c1")


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(AccessRefused, match=r"role ssh: .*hotspare-ssh.*aws\.roles"):
        Ec2Boto3(AwsSettings(region=REGION, roles={"ssh": AwsRole(profile="hotspare-ssh")}), "ssh")


def test_each_profile_is_used_for_its_role(endpoint: IamEndpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text("[one]\naws_access_key_id=ONE\naws_secret_access_key=x\n")
    settings = AwsSettings(region=REGION, roles={"ssh": AwsRole(profile="one")})
    one, other = (session_of(settings, role).get_credentials() for role in ("ssh", "aws"))
    assert one is not None
    assert other is not None
    assert one.access_key == "ONE"
    assert other.access_key != "ONE"
