"""SageMaker HyperPod as the provider of nodes: its answers in EC2's words, its batches and refusals, when it is left alone."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from botocore.stub import Stubber

from activities import names
from activities.clients import hyperpod_boto3
from activities.clients.fake_fleet import FakeClock
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.fake_points import Points
from activities.clients.hyperpod_boto3 import HyperPodBoto3
from activities.clients.tag_inventory import TagInventory
from activities.errors import CapabilityMissing, NotOurs, PreconditionFailed, ProviderBusy, Throttled, UnknownNode
from activities.hyperpod import HEALTH_LABEL, HyperPodHealers, HyperPodReplacer
from activities.inventory import Node
from activities.kubernetes_healers import NodeObjects
from activities.owners import Owner
from activities.settings import AwsSettings
from infra.iam.table import HYPERPOD

ARN = "arn:aws:sagemaker:us-east-1:111122223333:cluster/abc"
ONE, TWO = "i-0123456789abcdef0", "i-0123456789abcdef1"
NODE = Node(instance_id=ONE, name="node-1")
INCIDENT = f"incident/c/{ONE}"


class Stubbed:
    """The client, whose answers are told one by one; any other call fails the test. `called` are the operations, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        settings = AwsSettings(
            region="us-east-1",
            provider="hyperpod",
            hyperpod_cluster="train",
            hyperpod_groups={"controller": "head", "warm": "spare"},
        )
        self.client = HyperPodBoto3(settings)
        self.read, self.change = Stubber(self.client._read), Stubber(self.client._change)
        self.called: list[str] = []
        for stub in (self.read, self.change):
            stub.client.meta.events.register("before-parameter-build.*.*", self._note)
            stub.activate()

    def _note(self, model: Any, **more: Any) -> None:
        self.called.append(model.name)

    def tags(self, **tags: str) -> None:
        """The cluster has these tags; its ARN is asked for the first time."""
        if not self.client._arn:
            self.recovery("None")
        listed = [{"Key": key.replace("__", ":").replace("_", "-"), "Value": value} for key, value in tags.items()]
        self.read.add_response("list_tags", {"Tags": listed}, {"ResourceArn": ARN})

    def recovery(self, word: str) -> None:
        answer = {"ClusterArn": ARN, "ClusterStatus": "InService", "InstanceGroups": [], "NodeRecovery": word}
        self.read.add_response("describe_cluster", answer, {"ClusterName": "train"})

    def node(self, status: str = "Running", **more: object) -> None:
        details = {"InstanceId": ONE, "InstanceGroupName": "workers", "InstanceType": "ml.p5.48xlarge"} | more
        details["InstanceStatus"] = {"Status": status, "Message": ""}
        wanted = {"ClusterName": "train", "NodeId": ONE}
        self.read.add_response("describe_cluster_node", {"NodeDetails": details}, wanted)


@pytest.fixture
def hyperpod(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubbed]:
    stubbed = Stubbed(monkeypatch)
    with ExitStack() as stack:
        yield stubbed
        stack.callback(stubbed.read.assert_no_pending_responses)
        stack.callback(stubbed.change.assert_no_pending_responses)


def test_a_node_is_told_as_ec2_would_with_our_tags_from_the_cluster(hyperpod: Stubbed) -> None:
    hyperpod.node(PrivatePrimaryIp="10.1.2.3", PrivateDnsHostname="ip-10-1-2-3.ec2.internal", Placement={"AvailabilityZone": "z"})
    hyperpod.tags(**{f"hotspare__quarantine__{ONE.replace('-', '_')}": INCIDENT, "hotspare__stood_back__i_9": "x", "team": "ml"})
    view = hyperpod.client.describe(ONE)
    assert (view.state, view.instance_type, view.zone, view.private_ip) == ("running", "p5.48xlarge", "z", "10.1.2.3")
    assert view.tags == {names.TAG_ROLE: "worker", names.TAG_QUARANTINE: INCIDENT}


