"""Which groups to burn in next, and who is to blame: pure group testing over the runs so far.

The group; if it fails, small groups side by side, every suspect beside a node that passed, then the rest as a group. What counts
is wall time, because the job waits: a round is a set of disjoint groups that run together. The answer depends on the runs alone.
"""

from __future__ import annotations

from checks.model import Verdict
from workflows.decisions.burn_in_advice import BAD_NODES, advice, with_wrong_results
from workflows.decisions.burn_in_blame import accused_together, ends_left_out
from workflows.decisions.burn_in_every_pair import add_pairs
from workflows.decisions.burn_in_facts import BurnInFacts, BurnInNext
from workflows.decisions.burn_in_groups import Round, add_paths, add_suspects
from workflows.decisions.burn_in_runs import NOT_ABOUT_NODES, Proven, RunDone, passed
from workflows.decisions.burn_in_settings import BurnInLimits
from workflows.decisions.burn_in_with_rails import with_rails

__all__ = ["BurnInFacts", "BurnInNext", "plan_next"]


def plan_next(facts: BurnInFacts, limits: BurnInLimits | None = None) -> BurnInNext:
    """Return the next round, or the end."""
    bounds = limits or BurnInLimits()
    of_all_rails = facts.model_copy(update={"runs": [run for run in facts.runs if run.rail is None]})
    plan = with_rails(_plan(of_all_rails, bounds), facts, bounds)
    if not plan.done or plan.verdict is Verdict.OK:
        return plan
    told = {"corrupt": with_wrong_results(plan.bad, facts.runs), "next": advice(plan.cause, facts.runs)}
    return plan.model_copy(update=told)


def _plan(facts: BurnInFacts, bounds: BurnInLimits) -> BurnInNext:
    if not facts.runs:
        return _first(facts, bounds)
    last_round = facts.runs[-1].round
    last = [run for run in facts.runs if run.round == last_round]
    unclear = [run for run in last if run.cause in NOT_ABOUT_NODES or run.verdict is Verdict.UNKNOWN]
    if unclear:
        return _again_or_give_up(facts, unclear, last_round)
    bad: dict[str, str] = {}
    for look in _looks(facts.runs, bounds.looks):
        proven = Proven(facts.nodes, look, bounds.proofs)
        bad |= ends_left_out(facts.nodes, facts.fresh, proven)
    rest = [node for node in facts.nodes if node not in bad]
    if (tested := proven.passed_together(rest)) is not None:
        return _every_pair(facts, bounds, proven, bad, last_round) or _end(facts, bounds, proven, bad, tested)
    if over := _over(facts, bounds, bad, last_round):
        return _undecided(proven, bad, over)
    following = _next_round(facts, bounds, proven, bad, rest)
    return (_every_pair(facts, bounds, proven, bad, last_round) if following.done else None) or following


def _every_pair(
    facts: BurnInFacts, bounds: BurnInLimits, proven: Proven, bad: dict[str, str], last_round: int
) -> BurnInNext | None:
    """More pairs, where a person wants to see all of them and no bound is reached."""
    if not facts.every_pair or _over(facts, bounds, bad, last_round):
        return None
    into = Round(bounds.side_by_side)
    ends = {node for path in proven.bad_paths for node in path}
    add_pairs(into, [node for node in facts.nodes if node not in bad or node in ends], facts.runs, proven)
    return BurnInNext(groups=into.groups, because=into.because) if into.groups else None


def _looks(runs: list[RunDone], most: int) -> list[list[RunDone]]:
    """The runs of each search: a new one begins where a group failed once more whose parts had all passed."""
    starts = [0]
    failed: set[frozenset[str]] = set()
    for at, run in enumerate(runs):
        members = frozenset(run.nodes)
        if passed(run):
            failed.discard(members)
        elif members in failed and len(members) > 2 and len(starts) < most:
            starts.append(at)
            failed = {members}
        else:
            failed.add(members)
    return [runs[start:end] for start, end in zip(starts, [*starts[1:], len(runs)], strict=True)]


def _first(facts: BurnInFacts, bounds: BurnInLimits) -> BurnInNext:
    others = [node for node in facts.nodes if node not in facts.fresh]
    if not facts.fresh or not others or len(facts.nodes) <= 2:
        return BurnInNext(groups=[facts.nodes], because=[f"all {len(facts.nodes)} nodes as one group"])
    pairs = [[new, known] for new, known in zip(facts.fresh, others, strict=False)]
    return BurnInNext(groups=pairs[: bounds.side_by_side], because=["each new node beside one of the job's"])


