"""How many spares: the formula as published, bursts and bad spares on top, and all of it against a simulation of the pool."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from activities.errors import BadInput
from activities.host_memory import ClosedIncident
from activities.inventory import Node
from tests.decisions.pool_simulation import Pool
from workflows.decisions.spares_groups import Place, groups_of
from workflows.decisions.spares_odds import next_finds_one, nodes_out, one_is_free, poisson_at_most, smallest
from workflows.decisions.spares_pool import PoolNeed, PoolSize, mean_of, plan_pool
from workflows.decisions.spares_rates import PUBLISHED, FailureRate, chosen_rate, interval, named_rate, observed_rate
from workflows.decisions.spares_settings import SpareSettings

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PLAIN = SpareSettings(nodes_per_event=1, bad_on_arrival=0)
RSC_1 = PUBLISHED["rsc-1"]


def restock_alone(hours: float, **more: float) -> SpareSettings:
    """No repair in place, every node away for the same time on average."""
    return SpareSettings.model_validate(
        {**PLAIN.model_dump(), "mended_share": 0, "restock_p50_h": hours, "restock_p90_h": hours, **more}
    )


def plan(nodes: int, wished: SpareSettings, rate: FailureRate = RSC_1, **more: object) -> PoolSize:
    need = {"instance_type": "p5.48xlarge", "place": "", "nodes": nodes, "rate": rate, "gpus": 8, **more}
    return plan_pool(PoolNeed.model_validate(need), wished)


@pytest.mark.parametrize(
    ("restock_h", "expected"),
    [(6.0, [1, 2, 4, 5, 8]), (72.0, [3, 7, 18, 31, 55]), (132.0, [4, 10, 29, 51, 94])],
)
def test_the_formula_gives_what_it_is_known_to_give_for_the_rate_of_rsc_1(restock_h: float, expected: list[int]) -> None:
    found = [plan(nodes, restock_alone(restock_h)).formula for nodes in (32, 128, 512, 1024, 2048)]
    assert found == expected


@given(mean=st.floats(0.01, 200), most=st.integers(0, 300))
def test_independent_failures_are_poisson(mean: float, most: int) -> None:
    assert poisson_at_most(most, mean) == pytest.approx(stats.poisson.cdf(most, mean), abs=1e-9)


@given(mean=st.floats(0.01, 2000), per_event=st.floats(1, 6))
@settings(deadline=None, max_examples=60)
def test_the_odds_of_nodes_out_add_up_to_one_and_have_the_mean_and_spread_of_bursts(mean: float, per_event: float) -> None:
    odds = nodes_out(mean, per_event)
    seen = sum(number * chance for number, chance in enumerate(odds))
    spread = sum((number - seen) ** 2 * chance for number, chance in enumerate(odds))
    assert sum(odds) == pytest.approx(1)
    assert seen == pytest.approx(mean, rel=1e-6)
    assert spread == pytest.approx(mean * (2 * per_event - 1), rel=1e-5)


def test_the_shipped_burst_size_is_the_smallest_that_has_the_worst_days_of_the_trace() -> None:
    default = SpareSettings().nodes_per_event
    assert smallest(nodes_out(1.30, default), 0.99) == 8
    assert smallest(nodes_out(1.30, round(default - 0.1, 1)), 0.99) == 7
    assert smallest(nodes_out(1.30, 1.0), 0.99) == 5


@given(
    nodes=st.integers(1, 4096),
    rate=st.sampled_from(sorted(PUBLISHED)),
    wished=st.floats(0.6, 0.9999),
    per_event=st.floats(1, 4),
    bad=st.floats(0, 0.5),
)
@settings(deadline=None, max_examples=60)
def test_a_planned_pool_keeps_its_promise_and_one_wished_surer_is_no_smaller(
    nodes: int, rate: str, wished: float, per_event: float, bad: float
) -> None:
    asked = SpareSettings(probability=wished, nodes_per_event=per_event, bad_on_arrival=bad)
    size = plan(nodes, asked, PUBLISHED[rate])
    assert size.free >= wished
    assert min(size.formula, size.for_next, size.for_bursts, size.for_bad) >= 0
    assert size.pool == size.formula + size.for_next + size.for_bursts + size.for_bad + size.for_domain
    surer = plan(nodes, asked.model_copy(update={"probability": (1 + wished) / 2}), PUBLISHED[rate])
    assert surer.pool >= size.pool


def test_a_shorter_restock_time_needs_a_smaller_pool_and_the_answer_says_all_its_steps() -> None:
    pools = [plan(2048, restock_alone(hours)).pool for hours in (132.0, 72.0, 24.0, 6.0, 1.0)]
    assert all(longer > shorter for longer, shorter in pairwise(pools))
    size = plan(2048, SpareSettings(), survive=16, survive_name="rack r1", spares=4, cost_per_hour=50.0)
    steps = (size.formula, size.for_next, size.for_bursts, size.for_bad, size.for_domain)
    assert (steps, size.pool) == ((9, 1, 4, 1, 16), 31)
    assert (size.short, size.cost_per_hour) == (27, 1550.0)
    assert size.free_now is not None
    assert size.free_now < 0.7
    words = "\n".join(size.because)
    for part in ("arXiv:2410.21680", "13.3 times a day", "6.49 h away", "1.7 nodes an event", "bad when they come", "rack r1"):
        assert part in words


def test_the_spread_of_a_time_counts_through_its_mean() -> None:
    assert mean_of(6, 6) == 6
    assert mean_of(6, 24) == pytest.approx(stats.lognorm(s=1.0817, scale=6).mean(), rel=1e-3)


SIMULATED = 30_000
"""Failures played out: the share that found a spare is then known to within 0.4 % (three standard errors, bursts counted)."""


@pytest.mark.parametrize(("pool", "seed"), [(4, 1), (6, 2), (9, 3)])
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_independent_failures_find_spares_as_often_as_reckoned_whatever_the_spread_of_the_turnaround(
    pool: int, seed: int, spread: float
) -> None:
    wished = restock_alone(6.0, restock_p90_h=6.0 * spread)
    failures_per_h = 2048 * RSC_1.per_node_day / 24
    away = mean_of(6.0, 6.0 * spread)
    odds = nodes_out(failures_per_h * away, 1.0)
    played = Pool(pool, failures_per_h, wished, seed).play(SIMULATED)
    assert played.finds_one == pytest.approx(next_finds_one(odds, pool, 1.0), abs=0.015)
    assert played.free == pytest.approx(one_is_free(odds, pool), abs=0.015)
    assert played.covered == pytest.approx(sum(odds[: pool + 1]), abs=0.015)


@pytest.mark.parametrize("seed", [11, 12])
def test_failures_in_bursts_find_spares_as_often_as_reckoned_where_turnarounds_have_no_spread(seed: int) -> None:
    wished = restock_alone(6.0, nodes_per_event=1.7)
    failures_per_h = 2048 * RSC_1.per_node_day / 24
    odds = nodes_out(failures_per_h * 6.0, 1.7)
    for pool in (4, 8):
        played = Pool(pool, failures_per_h, wished, seed).play(SIMULATED)
        assert played.finds_one == pytest.approx(next_finds_one(odds, pool, 1.7), abs=0.015)
        assert played.free == pytest.approx(one_is_free(odds, pool), abs=0.015)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_pool_planned_for_2048_nodes_keeps_its_promise_in_the_simulation_for_every_published_rate(name: str) -> None:
    wished, rate = SpareSettings(), PUBLISHED[name]
    size = plan(2048, wished, rate)
    played = Pool(size.pool, 2048 * rate.per_node_day / 24, wished, seed=2048).play(SIMULATED)
    assert played.bad > 0
    assert played.free >= wished.probability - 0.004
    assert played.finds_one >= size.finds_one - 0.004
    smaller = Pool(size.pool // 2, 2048 * rate.per_node_day / 24, wished, seed=2048).play(SIMULATED)
    assert smaller.free < wished.probability - 0.01


def closed(number: int, fault_class: str = "gpu_lost", outcome: str = "resolved") -> ClosedIncident:
    at = NOW - timedelta(days=number)
    return ClosedIncident(
        incident=f"incident/lab/i-{number}",
        run_id=f"r{number}",
        cluster="lab",
        instance_id=f"i-{number}",
        opened_at=at - timedelta(hours=1),
        closed_at=at,
        fault_class=fault_class,
        outcome=outcome,
    )


def test_an_observed_rate_counts_faults_that_took_a_node_out_over_the_time_that_is_remembered() -> None:
    history = [closed(number) for number in range(1, 21)]
    history += [closed(5, "application"), closed(6, outcome="nothing found"), closed(7, outcome="part of a storm"), closed(400)]
    rate = observed_rate(history, nodes=100, since=NOW - timedelta(days=90), now=NOW)
    assert rate is not None
    assert rate.faults == 20
    assert rate.node_days == pytest.approx(100 * (20 + 1 / 24))
    assert rate.per_node_day == pytest.approx(20 / (100 * (20 + 1 / 24)))
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.per_node_day < rate.high
    assert observed_rate([], 100, NOW, NOW) is None


def test_a_few_faults_are_no_rate_yet_and_the_source_says_so() -> None:
    few = observed_rate([closed(number) for number in range(1, 4)], 100, NOW - timedelta(days=90), NOW)
    many = observed_rate([closed(number) for number in range(1, 31)], 100, NOW - timedelta(days=90), NOW)
    assert chosen_rate(few, RSC_1, 10).per_node_day == RSC_1.per_node_day
    assert "3 faults seen here, 10 are needed" in chosen_rate(few, RSC_1, 10).source
    assert chosen_rate(None, RSC_1, 10).name == "rsc-1"
    assert chosen_rate(many, RSC_1, 10) == many


@pytest.mark.parametrize("faults", [0, 1, 10, 137])
def test_the_interval_of_a_count_is_the_exact_one(faults: int) -> None:
    low, high = interval(faults)
    assert low == pytest.approx(stats.chi2.ppf(0.025, 2 * faults) / 2 if faults else 0.0, abs=1e-6)
    assert high == pytest.approx(stats.chi2.ppf(0.975, 2 * faults + 2) / 2, abs=1e-6)


def test_a_rate_is_named_or_a_number_and_nothing_else() -> None:
    assert named_rate("llama-3").per_node_day == 2.96e-3
    assert named_rate("0.004").per_node_day == 0.004
    for wrong in ("llama", "0", "-1", "2"):
        with pytest.raises(BadInput, match="no failure rate"):
            named_rate(wrong)


def node(number: int, role: str = "worker", zone: str = "a", kind: str = "p5.48xlarge", rack: str = "", **more: str) -> Node:
    known = {"instance_id": f"i-{number}", "name": f"n-{number}", "role": role, "zone": zone, "instance_type": kind}
    return Node.model_validate({**known, "spine": rack, "gpus": 8, **more})


def test_nodes_share_spares_by_type_and_place_and_the_largest_rack_can_be_survived() -> None:
    nodes = [node(number, rack="r1" if number < 3 else "r2") for number in range(8)]
    nodes += [node(20, zone="b"), node(30, kind="p5e.48xlarge"), node(40, role="spare"), node(41, role="head")]
    nodes.append(node(42, role="spare", fate="retired"))
    groups = groups_of(nodes, lambda kind: RSC_1, {"p5.48xlarge": 50.0}, Place.ZONE, Place.RACK)
    seen = [(group.instance_type, group.place, group.nodes, group.spares, group.survive, group.survive_name) for group in groups]
    assert seen == [
        ("p5.48xlarge", "a", 8, 1, 5, "rack r2"),
        ("p5.48xlarge", "b", 1, 0, 0, ""),
        ("p5e.48xlarge", "a", 1, 0, 0, ""),
    ]
    assert [group.cost_per_hour for group in groups] == [50.0, 50.0, None]
    assert len(groups_of(nodes, lambda kind: RSC_1, {}, Place.CLUSTER)) == 2
