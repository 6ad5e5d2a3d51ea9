"""Every alias of a node means that node, in whatever case; what is not clear is refused with help."""

from __future__ import annotations

import pytest

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.list_inventory import ListInventory
from activities.clients.tag_inventory import TagInventory
from activities.errors import BadInput, UnknownNode
from activities.inventory import Inventory
from activities.settings import ListedNode


def inventories(fleet: FakeFleet) -> list[Inventory]:
    """All inventories over one cluster. Of the list, the nodes have the same names as their tags."""
    listed = [
        ListedNode(instance_id=node.instance_id, name=node.name, host=node.host, role="worker")
        for node in fleet.inventory.list("")
    ]
    return [fleet.inventory, TagInventory(fleet.ec2, "lab", 10.0), ListInventory(fleet.ec2, "lab", listed)]


@pytest.mark.parametrize(
    "alias",
    [
        "node-2",
        "NODE-2",
        " node-2 ",
        "i-00000000000000002",
        "10.0.0.12",
        "10.0.0.12:9400",
        "ip-10-0-0-12",
        "ip-10-0-0-12.ec2.internal",
        "node-2:22",
    ],
)
def test_every_alias_means_the_node(fleet: FakeFleet, alias: str) -> None:
    for inventory in inventories(fleet):
        assert inventory.resolve("lab", alias).instance_id == "i-00000000000000002"
        assert inventory.resolve("", alias).name == "node-2"


def test_an_unknown_alias_is_refused_with_the_nearest_names(fleet: FakeFleet) -> None:
    for inventory in inventories(fleet):
        with pytest.raises(UnknownNode, match=r"did you mean .*node-"):
            inventory.resolve("lab", "nod-2")


def test_an_alias_of_two_nodes_is_refused_and_both_are_named(fleet: FakeFleet) -> None:
    fleet.ec2.tags[fleet.node("node-3").instance_id]["Name"] = "node-2"
    with pytest.raises(BadInput, match=r"more than one node.*i-00000000000000002.*i-00000000000000003"):
        TagInventory(fleet.ec2, "lab", 10.0).resolve("lab", "node-2")


def test_nodes_of_one_name_tag_are_told_apart(fleet: FakeFleet) -> None:
    """Members of an Auto Scaling group share their tags; whoever keeps nodes by name would look at one of them and take all."""
    members = [fleet.node(f"node-{number}") for number in (1, 2, 3)]
    for node in members:
        fleet.ec2.tags[node.instance_id]["Name"] = "gpu-worker"
    inventory = TagInventory(fleet.ec2, "lab", 10.0)
    listed = {node.instance_id: node.name for node in inventory.list("lab")}
    assert len(set(listed.values())) == len(listed)
    assert [listed[node.instance_id] for node in members] == ["ip-10-0-0-11", "ip-10-0-0-12", "ip-10-0-0-13"]
    assert inventory.resolve("lab", "ip-10-0-0-12").instance_id == members[1].instance_id
    fleet.ec2.tags[fleet.node("node-4").instance_id]["Name"] = "ip-10-0-0-12"
    assert TagInventory(fleet.ec2, "lab", 10.0).resolve("lab", members[1].instance_id).name == members[1].instance_id


@pytest.mark.parametrize("name", ["-oProxyCommand=touch /tmp/x", "GPU node 3", "a,b", "../../etc/passwd", "$(reboot)", "x\n"])
def test_a_tag_that_is_no_host_name_names_no_node(fleet: FakeFleet, name: str) -> None:
    """Names become words of launch commands, hosts of ssh and files on the head node."""
    fleet.ec2.tags[fleet.node("node-3").instance_id]["Name"] = name
    inventory = TagInventory(fleet.ec2, "lab", 10.0)
    assert inventory.resolve("lab", "i-00000000000000003").name == "ip-10-0-0-13"
    assert inventory.resolve("lab", name).instance_id == "i-00000000000000003"


def test_a_name_comes_before_a_host_name_of_another_node(fleet: FakeFleet) -> None:
    fleet.ec2.tags[fleet.node("node-3").instance_id]["Name"] = "ip-10-0-0-12"
    assert TagInventory(fleet.ec2, "lab", 10.0).resolve("lab", "ip-10-0-0-12").instance_id == "i-00000000000000003"


def test_the_tags_of_a_node_are_in_its_entry(fleet: FakeFleet) -> None:
    tags = {
        names.TAG_QUARANTINE: "incident/x",
        names.TAG_LEASE: "replace/y",
        names.TAG_FATE: "probation",
        names.TAG_SPINE: "rack-7",
    }
    fleet.ec2.tags[fleet.node("spare-1").instance_id].update(tags)
    node = TagInventory(fleet.ec2, "lab", 10.0).resolve("lab", "spare-1")
    assert (node.role, node.quarantine, node.lease, node.fate, node.spine) == (
        "spare",
        "incident/x",
        "replace/y",
        "probation",
        "rack-7",
    )
    assert (node.gpus, node.instance_type) == (8, "p5.48xlarge")


def test_an_answer_is_kept_for_a_while_but_a_new_alias_is_looked_for_at_once(fleet: FakeFleet) -> None:
    moment = 0.0
    inventory = TagInventory(fleet.ec2, "lab", 10.0, now=lambda: moment)
    inventory.resolve("lab", "node-1")
    inventory.resolve("lab", "node-2")
    assert fleet.count("describe_cluster") == 1
    fleet.ec2.tags[fleet.node("node-3").instance_id]["Name"] = "brand-new"
    assert inventory.resolve("lab", "brand-new").instance_id == "i-00000000000000003"
    assert fleet.count("describe_cluster") == 2
    moment = 11.0
    inventory.list("lab")
    assert fleet.count("describe_cluster") == 3


def test_a_listed_instance_that_is_gone_is_no_node(fleet: FakeFleet) -> None:
    listed = [ListedNode(instance_id="i-00000000000000001", name="a"), ListedNode(instance_id="i-0gone", name="b")]
    assert [node.name for node in ListInventory(fleet.ec2, "lab", listed).list("lab")] == ["a"]


def test_a_list_has_one_cluster_and_each_name_once(fleet: FakeFleet) -> None:
    with pytest.raises(BadInput, match="not of other"):
        ListInventory(fleet.ec2, "lab", []).list("other")
    twice = [ListedNode(instance_id="i-1", name="a"), ListedNode(instance_id="i-2", name="a")]
    with pytest.raises(BadInput, match="more than once: a"):
        ListInventory(fleet.ec2, "lab", twice)
