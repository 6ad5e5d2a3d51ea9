"""A slot goes back to its owner only where another comes, only for its incident, and what came in its place is taken on once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import names
from activities.auto_scaling import GroupMember
from activities.clients.fake_fleet import FakeFleet
from activities.eks_repair import EKS_TAG_CLUSTER, EKS_TAG_GROUP, NodeGroup
from activities.errors import UnknownNode
from activities.group_slots import GroupSlots, NodeGroupSlots
from activities.host_memory import remember
from activities.owner_slots import AwaitSuccessor, GiveUpSlot, LookAtOwner, OwnerSeen, OwnerSlotActivities, Successor
from activities.owners import Owner
from activities.settings import EffectSettings
from tests.activities.conftest import attempt

INCIDENT = "incident/lab/i-2"


@pytest.fixture
def member(fleet: FakeFleet) -> FakeFleet:
    """A fleet whose first two nodes are a group, of which the second is retired."""
    fleet.join_group("gpus", "node-1", "node-2")
    tags = {names.TAG_QUARANTINE: INCIDENT, names.TAG_FATE: names.FATE_RETIRED}
    fleet.ec2.tags[fleet.node("node-2").instance_id] |= tags
    return fleet


def look(fleet: FakeFleet, owner: Owner = Owner.GROUP) -> OwnerSeen:
    ask = LookAtOwner(node=fleet.node("node-2"), owned_by=owner)
    return ActivityEnvironment().run(fleet.owner_slots.look_at_owner, ask)


def give_up(fleet: FakeFleet, incident: str = INCIDENT, *, decrement: bool = False) -> bool:
    ask = GiveUpSlot(node=fleet.node("node-2"), owned_by=Owner.GROUP, quarantined_by=incident, decrement=decrement, token="t#1")
    return attempt(left=timedelta(hours=1)).run(fleet.owner_slots.give_up_slot, ask).made_now


def successor(fleet: FakeFleet, known: list[str], since: datetime | None = None, deadline_s: float = 1.0) -> Successor:
    bad = next(entry for entry in fleet.entries if entry.name == "node-2")
    ask = AwaitSuccessor(node=bad, owned_by=Owner.GROUP, keeper="gpus", known=known, since=since, deadline_s=deadline_s)
    return attempt(left=timedelta(hours=1)).run(fleet.owner_slots.await_successor, ask)


def instance(fleet: FakeFleet, name: str) -> str:
    return next(entry.instance_id for entry in fleet.entries if entry.name == name)


def test_a_lower_number_launches_nothing_in_its_place(member: FakeFleet) -> None:
    known = look(member).members
    assert give_up(member, decrement=True)
    assert (member.auto_scaling.sizes["gpus"].desired, member.auto_scaling.launched_for("gpus")) == (
        1,
        [instance(member, "node-1")],
    )
    with pytest.raises(ApplicationError, match="launched nothing in place of node-2"):
        successor(member, known)


@pytest.mark.parametrize("changed", [{names.TAG_QUARANTINE: "incident/lab/i-9"}, {names.TAG_FATE: names.FATE_WITH_PERSON}])
def test_a_node_of_somebody_else_or_one_that_is_not_retired_stays(member: FakeFleet, changed: dict[str, str]) -> None:
    member.ec2.tags[instance(member, "node-2")] |= changed
    with pytest.raises(ApplicationError, match="it stays"):
        give_up(member)
    assert (member.count("terminate_in_group"), member.machines["node-2"].state) == (0, "running")


def test_one_that_has_left_its_group_and_runs_is_nobodys_to_give_back(member: FakeFleet) -> None:
    del member.auto_scaling.members[instance(member, "node-2")]
    with pytest.raises(ApplicationError, match="runs, and no Auto Scaling group has it any more"):
        look(member)


def test_a_kind_of_owner_that_nobody_here_can_speak_to_is_said(member: FakeFleet) -> None:
    with pytest.raises(ApplicationError, match="a slot of Karpenter cannot be given back from here"):
        look(member, Owner.KARPENTER)


def test_one_that_somebody_has_leased_is_the_successor_all_the_same_and_one_that_was_there_is_not(member: FakeFleet) -> None:
    known = look(member).members
    give_up(member)
    new = next(one for one in member.auto_scaling.launched_for("gpus") if one not in known)
    with pytest.raises(ApplicationError, match="launched nothing"):
        successor(member, [*known, new])
    member.ec2.tags[new][names.TAG_LEASE] = "replace/lab/i-9"
    assert successor(member, known).instance_id == new


def test_one_that_describes_do_not_show_yet_is_waited_for(member: FakeFleet) -> None:
    known = look(member).members
    give_up(member)
    member.fail_next("describe", UnknownNode("InvalidInstanceID.NotFound"), times=2)
    found = successor(member, known, deadline_s=60.0).instance_id
    assert found not in known


def test_an_instance_that_came_in_anothers_place_is_not_taken_on_twice(member: FakeFleet) -> None:
    known = look(member).members
    give_up(member)
    new = next(one for one in member.auto_scaling.launched_for("gpus") if one not in known)
    remember(member.memory, new, lambda record: record.model_copy(update={"succeeds": "i-another"}))
    with pytest.raises(ApplicationError, match="launched nothing"):
        successor(member, known)
    assert member.memory.recall(new).succeeds == "i-another"


def test_the_same_wait_that_is_asked_again_finds_the_same_one(member: FakeFleet) -> None:
    known = look(member).members
    give_up(member)
    assert successor(member, known) == successor(member, known)


def test_of_what_was_there_already_only_one_launched_since_the_incident_can_be_it(member: FakeFleet) -> None:
    """The owner had replaced the node by itself, so its new node is among those that were seen."""
    began = datetime.now(UTC)
    member.ec2.launched[instance(member, "node-1")] = began - timedelta(days=3)
    member.auto_scaling.replace(instance(member, "node-2"))
    seen = member.auto_scaling.launched_for("gpus")
    with pytest.raises(ApplicationError, match="launched nothing"):
        successor(member, seen)
    assert successor(member, seen, since=began).instance_id not in (instance(member, "node-1"), instance(member, "node-2"))


class FakeEks:
    """An `EksClient` whose node group has issues."""

    def __init__(self, *issues: str) -> None:
        self.issues = issues
        self.asked: list[tuple[str, str]] = []

    def node_group(self, cluster: str, group: str) -> NodeGroup:
        self.asked.append((cluster, group))
        return NodeGroup("arn", issues=self.issues)

    def set_repair(self, cluster: str, group: str, config: dict[str, object]) -> None:
        raise AssertionError("nobody asked for that")

    def tag(self, arn: str, tags: dict[str, str]) -> None:
        raise AssertionError("nobody asked for that")

    def untag(self, arn: str, keys: list[str]) -> None:
        raise AssertionError("nobody asked for that")


@pytest.mark.parametrize("issues", [(), ("AsgInstanceLaunchFailures: no capacity",)])
def test_a_managed_node_group_that_is_not_well_keeps_its_node(member: FakeFleet, issues: tuple[str, ...]) -> None:
    eks, groups = FakeEks(*issues), GroupSlots(member.groups)
    slots = NodeGroupSlots(groups, eks, "")
    member.ec2.tags[instance(member, "node-2")] |= {EKS_TAG_CLUSTER: "train", EKS_TAG_GROUP: "p5"}
    activities = OwnerSlotActivities({Owner.NODE_GROUP: slots}, member.ec2, member.memory, EffectSettings(), member.clock)
    ask = LookAtOwner(node=member.node("node-2"), owned_by=Owner.NODE_GROUP)
    if issues:
        with pytest.raises(ApplicationError, match=r"node group p5 is not well.*AsgInstanceLaunchFailures: no capacity"):
            ActivityEnvironment().run(activities.look_at_owner, ask)
    else:
        assert ActivityEnvironment().run(activities.look_at_owner, ask).keeper == "gpus"
    assert eks.asked == [("train", "p5")]


def test_a_member_on_its_way_out_is_going(member: FakeFleet) -> None:
    member.auto_scaling.members[instance(member, "node-2")] = GroupMember(group="gpus", state="Terminating:Wait")
    assert look(member).going
    assert give_up(member) is False
    assert member.count("terminate_in_group") == 0
