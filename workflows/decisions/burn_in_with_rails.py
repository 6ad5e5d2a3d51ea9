"""When a burn-in compares its rails, and what comes of it: a rail that is slow everywhere is told, no node is blamed for it."""

from __future__ import annotations

from checks.model import Verdict
from workflows.decisions.burn_in_advice import BAD_RAILS
from workflows.decisions.burn_in_facts import BurnInFacts, BurnInNext
from workflows.decisions.burn_in_rails import (
    NOT_OF_A_RAIL,
    RailRun,
    RailRuns,
    beside_good_ones,
    groups_for_rails,
    is_common,
)
from workflows.decisions.burn_in_runs import NOT_ABOUT_NODES, RunDone, passed
from workflows.decisions.burn_in_settings import BurnInLimits


def with_rails(plan: BurnInNext, facts: BurnInFacts, limits: BurnInLimits) -> BurnInNext:
    """Put rounds over single rails before the plan's answer, where they are needed; after them, what they say."""
    if facts.rails < 2:
        return plan
    seen = RailRuns(facts.runs, facts.rails, limits)
    of_all_rails = [run for run in facts.runs if run.rail is None]
    room = limits.side_by_side if _may_run(facts, seen, limits) else 0
    if _nobody_to_blame(plan, of_all_rails, limits):
        groups = _groups(plan, facts)
        if slow := seen.slow_everywhere():
            following = seen.next_common(groups, room)
            return _round(following) if following else _bad_rails(plan, slow)
        following = seen.next_common(groups, room)
        return _round(following, "one cause may be common to all: the rails one by one, side by side") if following else plan
    if plan.done and facts.every_pair and plan.bad and not _of_no_rail(of_all_rails):
        pairs = _pairs(plan, facts)
        following = seen.next_each(pairs, room)
        return _round(following, "each bad node beside a good one, rail by rail") if following else _told(plan, pairs, seen)
    return plan


def _may_run(facts: BurnInFacts, seen: RailRuns, limits: BurnInLimits) -> bool:
    if seen.blind or seen.rounds >= limits.rail_rounds:
        return False
    return facts.elapsed_s < limits.deadline_s and len(facts.runs) < limits.runs


def _nobody_to_blame(plan: BurnInNext, runs: list[RunDone], limits: BurnInLimits) -> bool:
    """Whether one common cause is likely: early, where no group passes, or at the end, where a person is asked."""
    if plan.done and plan.cause != "undecided":
        return False
    if is_common(runs, limits):
        return True
    return plan.done and not _of_no_rail(runs) and _fails_in_small(runs)


def _fails_in_small(runs: list[RunDone]) -> bool:
    """Whether pairs fail: what fails only as a large group is no single rail."""
    pairs = [run for run in runs if len(run.nodes) == 2 and run.cause not in NOT_ABOUT_NODES]
    return any(not passed(run) for run in pairs)


def _of_no_rail(runs: list[RunDone]) -> bool:
    return any(run.cause in NOT_OF_A_RAIL for run in runs)


def _groups(plan: BurnInNext, facts: BurnInFacts) -> list[list[str]]:
    """Who runs the rails: the bad nodes, each beside a good one, where there are some; else all nodes in a few groups."""
    pairs = _pairs(plan, facts) if plan.bad else []
    return pairs or groups_for_rails(facts.nodes, facts.rails)


def _pairs(plan: BurnInNext, facts: BurnInFacts) -> list[list[str]]:
    good = [node for node in facts.nodes if node not in plan.bad]
    return beside_good_ones(list(plan.bad), good, plan.bad_paths)


def _round(following: list[RailRun], why: str = "once more the rails that were slow, in other groups") -> BurnInNext:
    return BurnInNext(groups=[one.group for one in following], rails=[one.rail for one in following], because=[why])


def _bad_rails(plan: BurnInNext, slow: dict[int, str]) -> BurnInNext:
    because = [
        f"rail {rail} is slow whatever the nodes ({evidence}): look at its switch, and at the adapters with this index; no node "
        "is to blame"
        for rail, evidence in slow.items()
    ]
    return BurnInNext(done=True, verdict=Verdict.CRITICAL, cause=BAD_RAILS, because=because, bad_rails=list(slow))


def _told(plan: BurnInNext, pairs: list[list[str]], seen: RailRuns) -> BurnInNext:
    """Say of each bad node, or path, which rails are slow."""
    bad = dict(plan.bad)
    for pair in pairs:
        node = next((one for one in pair if one in bad), pair[0])
        if slow := seen.slow_for(pair):
            bad[node] = f"{bad.get(node, '')}; by single rails only {', '.join(f'rail {rail}' for rail in slow)} of it is slow"
    because = [line for line in plan.because if not any(line.startswith(f"{node}: ") for node in bad)]
    return plan.model_copy(update={"bad": bad, "because": [*(f"{node}: {why}" for node, why in bad.items()), *because]})
