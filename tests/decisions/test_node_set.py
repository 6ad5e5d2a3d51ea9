"""The books of a job's node set: nobody comes in who was not asked for, nobody is counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from activities.incidents import NodeGivenUp, NodeIn, NodeOut
from workflows.decisions.node_set import NodeSet


def node_out(number: int, token: str = "first", restart_only: bool = False) -> NodeOut:
    """node-`number` is out."""
    return NodeOut(
        incident=f"incident/i-{number}",
        instance_id=f"i-{number}",
        node_name=f"node-{number}",
        reason="XID 79",
        token=token,
        restart_only=restart_only,
    )


def node_in(replaces: int, name: str) -> NodeIn:
    """`name` comes in for node-`replaces`."""
    return NodeIn(incident=f"incident/i-{replaces}", instance_id=f"i-of-{name}", node_name=name, replaces=f"i-{replaces}")


def job_set() -> NodeSet:
    """The node set of a job on node-1 to node-4."""
    books = NodeSet()
    books.begin(["node-1", "node-2", "node-3", "node-4"])
    return books


def test_a_spare_takes_the_place_of_the_node_that_is_out() -> None:
    books = job_set()
    books.out(node_out(2))
    assert books.unanswered() == ["node-2"]
    books.come_in(node_in(2, "spare-1"))
    assert books.nodes() == ["node-1", "spare-1", "node-3", "node-4"]
    assert books.unanswered() == []


def test_a_repeated_message_is_no_second_time_out_but_a_new_one_is() -> None:
    books = job_set()
    books.out(node_out(2))
    books.come_in(node_in(2, "node-2"))
    books.out(node_out(2))
    assert books.unanswered() == []
    books.out(node_out(2, token="second"))
    assert books.unanswered() == ["node-2"]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    books = job_set()
    books.come_in(node_in(3, "spare-1"))
    assert books.nodes() == ["node-1", "node-2", "node-3", "node-4"]


def test_a_restart_owes_no_node() -> None:
    books = job_set()
    books.out(node_out(1, restart_only=True))
    assert books.unanswered() == []
    books.read_news()
    assert books.settle() == ["incident/i-1"]


def test_a_spare_that_failed_its_burn_in_leaves_its_place_open_again() -> None:
    books = job_set()
    books.out(node_out(2))
    books.come_in(node_in(2, "spare-1"))
    supplier = books.supplied_by("i-of-spare-1")
    assert supplier is not None
    assert supplier.incident == "incident/i-2"
    books.await_answer("i-of-spare-1", "spare-1")
    assert books.unanswered() == ["node-2"]


def test_a_node_given_up_is_no_longer_waited_for() -> None:
    books = job_set()
    books.out(node_out(2))
    books.give_up(NodeGivenUp(incident="incident/i-2", instance_id="i-2", reason="no spare"))
    assert books.unanswered() == []
    assert books.given_up == ["node-2: no spare"]


def test_a_spare_that_falls_out_later_is_replaced_in_its_place() -> None:
    books = job_set()
    books.out(node_out(2))
    books.come_in(node_in(2, "spare-1"))
    books.out(NodeOut(incident="incident/i-s1", instance_id="i-s1", node_name="spare-1", reason="XID 64", token="t"))
    books.come_in(NodeIn(incident="incident/i-s1", instance_id="i-s2", node_name="spare-2", replaces="i-s1"))
    assert books.nodes() == ["node-1", "spare-2", "node-3", "node-4"]


def test_an_incident_that_fell_out_after_the_resume_is_not_told_of_it() -> None:
    books = job_set()
    books.out(node_out(1))
    books.come_in(node_in(1, "spare-1"))
    books.read_news()
    books.out(node_out(3))
    assert books.settle() == ["incident/i-1"]
    assert books.unanswered() == ["node-3"]
    assert books.nodes() == ["spare-1", "node-2", "node-3", "node-4"]


def test_a_spare_whose_supplier_is_gone_is_a_member_like_any_other() -> None:
    books = job_set()
    books.out(node_out(2))
    books.come_in(node_in(2, "spare-1"))
    books.keep("i-of-spare-1", "spare-1")
    books.await_answer("i-of-spare-1", "spare-1")
    assert books.unanswered() == ["spare-1"]
    books.come_in(NodeIn(incident="incident/i-s1", instance_id="i-s2", node_name="spare-2", replaces="i-of-spare-1"))
    books.out(NodeOut(incident="incident/i-s1", instance_id="i-of-spare-1", node_name="spare-1", reason="slow", token="t"))
    books.come_in(NodeIn(incident="incident/i-s1", instance_id="i-s2", node_name="spare-2", replaces="i-of-spare-1"))
    assert books.nodes() == ["node-1", "spare-2", "node-3", "node-4"]


def test_a_node_that_was_repaired_and_came_in_for_another_is_not_taken_for_its_own_stand_in() -> None:
    books = job_set()
    books.out(node_out(1))
    books.come_in(node_in(1, "spare-1"))
    books.out(node_out(3))
    books.come_in(node_in(3, "node-1"))
    assert books.nodes() == ["spare-1", "node-2", "node-1", "node-4"]
    books.out(node_out(1, token="again"))
    books.come_in(node_in(1, "spare-2"))
    assert books.nodes() == ["spare-1", "node-2", "spare-2", "node-4"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_whoever_falls_out_and_comes_in_in_any_order_nobody_is_there_twice(moves: list[tuple[bool, int, int]]) -> None:
    books, members, pool = job_set(), {"node-1", "node-2", "node-3", "node-4"}, ["spare-1", "spare-2"]
    owed: list[str] = []
    for number, (falls_out, which, by) in enumerate(moves):
        well = sorted(members - set(owed))
        if falls_out and len(owed) < 2:
            name = well[which % len(well)]
            books.out(NodeOut(incident=name, instance_id=name, node_name=name, reason="XID 79", token=str(number)))
            owed.append(name)
        elif owed:
            name = owed.pop(which % len(owed))
            comes = [*pool, name][by % (len(pool) + 1)]  # a spare, or itself after its repair
            pool = [one for one in [*pool, name] if one != comes]
            members = (members - {name}) | {comes}
            books.come_in(NodeIn(incident=name, instance_id=comes, node_name=comes, replaces=name))
        if not owed:
            assert sorted(books.nodes()) == sorted(members)
        if not owed and by == 0:
            books.read_news()
            books.settle()


def test_a_spare_that_was_taken_back_and_leased_anew_is_in_the_job_once() -> None:
    books = job_set()
    books.out(node_out(2))
    books.come_in(node_in(2, "spare-1"))
    books.out(node_out(4))
    books.come_in(node_in(4, "spare-1"))
    assert books.nodes().count("spare-1") == 1
    assert books.unanswered() == ["node-2"]
