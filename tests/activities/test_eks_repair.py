"""Node auto repair of EKS is off for a group as long as any incident needs it, and then on again as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.clients.eks_boto3 import EksBoto3
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.eks_repair import KIND, LABEL, EksRepairHealers, NodeGroup
from activities.errors import AccessRefused, BadInput
from activities.healers import HealerActivities, ReleaseHealers, StandBack
from activities.kubernetes import NODE
from activities.kubernetes_healers import NodeObjects
from activities.settings import AwsSettings
from tests.activities.eks_groups import REPAIR, let_groups_have_tags, make_cluster, make_group

FIRST, SECOND = "incident/lab/i-1", "incident/lab/i-2"


class Group:
    """A managed node group at an endpoint that speaks AWS's protocol, with two nodes of a fleet in it."""

    def __init__(self, fleet: FakeFleet, url: str) -> None:
        self.fleet = fleet
        self.api = FakeKubernetes()
        for name in ("node-1", "node-2"):
            self.api.add_node(name, fleet.node(name).instance_id, gpus=8, ready=True, **{LABEL: "gpus"})
        self.client: Any = boto3.client("eks", "us-east-1", endpoint_url=url)
        self.eks = EksBoto3(AwsSettings(region="us-east-1", endpoint_url=url))

    def healers(self, *, may_pause: bool = True) -> EksRepairHealers:
        nodes = NodeObjects(self.api)
        return EksRepairHealers(self.eks, self.fleet.ec2, nodes, "train", may_pause=may_pause, clock=self.fleet.clock)

    def stand_back(self, surroundings: ActivityEnvironment, name: str, incident: str, *, may_pause: bool = True) -> str:
        activities = HealerActivities(self.healers(may_pause=may_pause))
        return surroundings.run(activities.stand_back, StandBack(node=self.fleet.node(name), incident=incident)).said

    def release(self, surroundings: ActivityEnvironment, name: str, incident: str) -> str:
        activities = HealerActivities(self.healers())
        return surroundings.run(activities.release_healers, ReleaseHealers(node=self.fleet.node(name), incident=incident)).said

    @property
    def seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = self.client.describe_nodegroup(clusterName="train", nodegroupName="gpus")["nodegroup"]
        return seen

    @property
    def tags(self) -> dict[str, str]:
        return {key: value for key, value in self.seen["tags"].items() if key.startswith("hotspare")}

    def record(self, name: str) -> str:
        return self.fleet.ec2.tags[self.fleet.node(name).instance_id].get(names.TAG_STOOD_BACK, "")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    let_groups_have_tags(monkeypatch)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def group(url: str, fleet: FakeFleet) -> Iterator[Group]:
    made = Group(fleet, url)
    make_cluster(made.client)
    make_group(made.client, "gpus", {"a": "b"})
    yield made
    made.client.delete_nodegroup(clusterName="train", nodegroupName="gpus")
    made.client.delete_cluster(name="train")


def test_a_whole_group_is_not_changed_unless_the_settings_permit_it(group: Group, surroundings: ActivityEnvironment) -> None:
    with pytest.raises(ApplicationError) as raised:
        group.stand_back(surroundings, "node-1", FIRST, may_pause=False)
    assert (raised.value.type, raised.value.non_retryable) == ("PreconditionFailed", True)
    assert "healers.pause_node_group_repair = true" in raised.value.message
    assert "--cluster-name train --nodegroup-name gpus --node-repair-config enabled=false" in raised.value.message
    assert (group.seen["nodeRepairConfig"], group.tags, group.record("node-1")) == (REPAIR, {}, "")