def test_the_inventory_of_a_cluster_has_roles_by_instance_group_and_its_owner(hyperpod: Stubbed) -> None:
    summary = {"InstanceType": "ml.p5.48xlarge", "LaunchTime": "2026-11-01T00:00:00Z"}
    listed = [
        summary | {"InstanceGroupName": group, "InstanceId": instance, "InstanceStatus": {"Status": status, "Message": ""}} | more
        for group, instance, status, more in (
            ("workers", ONE, "Running", {"PrivateDnsHostname": "ip-10-1-2-3.ec2.internal"}),
            ("warm", TWO, "Failure", {}),
            ("workers", "i-0123456789abcdef2", "ShuttingDown", {}),
        )
    ]
    page = {"ClusterNodeSummaries": listed[:2], "NextToken": "more"}
    hyperpod.read.add_response("list_cluster_nodes", page, {"ClusterName": "train"})
    hyperpod.read.add_response(
        "list_cluster_nodes", {"ClusterNodeSummaries": listed[2:]}, {"ClusterName": "train", "NextToken": "more"}
    )
    hyperpod.tags()
    nodes = TagInventory(hyperpod.client, "train", cache_s=0.0).list("train")
    assert {(node.name, node.ip, node.role, node.owner) for node in nodes} == {
        ("ip-10-1-2-3", "10.1.2.3", "worker", Owner.HYPERPOD.value),
        (TWO, "", "spare", Owner.HYPERPOD.value),
    }


@pytest.mark.parametrize(
    ("status", "state", "check"),
    [
        ("Running", "running", "ok"),
        ("Failure", "running", "impaired"),
        ("DeepHealthCheckInProgress", "running", "initializing"),
        ("ShuttingDown", "shutting-down", "not-applicable"),
    ],
)
def test_its_status_is_a_second_signal(hyperpod: Stubbed, status: str, state: str, check: str) -> None:
    hyperpod.node(status)
    seen = hyperpod.client.status(ONE)
    assert (seen.state, seen.system, seen.instance) == (state, check, check)


def test_a_node_that_is_gone_is_unknown(hyperpod: Stubbed) -> None:
    hyperpod.read.add_client_error("describe_cluster_node", "ResourceNotFound", "no such node")
    with pytest.raises(UnknownNode, match="no such node"):
        hyperpod.client.describe(ONE)


def test_a_reboot_is_one_call_and_its_partial_failure_is_an_error(hyperpod: Stubbed) -> None:
    wanted = {"ClusterName": "train", "NodeIds": [ONE]}
    hyperpod.change.add_response("batch_reboot_cluster_nodes", {"Successful": [ONE]}, wanted)
    hyperpod.client.reboot(ONE)
    for code, error in (
        ("InvalidInstanceStatus", Throttled),
        ("InstanceIdInUse", PreconditionFailed),
        ("InstanceIdNotFound", UnknownNode),
        ("InternalServerError", ProviderBusy),
    ):
        failed = {"Failed": [{"NodeId": ONE, "ErrorCode": code, "Message": "words"}]}
        hyperpod.change.add_response("batch_reboot_cluster_nodes", failed, wanted)
        with pytest.raises(error, match=f"{code}: words") as raised:
            hyperpod.client.reboot(ONE)
        assert type(raised.value) is error


def test_twenty_five_nodes_go_in_one_call(hyperpod: Stubbed) -> None:
    ids = [f"i-{number:017x}" for number in range(60)]
    for some in (ids[:25], ids[25:50], ids[50:]):
        failed = [{"NodeId": some[0], "ErrorCode": "InstanceIdInUse", "Message": ""}]
        answer = {"Successful": some[1:], "Failed": failed}
        hyperpod.change.add_response("batch_replace_cluster_nodes", answer, {"ClusterName": "train", "NodeIds": some})
    assert [one.instance_id for one in hyperpod.client.replace_nodes(ids)] == [ids[0], ids[25], ids[50]]


