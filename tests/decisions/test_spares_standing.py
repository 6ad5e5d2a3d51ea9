"""When a spare counts, who is taken first, when it is tested, and who waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.host_records import HostRecord, RungAttempt, SpareRecord, SpareTest
from activities.inventory import Node
from activities.names import FATE_IN_SERVICE, FATE_PROBATION
from checks.model import Action, Verdict
from tests.decisions.situations import NOW, facts
from workflows.cluster_messages import Ask, AskKind, ClusterState
from workflows.decisions.cluster_book import Judgement, judge_asks
from workflows.decisions.cluster_entries import give_back
from workflows.decisions.ladder import rungs_for
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.decisions.spares_settings import SpareSettings
from workflows.decisions.spares_standing import Rank, standing_of
from workflows.decisions.spares_tests import PoolSeen, plan_spare_tests

RULES = SpareSettings()
PROBATION_H = PolicySettings().probation_h
ACTS = PolicySettings(mode=Mode.ACT)


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def record(
    name: str = "i-1",
    passed_h: float | None = None,
    failed_h: float | None = None,
    repaired_h: float | None = None,
    ban: str = "",
) -> SpareRecord:
    """A spare that passed, failed or was repaired so many hours ago."""
    tests = [(passed_h, Verdict.OK), (failed_h, Verdict.CRITICAL)]
    known = sorted((ago, verdict) for ago, verdict in tests if ago is not None)
    test = SpareTest(at=NOW - hours(known[0][0]), verdict=known[0][1], because=["busbw 212 below 400"]) if known else None
    return SpareRecord(
        instance_id=name,
        test=test,
        qualified_at=None if passed_h is None else NOW - hours(passed_h),
        repaired_at=None if repaired_h is None else NOW - hours(repaired_h),
        bans=[ban] if ban else [],
    )


@pytest.mark.parametrize(
    ("known", "rank", "words"),
    [
        (record(passed_h=3), Rank.QUALIFIED, "passed 3 h ago"),
        (record(passed_h=47.9), Rank.QUALIFIED, "passed 48 h ago"),
        (record(passed_h=49), Rank.UNPROVEN, "has expired: it passed 2 days ago"),
        (record(), Rank.UNPROVEN, "never tested"),
        (None, Rank.UNPROVEN, "nothing is known"),
        (record(passed_h=30, failed_h=2), Rank.REFUSED, "failed its test 2 h ago: busbw 212 below 400"),
        (record(passed_h=1, failed_h=2), Rank.QUALIFIED, "passed 60 min ago"),
        (record(passed_h=3, repaired_h=3), Rank.ON_PROBATION, "on probation since its repair 3 h ago"),
        (record(passed_h=3, repaired_h=169), Rank.QUALIFIED, "passed 3 h ago"),
        (record(passed_h=49, repaired_h=49), Rank.UNPROVEN, "expired"),
        (record(passed_h=1, ban="GPU 165 is known bad since 2026-11-01: XID 64 (ann)"), Rank.REFUSED, "known bad"),
    ],
)
def test_a_spare_stands_by_what_is_known_of_it(known: SpareRecord | None, rank: Rank, words: str) -> None:
    standing = standing_of(known, RULES, PROBATION_H, NOW)
    assert standing.rank is rank
    assert words in standing.reason
    assert standing.counts is (rank in (Rank.QUALIFIED, Rank.ON_PROBATION))


def test_a_test_that_gave_no_result_neither_qualifies_nor_bans() -> None:
    unsure = SpareRecord(instance_id="i-1", test=SpareTest(at=NOW, verdict=Verdict.UNKNOWN, because=["not free"]))
    assert standing_of(unsure, RULES, PROBATION_H, NOW).rank is Rank.UNPROVEN
    assert "not free" in standing_of(unsure, RULES, PROBATION_H, NOW).reason
    passed_before = unsure.model_copy(update={"qualified_at": NOW - hours(5)})
    assert standing_of(passed_before, RULES, PROBATION_H, NOW).rank is Rank.QUALIFIED


def spare(number: int, zone: str = "a", spine: str = "r1", **more: str) -> Node:
    known = {"instance_id": f"i-s{number}", "name": f"spare-{number}", "role": "spare", "zone": zone, "spine": spine}
    return Node.model_validate({**known, **more})


def ask(node: str = "i-1", kind: AskKind = AskKind.SPARE, **more: object) -> Ask:
    known = {"request_id": f"{node}/{kind.value}", "asker": f"replace/lab/{node}", "kind": kind, "instance_id": node}
    return Ask.model_validate({**known, "zone": "a", "spine": "r1", **more})


def judge(state: ClusterState, spares: list[Node], known: list[SpareRecord], *asks: Ask) -> Judgement:
    standings = {one.instance_id: standing_of(one, RULES, PROBATION_H, NOW) for one in known}
    return judge_asks(state, list(asks), spares, ClusterSettings(), NOW.isoformat(), "lab", standings)


def leased(spares: list[Node], *known: SpareRecord) -> tuple[str, str]:
    """The spare that one node gets, and the reason."""
    ((_, answer),) = judge(ClusterState(fleet=20), spares, list(known), ask()).answers
    return answer.spare.name if answer.spare else "", answer.reason


def test_a_qualified_spare_on_another_spine_comes_before_a_nearer_one_that_is_not() -> None:
    pool = [spare(1), spare(2, spine="r2"), spare(3, spine="r3"), spare(4, zone="b")]
    known = [record("i-s2", passed_h=2, repaired_h=2), record("i-s3", passed_h=4), record("i-s4", passed_h=1)]
    assert leased(pool, *known)[0] == "spare-3"
    assert leased(pool[:2], *known)[0] == "spare-2"
    assert "on probation" in leased(pool[:2], *known)[1]


def test_an_unproven_spare_in_the_zone_comes_before_a_qualified_one_in_another_and_is_tested_whole() -> None:
    name, why = leased([spare(1), spare(4, zone="b")], record("i-s1"), record("i-s4", passed_h=1))
    assert name == "spare-1"
    assert "not qualified, was never tested: it is tested whole before it joins" in why


def test_a_spare_that_failed_its_test_or_has_a_banned_gpu_is_not_leased_at_all() -> None:
    pool = [spare(1), spare(2)]
    name, why = leased(pool, record("i-s1", failed_h=1), record("i-s2", passed_h=1, ban="GPU 165 is known bad: XID 64 (ann)"))
    assert name == ""
    assert "spare-1: failed its test" in why
    assert "spare-2: GPU 165 is known bad" in why


def test_three_nodes_and_one_spare_the_one_with_the_most_gpus_waiting_gets_it_and_the_others_wait_their_turn() -> None:
    pool, known = [spare(1)], [record("i-s1", passed_h=1)]
    asks = [ask(f"i-{number}", impact=impact, waits=True) for number, impact in ((1, 64), (2, 2048), (3, 512))]
    out = judge(ClusterState(fleet=20), pool, known, ask("i-1", AskKind.NODE_OUT), ask("i-2", AskKind.NODE_OUT)).state
    state = judge(out, pool, known, *asks).state
    assert [grant.spare_id for grant in state.grants] == ["", "", "i-s1"]
    assert state.grants[-1].instance_id == "i-2"
    assert [waiting.instance_id for waiting in state.queue] == ["i-3", "i-1"]
    assert "spare-1: leased" in state.queue[0].waits_for
    served = []
    for _ in range(2):
        state = judge(give_back(state, [state.grants[-1].request_id]), pool, known).state
        served.append(state.grants[-1].instance_id)
    assert served == ["i-3", "i-1"]
    assert not state.queue


def test_who_can_do_something_else_meanwhile_is_told_at_once_that_no_spare_is_free() -> None:
    pool, known = [spare(1)], [record("i-s1", passed_h=1)]
    state = judge(ClusterState(fleet=20), pool, known, ask("i-1"), ask("i-1", AskKind.NODE_OUT)).state
    judged = judge(state, pool, known, ask("i-2"), ask("i-3", waits=True))
    told = {asker: (answer.granted, answer.queued) for asker, answer in judged.answers}
    assert told == {"replace/lab/i-2": (False, False), "replace/lab/i-3": (False, True)}
    over = judge(give_back(judged.state, ["i-1/node_out"]), pool, known)
    ((_, answer),) = over.answers
    assert (answer.granted, answer.queued, over.state.queue) == (False, False, [])


def test_nobody_waits_for_a_pool_that_cannot_help() -> None:
    useless = [spare(1, fate="retired"), spare(2, instance_type="p5e.48xlarge"), spare(3)]
    known = [record("i-s3", failed_h=1)]
    for pool in ([], useless):
        judged = judge(ClusterState(fleet=20), pool, known, ask("i-1", waits=True, instance_type="p5.48xlarge"))
        ((_, answer),) = judged.answers
        assert (answer.granted, answer.queued) == (False, False)


def test_a_spare_is_lent_for_its_own_test_and_who_wants_it_meanwhile_gets_it_afterwards() -> None:
    pool = [spare(1), spare(2)]
    test = ask("i-s1", AskKind.PARTNER, only="i-s1", partners=1)
    state = judge(ClusterState(fleet=20), pool, [record("i-s1", failed_h=30)], test).state
    assert state.grants[0].partners == ["i-s1"]
    taken = judge(state, pool, [], ask("i-1"), ask("i-2")).state
    assert [grant.spare_id for grant in taken.grants] == ["", "i-s2"]
    assert "is lent to a burn-in or a test" in taken.queue[0].waits_for
    after = judge(give_back(taken, ["i-s1/partner"]), pool, []).state
    assert sorted(grant.spare_id for grant in after.grants) == ["i-s1", "i-s2"]


def test_no_spare_is_tested_while_a_node_waits_for_one_or_while_it_is_in_use() -> None:
    pool = [spare(1), spare(2, quarantine="incident/lab/i-s2")]
    state = judge(ClusterState(fleet=20), pool, [], ask("i-1"), ask("i-2", waits=True)).state
    assert [waiting.instance_id for waiting in state.queue] == ["i-2"]
    for name in ("i-s1", "i-s2"):
        judged = judge(state, pool, [], ask(name, AskKind.PARTNER, only=name, partners=1))
        refused = [answer for asker, answer in judged.answers if asker == f"replace/lab/{name}"]
        assert [(answer.granted, answer.queued) for answer in refused] == [(False, False)]
    assert "a node waits for a spare" in refused[0].reason


def due(nodes: list[Node], *known: SpareRecord, rules: SpareSettings = RULES, policy: PolicySettings = ACTS) -> list[str]:
    plan = plan_spare_tests(PoolSeen(nodes=nodes, records=list(known), now=NOW), rules, policy)
    assert set(plan.left_alone) | {node.name for node in plan.due} == {node.name for node in nodes if node.role == "spare"}
    return [node.name for node in plan.due]


def test_the_untested_come_first_then_the_oldest_and_few_at_once() -> None:
    pool = [spare(1), spare(2), spare(3), Node(instance_id="i-1", name="node-1")]
    known = [record("i-s1", passed_h=21), record("i-s2"), record("i-s3", passed_h=40)]
    assert due(pool, *known) == ["spare-2"]
    assert due(pool, *known, rules=RULES.model_copy(update={"tests_at_once": 2})) == ["spare-2", "spare-3"]
    assert due(pool, record("i-s1", passed_h=21), record("i-s2", failed_h=2), record("i-s3", passed_h=19)) == ["spare-1"]


def test_a_spare_that_is_in_use_kept_out_or_just_tested_is_left_alone() -> None:
    busy = [
        spare(1, quarantine="incident/lab/i-s1"),
        spare(2, lease="replace/lab/i-2"),
        spare(3, opt_out="ann debugs it"),
        spare(4, fate="retired"),
        spare(5, state="stopped"),
    ]
    assert due(busy) == []
    assert due([spare(6)], record("i-s6", passed_h=1)) == []


def test_no_test_runs_where_nothing_may_be_done_or_tests_are_off() -> None:
    assert due([spare(1)], policy=PolicySettings()) == []
    assert due([spare(1)], rules=RULES.model_copy(update={"tests_at_once": 0})) == []
    some = PolicySettings(mode_by_rung={Action.REBOOT_NODE: Mode.APPROVE})
    assert due([spare(1)], policy=some) == ["spare-1"]


def came_back(days: float, fate: str) -> tuple[Action, ...]:
    """The rungs that are left to a node whose reboot helped so many days ago."""
    tried = RungAttempt(rung=Action.REBOOT_NODE, at=NOW - timedelta(days=days), fault_class="gpu_lost", helped=True)
    return rungs_for(facts(record=HostRecord(instance_id="i-1", attempts=[tried], fate=fate)), ACTS).left


def test_a_fault_that_comes_back_on_probation_starts_one_rung_up_for_a_week_and_else_for_a_day() -> None:
    assert Action.REBOOT_NODE not in came_back(0.5, FATE_IN_SERVICE)
    assert Action.REBOOT_NODE in came_back(3, FATE_IN_SERVICE)
    assert came_back(3, FATE_PROBATION) == (Action.POWER_CYCLE, Action.REPLACE_NODE)
    assert Action.REBOOT_NODE in came_back(8, FATE_PROBATION)
