"""The books of Cluster: what is granted, what waits, what is booked without being judged."""

from __future__ import annotations

from datetime import datetime, timedelta

from activities.host_memory import Freeze
from activities.inventory import Node
from tests.decisions.situations import NOW
from workflows.cluster_messages import Alone, Answer, Ask, AskKind, ClusterState, Grant, Holding
from workflows.decisions import cluster_book
from workflows.decisions import cluster_entries as book
from workflows.decisions.settings import ClusterSettings

LIMITS = ClusterSettings()
SPARES = [
    Node(instance_id=f"i-s{number}", name=f"spare-{number}", role="spare", zone="a", spine=f"r{number}") for number in (1, 2)
]


def ask(node: str, kind: AskKind = AskKind.NODE_OUT, request: str = "", fault: str = "gpu_lost") -> Ask:
    """One ask of one node."""
    return Ask(
        request_id=request or f"{node}/{kind.value}",
        asker=f"incident/{node}",
        kind=kind,
        instance_id=node,
        fault_class=fault,
        zone="a",
    )


def judge(state: ClusterState, *asks: Ask, limits: ClusterSettings = LIMITS, at: datetime = NOW) -> cluster_book.Judgement:
    """Judge at a fixed time."""
    return cluster_book.judge_asks(state, list(asks), SPARES, limits, at.isoformat(), "lab")


def only(judged: cluster_book.Judgement) -> Answer:
    """The one answer."""
    ((_, answer),) = judged.answers
    return answer


def test_asking_again_with_the_same_id_gets_the_same_grant_and_no_second_one() -> None:
    first = judge(ClusterState(fleet=20), ask("i-1"))
    again = judge(first.state, ask("i-1"))
    assert only(first).granted
    assert only(again).granted
    assert len(again.state.grants) == 1


def test_the_third_node_waits_until_one_comes_back() -> None:
    state = judge(ClusterState(fleet=20), ask("i-1"), ask("i-2"), ask("i-3")).state
    assert [grant.instance_id for grant in state.grants] == ["i-1", "i-2"]
    assert [waiting.instance_id for waiting in state.queue] == ["i-3"]
    later = judge(book.give_back(state, ["i-1/node_out"]))
    assert only(later).granted
    assert not later.state.queue


def test_a_small_cluster_may_still_have_one_node_out() -> None:
    judged = judge(ClusterState(fleet=3), ask("i-1"), ask("i-2"))
    assert [answer.granted for _, answer in judged.answers] == [True, False]


def test_one_fault_on_many_nodes_is_a_storm_and_takes_none_of_them_out() -> None:
    judged = judge(ClusterState(fleet=10), *(ask(f"i-{number}") for number in range(6)))
    told = {asker for asker, answer in judged.answers if answer.alone is Alone.STORM}
    assert told == {f"incident/i-{number}" for number in range(6)}
    assert len({answer.storm_id for _, answer in judged.answers}) == 1
    assert not judged.state.grants


def test_a_node_that_reports_after_the_storm_was_recognised_belongs_to_it() -> None:
    state = judge(ClusterState(fleet=10), *(ask(f"i-{number}") for number in range(4))).state
    late = only(judge(state, ask("i-9"), at=NOW + timedelta(seconds=120)))
    assert (late.alone, late.storm_id) == (Alone.STORM, state.storms[0].storm_id)


def test_nodes_that_queued_before_the_storm_was_recognised_are_told_of_it() -> None:
    none = ClusterSettings(max_nodes_out=0)
    state = judge(ClusterState(fleet=8), *(ask(f"i-{number}") for number in range(3)), limits=none).state
    assert len(state.queue) == 3
    judged = judge(state, ask("i-9"), limits=none)
    assert {answer.alone for _, answer in judged.answers} == {Alone.STORM}
    assert len(judged.answers) == 4
    assert not judged.state.queue


