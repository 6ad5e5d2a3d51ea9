"""Makes the disjoint groups of a burn-in's next round: pieces of what failed, suspects with partners, stretches of a ring."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from workflows.decisions.burn_in_runs import Path, Proven, paths


class Round:
    """One round as it fills: at most `room` groups, no node in two of them."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.groups: list[list[str]] = []
        self.because: list[str] = []
        self._taken: set[str] = set()

    def free(self, nodes: Iterable[str]) -> bool:
        """Whether one more group of these nodes fits."""
        return len(self.groups) < self.room and self._taken.isdisjoint(nodes)

    def add(self, group: list[str], why: str) -> None:
        """Put one group in. `why` is told once for all groups that share it."""
        self.groups.append(group)
        self._taken.update(group)
        if why not in self.because:
            self.because.append(why)

    @property
    def left(self) -> int:
        """Groups that still fit."""
        return self.room - len(self.groups)


def add_suspects(into: Round, proven: Proven, nodes: list[str], failing: list[list[str]]) -> None:
    """Split the suspects of the failing groups as finely as the room allows; a single suspect goes beside a node that passed.

    With room for one group, the smallest failing group is halved; else all suspects are tried in the same round.
    """
    suspects = [(group, [node for node in group if node not in proven.cleared]) for group in failing]
    doubted = [members for _, members in suspects if members]
    if not doubted:
        return
    pieces = [_half(doubted, proven)] if into.room == 1 else _pieces(doubted, proven, nodes, into.room)
    whole = [piece for piece in pieces if len(piece) > 1]
    for piece in whole:
        if into.free(piece):
            into.add(
                piece,
                "what failed, in smaller groups side by side" if into.room > 1 else "half of the smallest group that failed",
            )
    _add_singles(into, proven, [piece[0] for piece in pieces if len(piece) == 1], _partners(proven, nodes, failing, into))


def _half(doubted: list[list[str]], proven: Proven) -> list[str]:
    """Half of the smallest group; where it is down to pairs and nobody passed yet, the suspect that was tried least."""
    smallest = doubted[0]
    if len(smallest) == 2 and not proven.cleared:
        smallest = [node for members in doubted if len(members) == 2 for node in members]
        return [min(smallest, key=lambda node: len(proven.companies[node]))]
    return smallest[: ceil(len(smallest) / 2)]


def _pieces(doubted: list[list[str]], proven: Proven, nodes: list[str], room: int) -> list[list[str]]:
    """Each failing group in at least two pieces, more for a larger one, so that all suspects together fill the room."""
    mine: set[str] = set()
    lots: list[tuple[list[str], int]] = []
    for members in doubted:
        lots.append(([node for node in members if node not in mine], 2))
        mine.update(members)
    lots.append(([node for node in nodes if node not in mine and node not in proven.cleared], 1))
    total = sum(len(lot) for lot, _ in lots)
    pieces: list[list[str]] = []
    for lot, at_least in lots:
        if lot:
            size = ceil(len(lot) / max(at_least, room * len(lot) // total))
            pieces += [lot[at : at + size] for at in range(0, len(lot), size)]
    return pieces


def _add_singles(into: Round, proven: Proven, singles: list[str], partners: list[str]) -> None:
    """Each single suspect with a partner that it has not been tried with; without any, suspects are tried with each other."""
    free = [node for node in partners if node not in singles]
    if not free and len(singles) == 1:
        return
    if not free:
        for pair in _met_not_yet(singles, proven):
            if into.free(pair):
                into.add(pair, "no node passed that could be a partner: suspects beside each other")
        return
    for suspect in singles:
        not_yet = [one for one in free if frozenset({one}) not in proven.companies[suspect]]
        always = proven.beside_in_failures(suspect)
        fresh = next((one for one in not_yet if one not in always), not_yet[0] if not_yet else None)
        if fresh is not None and into.free([suspect, fresh]):
            free.remove(fresh)
            into.add([suspect, fresh], "each suspect beside a node that passed")


def _partners(proven: Proven, nodes: list[str], failing: list[list[str]], into: Round) -> list[str]:
    """Who may stand beside a suspect: nodes that passed; where none did, nodes of which nothing is known but that all failed."""
    left = [node for node in nodes if node not in proven.bad and into.free([node])]
    passed = [node for node in left if node in proven.cleared]
    if passed:
        return passed
    doubted = {node for group in failing if len(group) < len(nodes) for node in group}
    unknown = [node for node in left if node not in doubted] if doubted else []
    return unknown or (left if into.room == 1 else [])


def _met_not_yet(suspects: list[str], proven: Proven) -> list[list[str]]:
    """Pairs of suspects, with others than before, as in a tournament where each meets each; three where the number is odd."""
    order = suspects
    for _ in suspects:
        pairs = [order[at : at + 2] for at in range(0, len(order), 2)]
        if len(pairs[-1]) == 1:
            alone = pairs.pop()
            pairs[-1:] = [pairs[-1] + alone] if len(pairs) > 1 else pairs
        if not any(proven.failed_together(pair) for pair in pairs):
            return pairs
        # The first stays while the others go round; of three, one pair would never meet so.
        order = [order[-1], *order[:-1]] if len(order) == 3 else [order[0], order[-1], *order[1:-1]]
    return []


def add_paths(into: Round, proven: Proven, nodes: list[str], failing: list[list[str]]) -> None:
    """Split the paths of groups that fail though each of their nodes passes elsewhere: a pair again, or stretches of a ring."""
    groups = [group for group in failing if proven.cleared.issuperset(group)]
    for group in groups:
        if len(group) == 2 and into.free(group):
            into.add(group, "once more the pair that failed though both pass with others")
    larger = [group for group in groups if len(group) > 2]
    doubted = {path for group in larger for path in paths(group)} - proven.clear_paths
    if not doubted or not into.left:
        return
    share = 2 if into.room == 1 else into.left
    size = max(1, min(ceil(len(doubted) / share), min(len(group) for group in larger) - 2))
    for stretch in _stretches(larger, doubted, size):
        if into.free(stretch):
            into.add(stretch, "neighbours across the groups that passed: a path may be bad, though no node is")


def _stretches(groups: list[list[str]], doubted: set[Path], size: int) -> list[list[str]]:
    """Stretches of up to `size` doubted paths that follow each other in a ring, disjoint by their order of use."""
    found: list[list[str]] = []
    for ring in groups:
        run: list[str] = []
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
            doubtful = frozenset({a, b}) in doubted and b not in run
            if doubtful and run and run[-1] == a and len(run) <= size:
                run.append(b)
                continue
            if len(run) > 1:
                found.append(run)
            run = [a, b] if doubtful and not (found and a in found[-1]) else []
        if len(run) > 1:
            found.append(run)
    return found