def _again_or_give_up(facts: BurnInFacts, unclear: list[RunDone], last_round: int) -> BurnInNext:
    """A run that proves nothing is repeated once, exactly as it was."""
    repeated = [run for run in unclear if sum(1 for one in facts.runs if one.nodes == run.nodes and _nothing(one)) > 1]
    if repeated:
        worst = repeated[0]
        return BurnInNext(
            done=True,
            verdict=Verdict.UNKNOWN if worst.verdict is not Verdict.CRITICAL else Verdict.CRITICAL,
            cause=worst.cause,
            because=[f"twice without a result about any node ({worst.cause}): {worst.evidence}"],
        )
    return BurnInNext(
        groups=[run.nodes for run in unclear], because=[f"round {last_round} proved nothing ({unclear[0].cause}): once more"]
    )


def _nothing(run: RunDone) -> bool:
    return run.cause in NOT_ABOUT_NODES or run.verdict is Verdict.UNKNOWN


def _over(facts: BurnInFacts, bounds: BurnInLimits, bad: dict[str, str], last_round: int) -> str:
    """The bound that is reached, in words, or nothing."""
    if last_round >= bounds.rounds + (bounds.pair_rounds if facts.every_pair else 0):
        return f"{last_round} rounds did not find who is to blame"
    if len(facts.runs) >= bounds.runs:
        return f"{len(facts.runs)} runs did not find who is to blame"
    if facts.elapsed_s >= bounds.deadline_s:
        return f"the deadline of {bounds.deadline_s:.0f} s for finding who is to blame has passed"
    if len(bad) > bounds.nodes_out:
        return (
            f"{len(bad)} nodes are bad, more than the {bounds.nodes_out} that a burn-in may take out; look for one common cause"
        )
    return ""


def _next_round(facts: BurnInFacts, bounds: BurnInLimits, proven: Proven, bad: dict[str, str], rest: list[str]) -> BurnInNext:
    failing = proven.unexplained(bad)
    into = Round(bounds.side_by_side)
    if failing and len(facts.nodes) == 2:
        _each_alone(into, proven, rest)
    elif failing:
        add_suspects(into, proven, rest, failing)
        add_paths(into, proven, rest, failing)
    if into.groups:
        return BurnInNext(groups=into.groups, because=into.because)
    if not failing and rest:
        untried = [node for node in facts.fresh if node not in proven.cleared and node in rest]
        if untried and not any(len(run.nodes) == len(rest) for run in facts.runs):
            return _more_fresh(facts, bounds, rest, untried)
        return BurnInNext(groups=[rest], because=["the rest as a group" if bad else f"all {len(rest)} nodes as one group"])
    suspects = [node for node in rest if node not in proven.cleared]
    if suspects:
        return _undecided(proven, bad, f"no partner is left that could prove or clear {', '.join(suspects[:8])}")
    if proven.failed_together(rest) < 2 and rest:
        return BurnInNext(groups=[rest], because=["every node and every path passes in smaller groups: the whole once more"])
    why = "every node and every path passes in smaller groups, and these together fail: the size of the group, or a shared switch"
    return _undecided(proven, bad, why)


def _more_fresh(facts: BurnInFacts, bounds: BurnInLimits, rest: list[str], untried: list[str]) -> BurnInNext:
    others = [node for node in rest if node not in untried]
    pairs = [[new, known] for new, known in zip(untried, others, strict=False)]
    if not pairs:
        return BurnInNext(groups=[rest], because=[f"all {len(rest)} nodes as one group"])
    return BurnInNext(groups=pairs[: bounds.side_by_side], because=["each new node beside one of the job's"])


def _each_alone(into: Round, proven: Proven, rest: list[str]) -> None:
    """Two nodes have no third that could tell which of them it is: what each does alone may."""
    for node in rest:
        if not proven.alone(node) and into.free([node]):
            into.add([node], "too few nodes for partners: each alone")


def _undecided(proven: Proven, bad: dict[str, str], why: str) -> BurnInNext:
    return BurnInNext(done=True, cause="undecided", because=[why], bad=bad, bad_paths=[sorted(path) for path in proven.bad_paths])


def _end(facts: BurnInFacts, bounds: BurnInLimits, proven: Proven, bad: dict[str, str], tested: RunDone) -> BurnInNext:
    if not bad:
        failed = next((run for run in facts.runs if not passed(run) and not _nothing(run)), None)
        if failed is not None:
            why = f"{', '.join(failed.nodes[:8])} failed in round {failed.round} ({failed.evidence}), and nothing fails now"
            return BurnInNext(done=True, cause="intermittent", because=[why, tested.evidence])
        return BurnInNext(done=True, verdict=tested.verdict, cause=tested.cause, because=[tested.evidence])
    because = [f"{node}: {why}" for node, why in bad.items()]
    return BurnInNext(
        done=True,
        verdict=Verdict.CRITICAL,
        cause=BAD_NODES,
        because=[*accused_together(facts.nodes, facts.switches, proven, bounds), *because, "the rest passes as a group"],
        bad=bad,
        bad_paths=[sorted(path) for path in proven.bad_paths],
    )