def test_the_repair_is_off_while_any_incident_needs_it_and_then_on_as_it_was(
    group: Group, surroundings: ActivityEnvironment
) -> None:
    for _ in range(2):
        group.stand_back(surroundings, "node-1", FIRST)
    assert group.seen["nodeRepairConfig"] == {**REPAIR, "enabled": False}
    group.stand_back(surroundings, "node-2", SECOND)
    one, two = (group.fleet.node(name).instance_id for name in ("node-1", "node-2"))
    users = {f"{names.TAG_STOOD_BACK}:{one}": FIRST, f"{names.TAG_STOOD_BACK}:{two}": SECOND}
    assert group.tags == {**users, names.TAG_REPAIR_PAUSED: FIRST}
    assert group.record("node-1") == f"{FIRST} {KIND}"
    for _ in range(2):
        group.release(surroundings, "node-1", FIRST)
    assert group.seen["nodeRepairConfig"]["enabled"] is False
    assert "on in node group gpus" in group.release(surroundings, "node-2", SECOND)
    assert (group.seen["nodeRepairConfig"], group.tags, group.record("node-2")) == (REPAIR, {}, "")


def test_a_group_whose_repair_is_off_has_no_other_healer_and_stays_off(group: Group, surroundings: ActivityEnvironment) -> None:
    node = group.fleet.node("node-1")
    assert [one.words for one in group.healers().found(node)] == ["EKS node auto repair of node group gpus"]
    off = {"enabled": False}
    group.client.update_nodegroup_config(clusterName="train", nodegroupName="gpus", nodeRepairConfig=off)
    assert group.healers().found(node) == []
    assert "is off" in group.stand_back(surroundings, "node-1", FIRST, may_pause=False)
    assert group.release(surroundings, "node-1", FIRST) == ""
    assert (group.seen["nodeRepairConfig"], group.tags) == (off, {})


def test_where_the_group_may_not_be_read_it_is_said_and_its_repair_counts_as_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cluster: str, name: str) -> NodeGroup:
        raise AccessRefused("AccessDeniedException")

    with monkeypatch.context() as patch:
        patch.setattr(group.eks, "node_group", refuse)
        [found] = group.healers().found(group.fleet.node("node-1"))
    assert found.words == "EKS node auto repair of node group gpus"
    assert found.doubt == "cannot tell whether node auto repair is on in gpus: AccessDeniedException"


def test_one_that_comes_while_the_repair_is_switched_on_again_finds_it_off(
    group: Group, surroundings: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reads that the repair is off just before the first, the last one so far, switches it on."""
    group.stand_back(surroundings, "node-1", FIRST)
    set_repair = group.eks.set_repair

    def late(cluster: str, name: str, config: dict[str, Any]) -> None:
        if config["enabled"]:
            group.stand_back(surroundings, "node-2", SECOND)
        set_repair(cluster, name, config)

    with monkeypatch.context() as patch:
        patch.setattr(group.eks, "set_repair", late)
        group.release(surroundings, "node-1", FIRST)
    assert group.seen["nodeRepairConfig"]["enabled"] is False
    group.release(surroundings, "node-2", SECOND)
    assert (group.seen["nodeRepairConfig"], group.tags) == (REPAIR, {})


def test_a_refused_change_leaves_no_record(
    group: Group, surroundings: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(cluster: str, name: str, config: dict[str, Any]) -> None:
        raise BadInput("InvalidParameterException")

    with monkeypatch.context() as patch:
        patch.setattr(group.eks, "set_repair", refuse)
        with pytest.raises(ApplicationError, match="InvalidParameter"):
            group.stand_back(surroundings, "node-1", FIRST)
    assert (group.seen["nodeRepairConfig"], group.tags, group.record("node-1")) == (REPAIR, {}, "")


def test_a_node_that_has_left_kubernetes_is_released_by_the_tag_of_its_instance(
    group: Group, surroundings: ActivityEnvironment
) -> None:
    group.stand_back(surroundings, "node-1", FIRST)
    group.api.delete(NODE, "node-1")
    group.fleet.ec2.tags[group.fleet.node("node-1").instance_id]["eks:nodegroup-name"] = "gpus"
    group.release(surroundings, "node-1", FIRST)
    assert (group.seen["nodeRepairConfig"], group.tags) == (REPAIR, {})
