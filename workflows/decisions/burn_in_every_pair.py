"""The pairs that a burn-in tries when a person wants every path seen: each node beside each other, as in a tournament.

An all-reduce uses the paths between neighbours in its ring, so a bad path between two others slows no group of this order.
"""

from __future__ import annotations

from collections.abc import Iterator

from workflows.decisions.burn_in_groups import Round
from workflows.decisions.burn_in_runs import Path, Proven, RunDone


def add_pairs(into: Round, nodes: list[str], runs: list[RunDone], proven: Proven) -> None:
    """Add pairs that failed once though both nodes pass with others, then as many untried pairs of these nodes as fit."""
    for run in runs:
        doubtful = len(run.nodes) == 2 and proven.cleared.issuperset(run.nodes) and set(nodes).issuperset(run.nodes)
        if (
            doubtful
            and frozenset(run.nodes) not in proven.bad_paths
            and proven.failed_together(run.nodes)
            and into.free(run.nodes)
        ):
            into.add(run.nodes, "once more the pair that failed though both pass with others")
    tried: set[Path] = {frozenset(run.nodes) for run in runs if len(run.nodes) == 2}
    for pair in _tournament(nodes):
        if not into.left:
            return
        if frozenset(pair) not in tried and into.free(pair):
            into.add(pair, "every pair once")


def _tournament(nodes: list[str]) -> Iterator[list[str]]:
    """Every pair once, in an order in which pairs that follow each other are disjoint: all but the first go round a circle."""
    circle: list[str | None] = [*nodes, None] if len(nodes) % 2 else [*nodes]
    for _ in range(len(circle) - 1):
        for one, other in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
            if one is not None and other is not None:
                yield [one, other]
        circle = [circle[0], circle[-1], *circle[1:-1]]
