"""Launching spares and ending retired nodes under their policy: it works with it, and without any one action it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities import names
from activities.clients.asg_boto3 import AsgBoto3
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.clients.fake_fleet import FakeFleet
from activities.clients.provision_boto3 import ProvisionBoto3
from activities.clients.tag_inventory import TagInventory
from activities.group_slots import GroupSlots
from activities.inventory import Node
from activities.owner_slots import AwaitSuccessor, GiveUpSlot, LookAtOwner, OwnerSlotActivities
from activities.owners import Owner
from activities.provisioning import AwaitRunning, LaunchSpare, ProvisioningActivities, TerminateNode
from activities.settings import AwsRole, AwsSettings, EffectSettings, ProvisionSettings
from infra.iam.provisioning import FILE, PERMISSIONS, policy_of, text_of
from infra.lab.moto_instances import state_of
from infra.lab.options import REGION
from tests.activities.conftest import attempt
from tests.activities.iam_endpoint import IamEndpoint, enforced, of_cluster, unenforced, without
from tests.activities.test_iam import action_of

ROLE, INCIDENT = "hotspare-under-test", "incident/c1/i-1"


class Rig:
    """The activities over a client that assumes the role under test."""

    def __init__(self, aws: AwsSettings, seen: dict[str, Node]) -> None:
        fleet, self.seen = FakeFleet(), seen
        settings = ProvisionSettings(templates={"p5.48xlarge": "gpu"})
        clients = ProvisionBoto3(aws, "ssh"), Ec2Boto3(aws, "ssh")
        self.activities = ProvisioningActivities(*clients, fleet.memory, settings, EffectSettings(), fleet.clock)
        owners = {Owner.GROUP: GroupSlots(AsgBoto3(aws, "ssh"))}
        self.slots = OwnerSlotActivities(owners, clients[1], fleet.memory, EffectSettings(), fleet.clock)

    def launch_spare(self) -> None:
        ask = LaunchSpare(cluster="c1", instance_type="p5.48xlarge", token="spare/c1/t#1")
        launched = attempt(left=timedelta(hours=1)).run(self.activities.launch_spare, ask)
        assert state_of(launched.instance_id) in ("pending", "running")

    def await_running(self) -> None:
        ask = AwaitRunning(instance_id=self.seen["node-1"].instance_id, deadline_s=1.0)
        assert attempt(left=timedelta(hours=1)).run(self.activities.await_running, ask).state == "running"

    def look_at_owner(self) -> None:
        ask = LookAtOwner(node=self.seen["node-3"], owned_by=Owner.GROUP)
        seen = attempt(left=timedelta(hours=1)).run(self.slots.look_at_owner, ask)
        assert (seen.keeper, seen.members) == ("gpus", sorted(self.seen[one].instance_id for one in ("node-3", "node-4")))

    def give_up_slot(self) -> None:
        ask = GiveUpSlot(node=self.seen["node-3"], owned_by=Owner.GROUP, quarantined_by=INCIDENT, token="t/back")
        assert attempt(left=timedelta(hours=1)).run(self.slots.give_up_slot, ask).made_now

    def await_successor(self) -> None:
        bad, new = self.seen["node-3"], self.seen["node-4"].instance_id
        ask = AwaitSuccessor(node=bad, owned_by=Owner.GROUP, keeper="gpus", known=[bad.instance_id], deadline_s=1.0)
        assert attempt(left=timedelta(hours=1)).run(self.slots.await_successor, ask).instance_id == new

    def terminate_node(self) -> None:
        ask = TerminateNode(node=self.seen["node-2"], quarantined_by=INCIDENT, token="t/end")
        assert attempt(left=timedelta(hours=1)).run(self.activities.terminate_node, ask).made_now


CASES: dict[str, Callable[[Rig], None]] = {
    "launch_spare": Rig.launch_spare,
    "await_running": Rig.await_running,
    "terminate_node": Rig.terminate_node,
    "look_at_owner": Rig.look_at_owner,
    "give_up_slot": Rig.give_up_slot,
    "await_successor": Rig.await_successor,
}


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
            yield running
        running.stop()


@pytest.fixture
def rig(endpoint: IamEndpoint) -> Rig:
    """A node that serves, two that are retired, one of them in an Auto Scaling group, and a launch template."""
    with unenforced():
        endpoint.forget_instances()
        for name in ("node-1", "node-2", "node-3", "node-4"):
            endpoint.launch(name, "worker", "c1")
        endpoint.group("gpus", ["node-3", "node-4"], "c1", standby="")
        tags = [{"Key": names.TAG_QUARANTINE, "Value": INCIDENT}, {"Key": names.TAG_FATE, "Value": names.FATE_RETIRED}]
        endpoint.ec2.create_tags(Resources=[endpoint.instances[one] for one in ("node-2", "node-3")], Tags=tags)
        template = {"ImageId": "ami-12c6146b", "InstanceType": "p5.48xlarge"}
        endpoint.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=template)
        who = AwsRole(role_arn=f"arn:aws:iam::123456789012:role/{ROLE}")
        aws = AwsSettings(region=REGION, endpoint_url=endpoint.url, roles={"ssh": who})
        endpoint.permit(ROLE, policy_of())
        seen = TagInventory(Ec2Boto3(aws, "ssh"), "c1", cache_s=0.0).list("")
    return Rig(aws, {node.name: node for node in seen})


def test_the_policy_is_that_of_the_table() -> None:
    assert FILE.read_text() == text_of(), "write it anew: python -m infra.iam.provisioning"


@pytest.mark.parametrize("activity", PERMISSIONS)
def test_an_activity_works_under_the_policy_and_makes_no_other_call(endpoint: IamEndpoint, rig: Rig, activity: str) -> None:
    endpoint.permit(ROLE, of_cluster(policy_of(), "c1"))
    with enforced():
        CASES[activity](rig)
    assert endpoint.denied == []
    assert {action_of(operation) for operation in endpoint.made if operation != "AssumeRole"} == {*PERMISSIONS[activity]}


NEEDS = [(activity, action) for activity, actions in PERMISSIONS.items() for action in actions]


@pytest.mark.parametrize(("activity", "action"), NEEDS)
def test_an_activity_is_denied_without_any_one_of_its_actions(
    endpoint: IamEndpoint, rig: Rig, activity: str, action: str
) -> None:
    endpoint.permit(ROLE, of_cluster(without(policy_of(), action), "c1"))
    with enforced(), pytest.raises(ApplicationError) as raised:
        CASES[activity](rig)
    assert (raised.value.type, set(endpoint.denied)) == ("AccessRefused", {action.split(":")[1]})


@pytest.mark.parametrize("activity", ["launch_spare", "terminate_node", "give_up_slot"])
def test_it_ends_at_the_border_of_the_cluster(endpoint: IamEndpoint, rig: Rig, activity: str) -> None:
    endpoint.permit(ROLE, of_cluster(policy_of(), "another"))
    with enforced(), pytest.raises(ApplicationError):
        CASES[activity](rig)
    assert len(endpoint.denied) == 1
