"""What a job of a controller is given and kept off, as its recovery books it."""

from __future__ import annotations

from activities.incidents import NodeIn, NodeOut
from workflows.decisions.node_set import NodeSet


def out(name: str, *, restart_only: bool = False) -> NodeOut:
    incident = f"incident/lab/i-{name}"
    return NodeOut(incident=incident, instance_id=f"i-{name}", node_name=name, reason="XID 79", restart_only=restart_only)


def come_in(name: str, replaces: str) -> NodeIn:
    incident = f"incident/lab/i-{replaces}"
    return NodeIn(incident=incident, instance_id=f"i-{name}", node_name=name, replaces=f"i-{replaces}", proof="passed in a pair")


def test_a_node_that_was_repaired_where_it_is_is_neither_supplied_nor_left_even_where_its_rank_was_not_seen() -> None:
    nodes = NodeSet()
    nodes.out(out("node-2"))
    nodes.begin(["node-1", "node-3", "node-4"])
    assert nodes.replaced() == ["node-2"]
    nodes.come_in(come_in("node-2", "node-2"))
    assert (nodes.newcomers(), nodes.replaced()) == ([], [])


def test_a_spare_is_supplied_and_the_node_that_it_stands_in_for_is_left() -> None:
    nodes = NodeSet()
    nodes.out(out("node-2"))
    nodes.out(out("node-1", restart_only=True))
    nodes.begin(["node-1", "node-2", "node-3"])
    nodes.come_in(come_in("spare-1", "node-2"))
    assert (nodes.newcomers(), nodes.replaced()) == (["spare-1"], ["node-2"])