def test_tags_of_a_node_are_written_on_the_cluster(hyperpod: Stubbed) -> None:
    hyperpod.recovery("None")
    key = f"{names.TAG_QUARANTINE}:{ONE}"
    hyperpod.change.add_response("add_tags", {"Tags": []}, {"ResourceArn": ARN, "Tags": [{"Key": key, "Value": INCIDENT}]})
    hyperpod.client.set_tags(ONE, {names.TAG_QUARANTINE: INCIDENT})
    hyperpod.change.add_response("delete_tags", {}, {"ResourceArn": ARN, "TagKeys": [key]})
    hyperpod.client.remove_tags(ONE, [names.TAG_QUARANTINE])
    hyperpod.change.add_client_error("add_tags", "ResourceLimitExceeded", "too many")
    with pytest.raises(PreconditionFailed, match="50 tags"):
        hyperpod.client.set_tags(ONE, {names.TAG_QUARANTINE: INCIDENT})


def test_there_is_no_stop_no_start_and_no_console(hyperpod: Stubbed) -> None:
    for call in (hyperpod.client.stop, hyperpod.client.start, hyperpod.client.console_output):
        with pytest.raises(CapabilityMissing):
            call(ONE)


def test_a_cluster_that_heals_itself_is_left_alone_and_the_line_to_type_is_told(hyperpod: Stubbed) -> None:
    healers = HyperPodHealers(hyperpod.client, None, FakeClock(Points()))
    hyperpod.recovery("Automatic")
    [found] = healers.found(NODE)
    assert (found.kind, bool(found.owns)) == (Owner.HYPERPOD.value, True)
    assert healers.found(NODE) == [found]  # believed for a minute
    hyperpod.recovery("Automatic")
    with pytest.raises(CapabilityMissing, match="update-cluster --node-recovery None"):
        healers.stand_back(NODE, INCIDENT)
    hyperpod.recovery("None")
    assert healers.stand_back(NODE, INCIDENT) == ""


@pytest.mark.parametrize(
    ("status", "busy"), [("Schedulable", False), ("Unschedulable", True), ("UnschedulablePendingReplacement", True)]
)
def test_a_node_that_hyperpod_is_at_work_on_is_left_to_it(hyperpod: Stubbed, status: str, busy: bool) -> None:
    api = FakeKubernetes()
    gpus, ready = 8, True
    api.add_node("hyperpod-1", ONE, gpus=gpus, ready=ready, **{HEALTH_LABEL: status})
    hyperpod.recovery("None")
    found = HyperPodHealers(hyperpod.client, NodeObjects(api)).found(NODE)
    assert [status in healer.owns for healer in found] == [True] * busy


def test_only_a_node_of_the_incident_is_replaced(hyperpod: Stubbed) -> None:
    replacer = HyperPodReplacer(hyperpod.client, hyperpod.client)
    hyperpod.node()
    hyperpod.tags(**{f"hotspare__quarantine__{ONE.replace('-', '_')}": "incident/c/i-9"})
    with pytest.raises(NotOurs):
        replacer.replace_by_drain(NODE, INCIDENT)
    hyperpod.node()
    hyperpod.tags(**{f"hotspare__quarantine__{ONE.replace('-', '_')}": INCIDENT})
    hyperpod.change.add_response("batch_replace_cluster_nodes", {"Successful": [ONE]}, {"ClusterName": "train", "NodeIds": [ONE]})
    replacer.replace_by_drain(NODE, INCIDENT)
    assert {*hyperpod.called} <= {*HYPERPOD["aws"]}


def test_every_call_is_in_the_table_of_permissions() -> None:
    text = inspect.getsource(hyperpod_boto3)
    called = {action for action in HYPERPOD["aws"] if _snake(action) in text}
    assert called == {*HYPERPOD["aws"]}


def _snake(action: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in action).lstrip("_")
