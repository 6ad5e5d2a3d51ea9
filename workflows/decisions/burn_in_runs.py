"""What the runs of a burn-in prove: which nodes are cleared, which are bad, which paths are, and what is still unexplained.

An all-reduce in a ring is as slow as its slowest member and its slowest path, and the paths it uses are those between neighbours
in the order of its nodes, and from the last back to the first. So a run that passes clears its nodes and these paths; a run that
fails says that one of them is bad. One run can be wrong (noise, a flaky node): nobody is blamed for one failure beside others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from activities.message import Message
from checks.model import Verdict

NOT_ABOUT_NODES = ("could_not_run", "unreadable", "configuration", "wrong_transport")
"""Causes that say nothing about a node: a run that could not start or took the wrong path is no hardware verdict. A test that
its own time limit ended had started and stood still: that is about a node, as any hang is."""

Path = frozenset[str]
"""The way between two nodes, in either direction."""


class RunDone(Message):
    """One group run that ended, in which round and how. `nodes` is in the order of the ring.

    A run over one `rail` (one GPU a node, with this local index) has a bandwidth to be compared, and accuses no node.
    """

    round: int
    nodes: list[str]
    verdict: Verdict
    cause: str
    evidence: str = ""
    rail: int | None = None
    busbw_gbs: float | None = None


class Proven:
    """The runs of one burn-in, read once: pure, and the same for the same runs, so a plan is taken up again after any crash."""

    def __init__(self, nodes: list[str], runs: list[RunDone], proofs: int = 2) -> None:
        self._proofs = proofs
        telling = [run for run in runs if run.cause not in NOT_ABOUT_NODES and run.verdict is not Verdict.UNKNOWN]
        self._passes = [run for run in telling if passed(run)]
        self._failures = _unsettled(telling)
        self._failed = Counter(frozenset(run.nodes) for run in self._failures)
        self._only = len(nodes) == 1
        self.cleared = {node for run in self._passes if len(run.nodes) > 1 or self._only for node in run.nodes}
        self.clear_paths = {path for run in self._passes for path in paths(run.nodes)}
        self._alone = {run.nodes[0] for run in telling if len(run.nodes) == 1}
        self.companies: dict[str, set[frozenset[str]]] = defaultdict(set)
        """With whom a node was tried in small groups, whatever came out."""
        for run in telling:
            if len(run.nodes) == 2:
                for node in run.nodes:
                    self.companies[node].add(frozenset(run.nodes) - {node})
        self.bad = self._bad_nodes()
        self.bad_paths = self._bad_paths()
        self.bad |= self._ends_of_many(self.bad_paths)
        self.bad_paths = {path: why for path, why in self.bad_paths.items() if not path & self.bad.keys()}

    def passed_together(self, nodes: Iterable[str]) -> RunDone | None:
        """The newest run of exactly these nodes, if it passed."""
        wanted = frozenset(nodes)
        if self._failed[wanted]:
            return None
        return next((run for run in reversed(self._passes) if frozenset(run.nodes) == wanted), None)

    def failed_together(self, nodes: Iterable[str]) -> int:
        """How often exactly these nodes failed since they last passed."""
        return self._failed[frozenset(nodes)]

    def alone(self, node: str) -> bool:
        """Whether the node was run alone."""
        return node in self._alone

    def unexplained(self, left_out: Iterable[str]) -> list[list[str]]:
        """The failing groups that hold nobody left out and no bad path, each once, without those that hold a smaller one."""
        gone = set(left_out)
        groups: dict[frozenset[str], list[str]] = {}
        for run in self._failures:
            members = frozenset(run.nodes)
            if not members & gone and not any(path <= members for path in self.bad_paths):
                groups.setdefault(members, run.nodes)
        return [groups[one] for one in _smallest(list(groups))]

    def beside_in_failures(self, node: str) -> frozenset[str]:
        """Who was there each time that the node failed beside others that passed: it might be one of them instead."""
        companies = [frozenset(run.nodes) - {node} for run in self._failures if node in run.nodes and len(run.nodes) > 1]
        return frozenset.intersection(*companies) if companies else frozenset()

    def _bad_nodes(self) -> dict[str, str]:
        """Who fails alone, or fails in different company of which everybody passed elsewhere and nobody was there each time."""
        bad: dict[str, str] = {}
        found = True
        while found:
            blamed = self._blamed_beside(bad)
            found = bool(blamed)
            bad |= blamed
        return bad

    def _blamed_beside(self, known: dict[str, str]) -> dict[str, str]:
        proofs: dict[str, dict[frozenset[str], RunDone]] = defaultdict(dict)
        blamed: dict[str, str] = {}
        for run in self._failures:
            unproven = [node for node in run.nodes if node not in self.cleared]
            if len(unproven) != 1 or unproven[0] in known:
                continue
            node = unproven[0]
            if len(run.nodes) == 1:
                blamed[node] = f"{run.cause} on its own: {run.evidence}"
            else:
                proofs[node][frozenset(run.nodes) - {node}] = run
        for node, by_company in proofs.items():
            smallest = min(by_company, key=len)
            nobody_in_all = not frozenset.intersection(*by_company)
            if node not in blamed and len(by_company) >= self._proofs and len(smallest) == 1 and nobody_in_all:
                blamed[node] = self._why_beside(by_company)
        return blamed

    def _why_beside(self, by_company: dict[frozenset[str], RunDone]) -> str:
        pairs = sorted(next(iter(company)) for company in by_company if len(company) == 1)
        run = by_company[frozenset({pairs[0]})]
        larger = len(by_company) - len(pairs)
        groups = f", and in {larger} larger group{'s' * (larger > 1)} of others that pass" if larger else ""
        return f"{run.cause} beside {', '.join(pairs[:3])}, which passed elsewhere{groups}: {run.evidence}"

    def _bad_paths(self) -> dict[Path, str]:
        """Pairs that fail each time they are tried, of two nodes that pass with others."""
        counts: Counter[Path] = Counter()
        evidence: dict[Path, str] = {}
        for run in self._failures:
            pair = frozenset(run.nodes)
            if len(pair) == 2 and pair <= self.cleared and not pair & self.bad.keys():
                counts[pair] += 1
                evidence[pair] = f"{run.cause}: {run.evidence}"
        return {pair: evidence[pair] for pair, count in counts.items() if count >= self._proofs}

    def _ends_of_many(self, found: dict[Path, str]) -> dict[str, str]:
        """A node in several bad paths is itself the trouble: it passes at times."""
        ends = Counter(node for path in found for node in path)
        return {
            node: f"fails at times: with {count} different nodes that pass with others"
            for node, count in ends.items()
            if count > 1 and count > max((ends[other] for path in found if node in path for other in path - {node}), default=0)
        }


def passed(run: RunDone) -> bool:
    """Whether a run passed; a warning passes."""
    return run.verdict in (Verdict.OK, Verdict.WARN)


def paths(ring: list[str]) -> list[Path]:
    """The paths that an all-reduce over `ring` uses: between neighbours, and from the last to the first."""
    if len(ring) < 2:
        return []
    ways = [frozenset(pair) for pair in pairwise(ring)]
    return ways if len(ring) == 2 else [*ways, frozenset({ring[-1], ring[0]})]


def _unsettled(runs: list[RunDone]) -> list[RunDone]:
    """Failing runs whose group did not pass later: what passes when it is tried again was noise."""
    failing: dict[frozenset[str], list[RunDone]] = {}
    for run in runs:
        members = frozenset(run.nodes)
        if passed(run):
            failing.pop(members, None)
        else:
            failing.setdefault(members, []).append(run)
    return [run for group in failing.values() for run in group]


def _smallest(groups: list[frozenset[str]]) -> list[frozenset[str]]:
    """The groups that contain no other one of them, smallest first."""
    kept: list[frozenset[str]] = []
    of: dict[str, list[frozenset[str]]] = defaultdict(list)
    for group in sorted(groups, key=len):
        if not any(one <= group for node in group for one in of.get(node, ())):
            kept.append(group)
            for node in group:
                of[node].append(group)
    return kept