def test_a_spare_is_leased_once() -> None:
    judged = judge(ClusterState(fleet=10), *(ask(f"i-{number}", AskKind.SPARE) for number in range(3)))
    leased = [answer.spare.instance_id for _, answer in judged.answers if answer.spare]
    assert sorted(leased) == ["i-s1", "i-s2"]
    assert not judged.answers[-1][1].granted
    assert "leased" in judged.answers[-1][1].reason


def test_the_nearest_spare_is_chosen_and_a_farther_one_says_so() -> None:
    near = ask("i-1", AskKind.SPARE).model_copy(update={"spine": "r2"})
    answer = only(judge(ClusterState(fleet=10), near))
    assert answer.spare is not None
    assert answer.spare.name == "spare-2"
    far = only(judge(ClusterState(fleet=10), near.model_copy(update={"spine": "r9"})))
    assert "another spine" in far.reason


def test_a_freeze_stops_new_disruption_and_never_a_lease() -> None:
    frozen = book.freeze(ClusterState(fleet=10), Freeze(scope="cluster", until=NOW + timedelta(hours=1), who="ann", why="demo"))
    judged = judge(frozen, ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), ask("i-1", AskKind.SPARE))
    assert [answer.granted for _, answer in judged.answers] == [False, False, True]
    assert "ann" in judged.answers[0][1].reason
    thawed = judge(book.thaw(judged.state, "cluster"))
    assert all(answer.granted for _, answer in thawed.answers)


def test_a_freeze_ends_by_itself() -> None:
    over = book.freeze(ClusterState(fleet=10), Freeze(scope="cluster", until=NOW - timedelta(seconds=1), who="ann", why=""))
    assert only(judge(over, ask("i-1"))).granted


def test_a_late_give_back_of_an_earlier_incident_does_not_free_the_present_one() -> None:
    state = judge(ClusterState(fleet=20), ask("i-1", request="earlier")).state
    state = judge(state, ask("i-1", request="present")).state
    state = book.give_back(state, ["earlier"])
    assert [grant.request_id for grant in state.grants] == ["present"]


def test_what_a_holder_says_it_holds_is_booked_once() -> None:
    grant = Grant(request_id="r", asker="incident/i-1", kind=AskKind.SPARE, instance_id="i-1", spare_id="i-s1", granted_at=NOW)
    said = Holding(asker=grant.asker, grants=[grant])
    state = book.book_holding(book.book_holding(ClusterState(fleet=9), said), said)
    assert state.grants == [grant]
    answer = only(judge(state, ask("i-2", AskKind.SPARE)))
    assert answer.spare is not None
    assert answer.spare.instance_id == "i-s2"


def test_a_holder_that_does_not_answer_counts_as_out_and_under_repair_until_it_does() -> None:
    limits = ClusterSettings(max_repairs=1)
    state = book.book_silent(ClusterState(fleet=5), ["incident/lab/i-7"], NOW)
    both = judge(state, ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), limits=limits)
    assert [answer.granted for _, answer in both.answers] == [False, False]
    state = book.book_holding(state, Holding(asker="incident/lab/i-7"))
    both = judge(state, ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), limits=limits)
    assert [answer.granted for _, answer in both.answers] == [True, True]


def test_a_holder_that_does_not_answer_counts_in_its_rack_too() -> None:
    limits = ClusterSettings(max_nodes_out=9, max_percent_out=100, max_nodes_out_per_domain=1)
    node = Node(instance_id="i-7", name="node-7", zone="a", spine="r1")
    state = book.book_silent(ClusterState(fleet=9), ["incident/lab/i-7"], NOW, [node])
    answer = only(judge(state, ask("i-1"), limits=limits))
    assert not answer.granted
    assert "1 nodes of zone:a are out" in answer.reason


def test_a_freeze_that_was_given_while_cluster_recovers_replaces_the_stored_one() -> None:
    stored = Freeze(scope="rack:r1", until=NOW + timedelta(days=9), who="ann", why="earlier")
    given = Freeze(scope="rack:r1", until=NOW + timedelta(hours=1), who="bob", why="now")
    assert book.with_stored(book.freeze(ClusterState(), given), [stored], []).freezes == [given]


