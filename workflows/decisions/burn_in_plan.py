"""Which groups to burn in next, and who is to blame: pure group testing over the runs so far.

The group; if it fails, disjoint pairs side by side; then every suspect with a known-good partner; then the rest as a group.
What counts is wall time, so a round is a set of disjoint groups that run together.
"""

from __future__ import annotations

from activities.message import Message
from checks.model import Verdict

NOT_ABOUT_NODES = ("could_not_run", "unreadable", "configuration", "wrong_transport", "tool_timeout")
"""Causes that say nothing about a node: a run that could not start or took the wrong path is no hardware verdict."""

MAX_ROUNDS = 8
"""Rounds before a person is asked. Hotspare default: one group, pairs, partners and rest, twice."""


class RunDone(Message):
    """One group run that ended, in which round and how."""

    round: int
    nodes: list[str]
    verdict: Verdict
    cause: str
    evidence: str = ""


class BurnInFacts(Message):
    """The node set, and all runs so far."""

    nodes: list[str]
    runs: list[RunDone] = []


class BurnInNext(Message):
    """The next round's disjoint groups; or, when `done`, the verdict and the nodes to blame, each with the reason."""

    groups: list[list[str]] = []
    done: bool = False
    verdict: Verdict = Verdict.UNKNOWN
    cause: str = ""
    because: list[str] = []
    bad: dict[str, str] = {}


def plan_next(facts: BurnInFacts) -> BurnInNext:
    """Return the next round, or the end."""
    runs = facts.runs
    if not runs:
        return BurnInNext(groups=[facts.nodes], because=[f"all {len(facts.nodes)} nodes as one group"])
    last_round = runs[-1].round
    last = [run for run in runs if run.round == last_round]
    unclear = [run for run in last if run.cause in NOT_ABOUT_NODES or run.verdict is Verdict.UNKNOWN]
    if unclear:
        return _again_or_give_up(facts, unclear, last_round)
    bad = _proven_bad(facts)
    rest = [node for node in facts.nodes if node not in bad]
    tested = next((run for run in last if run.nodes == rest), None)
    if tested is not None and _passed(tested):
        return _end(bad, tested)
    if last_round >= MAX_ROUNDS:
        return BurnInNext(done=True, cause="undecided", because=[f"{last_round} rounds did not find who is to blame"], bad=bad)
    return _isolate(facts, rest, bad)


def _again_or_give_up(facts: BurnInFacts, unclear: list[RunDone], last_round: int) -> BurnInNext:
    """A run that proves nothing is repeated once, exactly as it was."""
    repeated = [run for run in unclear if sum(1 for one in facts.runs if one.nodes == run.nodes) > 1]
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


def _isolate(facts: BurnInFacts, rest: list[str], bad: dict[str, str]) -> BurnInNext:
    good, suspects = _good(facts), _suspects(facts, rest)
    if not suspects and any(run.nodes == rest for run in facts.runs):
        why = "every node passes with others, and these together fail: a path between them, or the size of the group"
        return BurnInNext(done=True, cause="undecided", because=[why], bad=bad)
    if not suspects:
        return BurnInNext(groups=[rest], because=["the rest as a group"])
    if len(suspects) == len(rest) and not _has_pairs(facts):
        return _pairs(rest)
    partners = [node for node in rest if node in good]
    untried = [node for node in suspects if not _tried_with(facts, node, good)]
    if untried and partners:
        groups = [[suspect, partner] for suspect, partner in zip(untried, partners, strict=False)]
        return BurnInNext(groups=groups, because=["each suspect with a partner that passed"])
    alone = [node for node in suspects if not any(run.nodes == [node] for run in facts.runs)]
    if untried and alone:
        return BurnInNext(
            groups=[[node] for node in alone], because=["no node passed that could be a partner: each suspect alone"]
        )
    return BurnInNext(
        done=True,
        cause="undecided",
        because=[f"no partner is left that could prove or clear {', '.join(suspects)}"],
        bad=bad,
    )


def _pairs(rest: list[str]) -> BurnInNext:
    if len(rest) <= 2:
        return BurnInNext(groups=[[node] for node in rest], because=["too few nodes for pairs: each alone"])
    groups = [rest[at : at + 2] for at in range(0, len(rest) - 1, 2)]
    if len(rest) % 2:
        groups[-1] = [*groups[-1], rest[-1]]
    return BurnInNext(groups=groups, because=["the group failed: disjoint pairs side by side"])


def _proven_bad(facts: BurnInFacts) -> dict[str, str]:
    """A node is bad when it fails alone, or fails beside partners of which each has passed elsewhere."""
    good = _good(facts)
    bad: dict[str, str] = {}
    for run in facts.runs:
        if _passed(run) or run.cause in NOT_ABOUT_NODES:
            continue
        unproven = [node for node in run.nodes if node not in good]
        if len(unproven) == 1 and len(run.nodes) <= 2:
            partners = ", ".join(node for node in run.nodes if node != unproven[0])
            bad[unproven[0]] = (
                f"{run.cause} {f'beside {partners}, which passed elsewhere' if partners else 'on its own'}: {run.evidence}"
            )
    return bad


def _good(facts: BurnInFacts) -> set[str]:
    """Nodes that passed in a run of more than one node, or in the only run there can be."""
    return {node for run in facts.runs if _passed(run) and (len(run.nodes) > 1 or len(facts.nodes) == 1) for node in run.nodes}


def _suspects(facts: BurnInFacts, rest: list[str]) -> list[str]:
    good = _good(facts)
    return [node for node in rest if node not in good]


def _tried_with(facts: BurnInFacts, node: str, good: set[str]) -> bool:
    return any(
        node in run.nodes and len(run.nodes) == 2 and any(one in good for one in run.nodes if one != node) for run in facts.runs
    )


def _has_pairs(facts: BurnInFacts) -> bool:
    return any(len(run.nodes) < len(facts.nodes) for run in facts.runs)


def _passed(run: RunDone) -> bool:
    return run.verdict in (Verdict.OK, Verdict.WARN)


def _end(bad: dict[str, str], tested: RunDone) -> BurnInNext:
    if not bad:
        return BurnInNext(done=True, verdict=tested.verdict, cause=tested.cause, because=[tested.evidence])
    because = [f"{node}: {why}" for node, why in bad.items()]
    return BurnInNext(
        done=True, verdict=Verdict.CRITICAL, cause="bad_nodes", because=[*because, "the rest passes as a group"], bad=bad
    )
