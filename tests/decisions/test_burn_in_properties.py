"""What holds of the burn-in's plan whatever is wrong: no good node accused, the same plan after a crash, rates under noise."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.model import Verdict
from tests.decisions.burn_in_world import RAILS, Played, World, names, play
from workflows.decisions.burn_in_plan import BurnInFacts, plan_next
from workflows.decisions.burn_in_runs import RunDone
from workflows.decisions.burn_in_settings import BurnInLimits

MANY = BurnInLimits(rounds=400, nodes_out=1000)
ROOMS = st.sampled_from([1, 2, 3, 5, 8, 16, 64])


def at_once(groups: int) -> BurnInLimits:
    return MANY.model_copy(update={"side_by_side": groups})


@st.composite
def plants(draw: st.DrawFn) -> tuple[list[str], World]:
    """Any mix of bad nodes, bad paths between neighbours, slow adapters and slow rails on a small ring."""
    nodes = names(draw(st.integers(3, 20)))
    bad = draw(st.sets(st.sampled_from(nodes), max_size=3))
    at = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=1))
    paths = {frozenset({nodes[one], nodes[(one + 1) % len(nodes)]}) for one in at}
    adapters = {node: draw(st.integers(0, RAILS - 1)) for node in draw(st.sets(st.sampled_from(nodes), max_size=1))}
    rails = draw(st.dictionaries(st.integers(0, RAILS - 1), st.just(set(nodes)), max_size=1)) if draw(st.booleans()) else {}
    return nodes, World(bad=bad, bad_paths=paths, bad_adapters=adapters, bad_rails=rails, random=Random(1))


@settings(max_examples=600)
@given(plants(), ROOMS, st.booleans())
def test_without_noise_nobody_good_is_accused_whatever_is_wrong(
    planted: tuple[list[str], World], groups: int, every_pair: bool
) -> None:
    nodes, world = planted
    played = play(nodes, world, at_once(groups), rails=RAILS, every_pair=every_pair)
    guilty = world.bad | set(world.bad_adapters) | {end for path in world.bad_paths for end in path}
    assert set(played.plan.bad) <= guilty
    assert set(played.plan.bad_rails) <= set(world.bad_rails) | set(world.bad_adapters.values())
    assert played.plan.verdict is not Verdict.OK or not world.fails(nodes)


@settings(max_examples=120)
@given(plants(), ROOMS, st.booleans(), st.sampled_from([0.0, 0.02]))
def test_the_plan_after_a_crash_is_the_plan_without_one_from_the_stored_runs_alone(
    planted: tuple[list[str], World], groups: int, every_pair: bool, noise: float
) -> None:
    nodes, world = planted
    world.noise = noise
    whole = play(nodes, world, at_once(groups), rails=RAILS, every_pair=every_pair)
    for number in sorted({run.round for run in whole.runs}):
        stored = [RunDone.model_validate_json(run.model_dump_json()) for run in whole.runs if run.round <= number]
        facts = BurnInFacts(nodes=nodes, runs=stored, rails=RAILS, every_pair=every_pair)
        again = plan_next(BurnInFacts.model_validate_json(facts.model_dump_json()), at_once(groups))
        following = [run for run in whole.runs if run.round == number + 1]
        if following:
            assert (again.groups, again.rails or None) == (
                [run.nodes for run in following],
                [run.rail for run in following] if following[0].rail is not None else None,
            )
        else:
            assert again == whole.plan


class Tree(World):
    """A bad path is felt wherever both its ends take part, as in a tree; the plan takes it to be felt by neighbours alone."""

    def fails(self, ring: list[str]) -> bool:
        return bool(self.bad & set(ring)) or any(path <= set(ring) for path in self.bad_paths)


@settings(max_examples=120)
@given(st.integers(4, 12), ROOMS, st.data())
def test_a_path_that_a_tree_feels_anywhere_accuses_no_third_node_and_every_pair_names_it(
    count: int, groups: int, data: st.DataObject
) -> None:
    nodes = names(count)
    path = frozenset(data.draw(st.permutations(nodes))[:2])
    played = play(nodes, Tree(bad_paths={path}), at_once(groups))
    assert set(played.plan.bad) <= path
    assert played.plan.verdict is not Verdict.OK
    whole = play(nodes, Tree(bad_paths={path}), at_once(groups).model_copy(update={"pair_rounds": 1000}), every_pair=True)
    assert whole.plan.bad_paths == [sorted(path)]


def accused(count: int, world: World, limits: BurnInLimits) -> tuple[int, Played]:
    """How many good nodes one burn-in accused."""
    played = play(names(count), world, limits)
    return len(set(played.plan.bad) - world.bad - set(world.flaky)), played


@pytest.mark.parametrize(
    ("noise", "groups", "most"), [(0.002, 128, 1), (0.01, 128, 6), (0.03, 128, 60), (0.01, 8, 1)], ids=lambda value: str(value)
)
def test_the_rate_of_false_accusations_under_noise_is_what_is_stated(noise: float, groups: int, most: int) -> None:
    random, wrong, missed = Random(31), 0, 0
    for seed in range(60):
        bad = set(random.sample(names(256), 3))
        found, played = accused(256, World(bad=bad, noise=noise, random=Random(seed)), at_once(groups))
        wrong += found
        missed += len(bad - set(played.plan.bad)) if played.plan.cause == "bad_nodes" else 0
    assert wrong <= most, f"of {60 * 253} good nodes"
    assert missed == 0, "a burn-in that ends with a list has every bad node on it"


def test_a_flaky_node_gets_at_most_its_partner_left_out_by_the_path_between_them() -> None:
    random, wrong = Random(3), 0
    for seed in range(200):
        node = random.choice(names(64))
        found, played = accused(64, World(flaky={node: random.choice([0.2, 0.5, 0.8])}, random=Random(seed)), at_once(32))
        wrong += found
        others = {name: why for name, why in played.plan.bad.items() if name != node}
        assert all(why.startswith(f"the path to {node} is bad") for why in others.values()), "no third node, and it is named"
        failed = any(run.verdict is Verdict.CRITICAL for run in played.runs)
        assert played.plan.verdict is not Verdict.OK or not failed
    assert wrong <= 12, "in 200 burn-ins: what fails at times looks like a bad path where it passed with everybody else"