def test_who_asks_again_is_told_what_it_waits_for_by_now() -> None:
    frozen = book.freeze(ClusterState(fleet=9), Freeze(scope="cluster", until=NOW + timedelta(hours=1), who="ann", why="demo"))
    state = judge(frozen, ask("i-1", fault="link")).state
    later = NOW + timedelta(seconds=LIMITS.alone_wait_s)
    assert "frozen" in only(judge(state, ask("i-1", fault="link"), at=later)).reason


def test_of_a_holder_that_has_ended_everything_is_free_but_a_spare_that_still_carries_its_lease() -> None:
    state = judge(ClusterState(fleet=10), ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), ask("i-1", AskKind.SPARE)).state
    suspect = book.release_gone(state, state.grants, leased={"i-s1"})
    assert [grant.kind for grant in suspect.grants] == [AskKind.SPARE]
    assert not book.release_gone(state, state.grants, leased=set()).grants


def partners(node: str, wanted: int = 2) -> Ask:
    """An incident asks for nodes to burn one in with."""
    return ask(node, AskKind.PARTNER).model_copy(update={"partners": wanted})


def test_a_spare_is_never_lent_and_leased_at_once() -> None:
    judged = judge(ClusterState(fleet=10), partners("i-1"), ask("i-2", AskKind.SPARE))
    answers = dict(judged.answers)
    leased = answers["incident/i-2"].spare
    assert leased is not None
    lent = answers["incident/i-1"].partners
    assert {leased.name, *(node.name for node in lent)} == {"spare-1", "spare-2"}
    assert len(lent) == 1


def test_who_wants_a_spare_that_is_lent_waits_for_it_and_is_told_so() -> None:
    lent = judge(ClusterState(fleet=10), partners("i-1"))
    assert [node.name for node in only(lent).partners] == ["spare-1", "spare-2"]
    waits = judge(lent.state, ask("i-2", AskKind.SPARE))
    assert (only(waits).granted, only(waits).queued) == (False, True)
    assert "is lent to a burn-in" in only(waits).reason
    back = judge(book.give_back(waits.state, ["i-1/partner"]))
    assert only(back).granted
    assert not back.state.queue


def test_a_node_that_asks_leave_is_told_of_a_spare_that_is_only_lent() -> None:
    lent = judge(ClusterState(fleet=10), partners("i-1")).state
    assert only(judge(lent, ask("i-2"))).spare_free
    leased = judge(ClusterState(fleet=10), ask("i-8", AskKind.SPARE), ask("i-9", AskKind.SPARE)).state
    assert not only(judge(leased, ask("i-2"))).spare_free


def test_partners_of_an_incident_that_is_gone_are_free_and_those_of_one_that_says_so_are_booked_again() -> None:
    state = judge(ClusterState(fleet=10), partners("i-1")).state
    assert not book.release_gone(state, state.grants, set()).grants
    anew = book.book_holding(ClusterState(fleet=10), Holding(asker="incident/i-1", grants=state.grants))
    assert only(judge(anew, ask("i-2", AskKind.SPARE))).queued


def test_two_proofs_share_the_last_spare_one_after_the_other_and_who_wants_it_for_good_goes_first() -> None:
    state = judge(ClusterState(fleet=10), ask("i-1", AskKind.SPARE), partners("i-1")).state
    waits = judge(state, partners("i-2"), ask("i-3", AskKind.SPARE))
    assert [answer.queued for _, answer in waits.answers] == [True, True]
    back = judge(book.give_back(waits.state, ["i-1/partner"]))
    assert {asker: answer.granted for asker, answer in back.answers} == {"incident/i-3": True, "incident/i-2": False}
    assert not back.state.queue


def test_a_pool_in_which_everything_is_leased_lends_nothing_and_says_why() -> None:
    state = judge(ClusterState(fleet=10), ask("i-1", AskKind.SPARE), ask("i-2", AskKind.SPARE)).state
    answer = only(judge(state, partners("i-1")))
    assert not answer.granted
    assert not answer.queued
    assert "spare-2: leased" in answer.reason
