"""Limits of domains, jobs and pools, windows, breaker, storms: they stop new disruption, with the reason, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from activities.host_memory import Freeze
from activities.inventory import Node
from workflows.cluster_messages import Alone, Answer, Ask, AskKind, Breaker, BreakerState, ClusterState, FleetView
from workflows.decisions import cluster_entries as entries
from workflows.decisions.cluster_book import Judgement, judge_asks
from workflows.decisions.fleet_view import fleet_view
from workflows.decisions.settings import ClusterSettings
from workflows.decisions.windows import Window

NOW = datetime(2026, 11, 4, 3, 0, tzinfo=UTC)  # a Wednesday
WIDE: dict[str, Any] = {
    "max_nodes_out": 50,
    "max_percent_out": 100,
    "max_repairs": 50,
    "max_nodes_out_per_domain": 50,
    "max_percent_out_per_domain": 100,
    "max_nodes_out_per_job": 50,
    "breaker_nodes": 1000,
    "storm_nodes": 1000,
    "storm_domain_nodes": 1000,
}
"""Limits that hold nothing back, so that a test narrows the one it is about."""


def limits(**changed: Any) -> ClusterSettings:
    return ClusterSettings(**{**WIDE, **changed})


def ask(node: str, kind: AskKind = AskKind.NODE_OUT, **more: Any) -> Ask:
    given = {"fault_class": f"class of {node}", "zone": "us-east-1a", "spine": "r1", "pool": "p5.48xlarge", **more}
    return Ask(request_id=f"{node}/{kind.value}", asker=f"incident/{node}", kind=kind, instance_id=node, **given)


def books(nodes: int = 100, **changed: Any) -> ClusterState:
    view = FleetView(nodes=nodes, domains={"zone:us-east-1a": nodes, "rack:r1": 8, "rack:r2": 8}, pools={"p5.48xlarge": nodes})
    return ClusterState(**{"fleet": nodes, "view": view, **changed})


def judge(state: ClusterState, *asks: Ask, under: ClusterSettings, at: datetime = NOW) -> Judgement:
    return judge_asks(state, list(asks), [], under, at.isoformat(), "lab")


def answers(judged: Judgement) -> dict[str, Answer]:
    return {answer.request_id.partition("/")[0]: answer for _, answer in judged.answers}


def test_a_rack_has_a_limit_of_its_own_and_the_reason_names_it() -> None:
    under = limits(max_nodes_out_per_domain=2)
    far = ask("i-4", spine="r2", zone="us-east-1b")
    told = answers(judge(books(), ask("i-1"), ask("i-2"), ask("i-3"), far, under=under))
    assert [name for name, answer in told.items() if answer.granted] == ["i-1", "i-2", "i-4"]
    assert "zone:us-east-1a" in told["i-3"].reason


def test_a_share_of_a_rack_never_falls_below_one_node() -> None:
    told = answers(judge(books(), ask("i-1"), ask("i-2"), under=limits(max_percent_out_per_domain=1)))
    assert (told["i-1"].granted, told["i-2"].granted) == (True, False)


def test_a_job_has_a_limit_and_other_jobs_go_on() -> None:
    under = limits(max_nodes_out_per_job=1)
    asks = [ask("i-1", job="a"), ask("i-2", job="a"), ask("i-3", job="b"), ask("i-4")]
    told = answers(judge(books(), *asks, under=under))
    assert {name: answer.granted for name, answer in told.items()} == {"i-1": True, "i-2": False, "i-3": True, "i-4": True}
    assert "job a" in told["i-2"].reason


def test_a_pool_keeps_its_fewest_usable_nodes() -> None:
    state = books(view=FleetView(nodes=5, pools={"p5.48xlarge": 5}))
    told = answers(judge(state, ask("i-1"), ask("i-2"), under=limits(min_usable={"p5.48xlarge": 4})))
    assert (told["i-1"].granted, told["i-2"].granted) == (True, False)
    assert "fewest allowed are 4" in told["i-2"].reason


def test_usable_is_what_runs_and_nobody_has_given_up() -> None:
    nodes = [
        Node(instance_id="i-1", name="a", instance_type="p5.48xlarge", zone="z", spine="r1"),
        Node(instance_id="i-2", name="b", instance_type="p5.48xlarge", state="stopped"),
        Node(instance_id="i-3", name="c", instance_type="p5.48xlarge", fate="retired"),
        Node(instance_id="i-4", name="d", instance_type="p5.48xlarge", pool="research", opt_out="a person debugs it"),
    ]
    view = fleet_view(nodes)
    assert view.pools == {"p5.48xlarge": 1, "research": 1}
    assert view.domains == {"zone:z": 1, "rack:r1": 1}
    assert view.opted_out == {"i-4": "a person debugs it"}


@pytest.mark.parametrize("kind", [AskKind.NODE_OUT, AskKind.REPAIR_SLOT])
def test_a_node_that_opts_out_meanwhile_gets_no_new_disruption(kind: AskKind) -> None:
    state = books(view=FleetView(nodes=9, opted_out={"i-1": "ann debugs it"}))
    told = answers(judge(state, ask("i-1", kind), under=limits()))
    assert not told["i-1"].granted
    assert "ann debugs it" in told["i-1"].reason


NIGHT = Window.model_validate({"days": ["Tue"], "begins": "22:00", "ends": "06:00"})


@pytest.mark.parametrize(("at", "granted"), [(NOW, True), (NOW + timedelta(hours=3), False), (NOW - timedelta(days=1), False)])
def test_a_window_that_began_last_night_is_open_until_its_morning(at: datetime, granted: bool) -> None:
    told = answers(judge(books(), ask("i-1", AskKind.REPAIR_SLOT), under=limits(windows=[NIGHT]), at=at))
    assert told["i-1"].granted is granted
    assert granted or "the next one begins Tue" in told["i-1"].reason


def test_a_window_of_one_rack_binds_that_rack_alone_and_never_a_quarantine() -> None:
    closed = Window.model_validate({"scope": "rack:r1", "days": ["Sat"], "begins": "01:00", "ends": "02:00"})
    asks = [ask("i-1", AskKind.REPAIR_SLOT), ask("i-2", AskKind.REPAIR_SLOT, spine="r2"), ask("i-3")]
    told = answers(judge(books(), *asks, under=limits(windows=[closed])))
    assert {name: answer.granted for name, answer in told.items()} == {"i-1": False, "i-2": True, "i-3": True}


def test_a_window_on_no_known_day_is_refused() -> None:
    with pytest.raises(ValidationError, match="Caturday"):
        Window.model_validate({"days": ["Caturday"], "begins": "01:00", "ends": "02:00"})


def test_the_greatest_impact_goes_first_whoever_came_earlier() -> None:
    under = limits(max_nodes_out=1)
    state = judge(books(), ask("i-0"), ask("i-1", impact=8), ask("i-2", impact=512), under=under).state
    assert [grant.instance_id for grant in state.grants] == ["i-2"]
    freed = judge(entries.give_back(state, ["i-2/node_out"]), under=under)
    assert [grant.instance_id for grant in freed.state.grants] == ["i-1"]
    assert [waiting.instance_id for waiting in freed.state.queue] == ["i-0"]


def test_a_burst_opens_the_breaker_and_says_so() -> None:
    under = limits(breaker_nodes=4, breaker_percent=4)
    judged = judge(books(), *(ask(f"i-{number}") for number in range(5)), under=under)
    assert judged.state.breaker.state is BreakerState.OPEN
    assert not judged.state.grants
    assert all("the breaker is open: 5 of 100 nodes" in answer.reason for answer in answers(judged).values())


def test_half_open_tries_one_node_and_its_repair_closes_the_breaker() -> None:
    under = limits(breaker_nodes=4, breaker_percent=4)
    state = judge(books(), *(ask(f"i-{number}", impact=number) for number in range(5)), under=under).state
    later = NOW + timedelta(seconds=under.breaker_open_s)
    tried = judge(state, under=under, at=later).state
    assert [grant.instance_id for grant in tried.grants] == ["i-4"]
    slots = answers(judge(tried, ask("i-4", AskKind.REPAIR_SLOT), ask("i-9", AskKind.REPAIR_SLOT), under=under, at=later))
    assert (slots["i-4"].granted, slots["i-9"].granted) == (True, False)
    healed = entries.give_back(tried, ["i-4/node_out"], healed=True)
    closed = judge(healed, under=under, at=later + timedelta(minutes=10)).state
    assert closed.breaker.state is BreakerState.CLOSED
    assert len(closed.grants) == 4


def test_a_trial_that_did_not_help_opens_the_breaker_again() -> None:
    under = limits(breaker_nodes=4, breaker_percent=4)
    state = judge(books(), *(ask(f"i-{number}") for number in range(5)), under=under).state
    later = NOW + timedelta(seconds=under.breaker_open_s)
    tried = judge(state, under=under, at=later).state
    in_vain = entries.give_back(tried, [tried.grants[0].request_id], healed=False)
    again = judge(in_vain, under=under, at=later).state
    assert again.breaker.state is BreakerState.OPEN
    assert not again.grants


def test_repairs_in_a_row_that_do_not_help_open_the_breaker_and_one_that_does_starts_the_count_anew() -> None:
    under = limits(breaker_failed_repairs=2)

    def ended(state: ClusterState, node: str, healed: bool) -> ClusterState:
        out = judge(state, ask(node), under=under).state
        return judge(entries.give_back(out, [f"{node}/node_out"], healed=healed), ask("i-x"), under=under).state

    state = ended(ended(ended(books(), "i-1", False), "i-2", True), "i-3", False)
    assert state.breaker.state is BreakerState.CLOSED
    assert ended(state, "i-4", False).breaker.state is BreakerState.OPEN


def test_an_open_breaker_is_kept_in_host_memory_and_open_after_a_new_start() -> None:
    opened = books(breaker=Breaker(state=BreakerState.OPEN, since=NOW, reason="a burst"))
    back = entries.with_stored(books(), entries.to_store(opened), [])
    assert (back.breaker.state, back.breaker.reason, back.breaker.since) == (BreakerState.OPEN, "a burst", NOW)
    assert back.freezes == []
    assert entries.thaw(back, "breaker").breaker.state is BreakerState.CLOSED


def test_a_freeze_takes_back_a_slot_that_was_given_and_leaves_the_node_out() -> None:
    state = judge(books(), ask("i-1"), ask("i-1", AskKind.REPAIR_SLOT), ask("i-2", AskKind.REPAIR_SLOT), under=limits()).state
    asked = Freeze(scope="node:i-1", until=NOW + timedelta(hours=1), who="ann", why="looking at it")
    frozen = entries.take_back_frozen(entries.freeze(state, asked))
    assert {(grant.instance_id, grant.kind) for grant in frozen.grants} == {
        ("i-1", AskKind.NODE_OUT),
        ("i-2", AskKind.REPAIR_SLOT),
    }
    [(asker, answer)] = frozen.outbox
    assert (asker, answer.granted) == ("incident/i-1", False)
    assert "ann" in answer.reason


def test_a_shared_kind_of_fault_waits_a_moment_for_company_and_a_lost_gpu_does_not() -> None:
    judged = judge(books(), ask("i-1", fault_class="link"), ask("i-2", fault_class="gpu_lost"), under=limits())
    told = answers(judged)
    assert (told["i-1"].granted, told["i-1"].queued, told["i-2"].granted) == (False, True, True)
    assert judged.look_again_s == limits().alone_wait_s
    later = judge(judged.state, under=limits(), at=NOW + timedelta(seconds=limits().alone_wait_s))
    assert answers(later)["i-1"].granted


def test_half_a_rack_with_link_faults_is_one_event_of_the_rack_though_few_of_the_cluster() -> None:
    under = limits(storm_domain_nodes=3)
    asks = [ask(f"i-{number}", fault_class="link") for number in range(4)]
    elsewhere = ask("i-9", fault_class="link", spine="r2", zone="us-east-1b")
    told = answers(judge(books(), *asks, elsewhere, under=under))
    assert {told[one.instance_id].alone for one in asks} == {Alone.STORM}
    assert "rack:r1" in told["i-0"].reason
    assert told["i-9"].alone is Alone.ALONE


def test_a_job_that_crashed_on_its_nodes_is_one_event_and_another_jobs_crash_is_another() -> None:
    under = limits(storm_nodes=4, storm_percent=30)
    crashed = [ask(f"i-{number}", AskKind.ALONE, fault_class="application", job="a") for number in range(5)]
    other = ask("i-9", AskKind.ALONE, fault_class="application", job="b")
    judged = judge(books(1000), *crashed, other, under=under)
    told = answers(judged)
    assert {told[one.instance_id].alone for one in crashed} == {Alone.STORM}
    assert told["i-9"].queued
    assert judged.state.breaker.state is BreakerState.CLOSED


def test_the_books_of_a_great_cluster_stay_small() -> None:
    under = ClusterSettings()
    asks = [ask(f"i-{number:017d}", spine=f"r{number % 300}", impact=number) for number in range(200)]
    view = FleetView(nodes=10_000, domains={f"rack:r{number}": 33 for number in range(300)}, pools={"p5.48xlarge": 10_000})
    state = judge(ClusterState(fleet=10_000, view=view), *asks, under=under).state
    assert len(state.queue) + len(state.grants) == 200
    assert len(state.model_dump_json()) < 256_000


def test_what_is_reported_of_a_storms_nodes_again_is_no_news_and_another_node_later_is_its_own() -> None:
    under = limits(storm_nodes=4, storm_percent=4)
    first = judge(books(), *(ask(f"i-{number}", fault_class="gpu_lost") for number in range(4)), under=under)
    assert not any(answer.storm_known for answer in answers(first).values())
    hour = NOW + timedelta(hours=1)
    again = answers(
        judge(first.state, ask("i-2", fault_class="gpu_lost"), ask("i-9", fault_class="gpu_lost"), under=under, at=hour)
    )
    assert (again["i-2"].alone, again["i-2"].storm_known) == (Alone.STORM, True)
    assert (again["i-9"].alone, again["i-9"].granted) == (Alone.ALONE, True)
    thawed = answers(judge(entries.thaw(first.state, "storms"), ask("i-2", fault_class="gpu_lost"), under=under, at=hour))
    assert thawed["i-2"].granted
    over = NOW + timedelta(seconds=under.storm_lasts_s + 1)
    assert answers(judge(first.state, ask("i-2", fault_class="gpu_lost"), under=under, at=over))["i-2"].granted


def test_nodes_that_came_up_with_one_fault_over_hours_are_a_roll_out() -> None:
    under = limits(storm_nodes=3)
    state = books(8)
    told: dict[str, Answer] = {}
    for number in range(4):
        fresh = ask(f"i-{number}", fault_class="reboot_needed", code=143, uptime_s=120.0)
        judged = judge(state, fresh, under=under, at=NOW + timedelta(hours=number))
        state, told = judged.state, {**told, **answers(judged)}
    assert told["i-3"].alone is Alone.STORM
    assert "rollout" in told["i-3"].storm_id


def test_in_a_great_cluster_a_hundred_nodes_are_a_burst_whatever_their_share() -> None:
    under = limits(breaker_nodes=4, breaker_nodes_at_most=100)
    judged = judge(books(10_000), *(ask(f"i-{number}") for number in range(100)), under=under)
    assert judged.state.breaker.state is BreakerState.OPEN


def test_who_asks_anew_after_a_long_wait_is_no_new_fault_and_keeps_its_place() -> None:
    under = limits(max_nodes_out=1, breaker_nodes=8, breaker_percent=5)
    state = books()
    for number in range(12):
        state = judge(state, ask(f"i-{number}"), under=under, at=NOW + timedelta(minutes=5 * number)).state
    waiting, later = state.queue, NOW + timedelta(hours=2)
    withdrawn = entries.give_back(state, [one.request_id for one in waiting])
    anew = [one.model_copy(update={"request_id": f"{one.request_id}/anew", "since": one.asked_at}) for one in reversed(waiting)]
    again = judge(withdrawn, *anew, under=under, at=later).state
    assert again.breaker.state is BreakerState.CLOSED
    assert [one.instance_id for one in again.queue] == [one.instance_id for one in waiting]
    forgetful = [one.model_copy(update={"since": None}) for one in anew]
    assert judge(withdrawn, *forgetful, under=under, at=later).state.breaker.state is BreakerState.OPEN


def test_a_node_that_anybody_keeps_in_quarantine_is_not_usable_and_counts_once() -> None:
    pool = "p5.48xlarge"
    names = ["i-1", "i-2", "i-3", "i-4", "i-5"]
    nodes = [Node(instance_id=name, name=name, instance_type=pool, quarantine="ops/1" if name == "i-5" else "") for name in names]
    state = books(view=fleet_view(nodes))
    under = limits(min_usable={pool: 3})
    told = answers(judge(state, ask("i-1"), ask("i-2"), under=under))
    assert (told["i-1"].granted, told["i-2"].granted) == (True, False)
    marked = [node.model_copy(update={"quarantine": f"incident/lab/{node.instance_id}"}) for node in nodes[:1]]
    out = judge(state, ask("i-1"), under=under).state.model_copy(update={"view": fleet_view([*marked, *nodes[1:4]])})
    assert answers(judge(out, ask("i-2"), under=limits(min_usable={pool: 2})))["i-2"].granted


def test_a_spare_that_has_opted_out_is_leased_to_nobody() -> None:
    spare = Node(instance_id="i-9", name="spare-9", role="spare", opt_out="ann debugs it")
    wanted = ask("i-1", AskKind.SPARE)
    told = answers(judge_asks(books(), [wanted], [spare], limits(), NOW.isoformat(), "lab"))
    assert not told["i-1"].granted
    assert "ann debugs it" in told["i-1"].reason


def test_a_slot_that_only_stopped_a_job_does_not_keep_the_trial() -> None:
    half = Breaker(state=BreakerState.HALF_OPEN, since=NOW, reason="a burst")
    first = judge(books(breaker=half), ask("i-1", AskKind.REPAIR_SLOT), under=limits())
    assert first.state.breaker.trial == "i-1"
    back = entries.give_back(first.state, ["i-1/repair_slot"])
    assert answers(judge(back, ask("i-2"), under=limits()))["i-2"].granted
