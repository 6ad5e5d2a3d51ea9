"""Compares how nodes are set up, with a pinned set of values or with each other. What could not be read accuses nobody.

A difference is a matter of configuration: a node with one does not join a job, and is never replaced or restarted for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Optional

from checks.parity.configuration import FACTS, KNOWN, UNREADABLE, Configuration

ENOUGH = 3
"""So many nodes that agree, more than on any other value, are a reference even without a majority. Hotspare default."""

ANY_TYPE = "*"

Golden = Mapping[str, Mapping[str, str]]
"""Pinned values: instance type (or "*") to fact to value. A value may be a pattern, as of file names: `580.95.*`."""


Votes = Mapping[str, int]


@dataclass(frozen=True)
class Difference:
    """One fact of a node that is not as it should be. `there` is what it is compared with, `of` whose value that is."""

    fact: str
    here: str
    there: str
    of: str

    @property
    def words(self) -> str:
        """The difference in one line."""
        return f"{FACTS.get(self.fact, self.fact)} {self.here} here, {self.there} {self.of}"


@dataclass(frozen=True)
class Parity:
    """What the comparison says of one node.

    `unread` are facts of this node that could not be compared because they were not readable; `undecided` are facts on which the
    peers do not agree among themselves, so that nobody is accused. `peers` counts the nodes that it was compared with.
    """

    differences: tuple[Difference, ...] = ()
    unread: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    peers: int = 0


def compare(
    nodes: Mapping[str, Configuration],
    golden: Optional[Golden] = None,
    ignored: Collection[str] = (),
    pools: Optional[Mapping[str, str]] = None,
) -> dict[str, Parity]:
    """Compare nodes with what is pinned and, where nothing is, with most of their own pool (without `pools`: instance type).

    Every node has a vote, so a value that most nodes share accuses none of them, and of two halves neither is accused.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(nodes):
        groups.setdefault(((pools or {}).get(name, ""), nodes[name].instance_type), []).append(name)
    found = {}
    for members in groups.values():
        votes = _votes([nodes[name] for name in members])
        for name in members:
            found[name] = _judge(nodes[name], votes, golden, ignored, len(members) - 1, own_vote=True)
    return found


def fits(
    newcomer: Configuration, peers: Sequence[Configuration], golden: Optional[Golden] = None, ignored: Collection[str] = ()
) -> Parity:
    """Compare a node that is to join with those that it would join; they alone say what is right."""
    alike = [peer for peer in peers if peer.instance_type == newcomer.instance_type]
    return _judge(newcomer, _votes(alike), golden, ignored, len(alike), own_vote=False)


def own_differences(node: Configuration) -> tuple[Difference, ...]:
    """Return what is wrong with a node by itself: Fabric Manager must have the driver's own version.

    Source: NVIDIA Fabric Manager user guide, "Installing Fabric Manager".
    """
    manager, driver = node.value("fabric_manager"), node.value("driver")
    if manager is None or driver is None or manager == driver:
        return ()
    return (Difference("fabric_manager", manager, driver, "is the driver's version, and the two must be the same"),)


def _judge(
    node: Configuration,
    votes_of: Mapping[str, Votes],
    golden: Optional[Golden],
    ignored: Collection[str],
    peers: int,
    *,
    own_vote: bool,
) -> Parity:
    pinned = _pinned(golden, node.instance_type)
    own = [difference for difference in own_differences(node) if difference.fact not in ignored]
    differences = {difference.fact: difference for difference in own}
    unread, undecided = [], []
    for name in (one for one in FACTS if one not in ignored):
        fact, votes = node.get(name), votes_of[name]
        if fact.state == UNREADABLE and (name in pinned or votes):
            unread.append(f"{FACTS[name]}: {fact.why}")
        if fact.state != KNOWN:
            continue
        if name in pinned:
            if not fnmatchcase(fact.value, pinned[name]):
                differences[name] = Difference(name, fact.value, pinned[name], "is pinned in the settings")
            continue
        reference = _reference(votes)
        if reference is None and len(votes) > 1:
            undecided.append(f"{FACTS[name]}: {_spread(votes)}; no value has a majority, so nobody is accused")
        elif reference is not None and reference != fact.value:
            of = _of(votes[reference], sum(votes.values()) - (1 if own_vote else 0))
            differences.setdefault(name, Difference(name, fact.value, reference, of))
    return Parity(tuple(differences.values()), tuple(unread), tuple(undecided), peers)


def _votes(fleet: Sequence[Configuration]) -> dict[str, Votes]:
    """Count for each fact how many nodes have which value."""
    return {name: Counter(value for one in fleet if (value := one.value(name)) is not None) for name in FACTS}


def _pinned(golden: Optional[Golden], instance_type: str) -> dict[str, str]:
    return {**(golden or {}).get(ANY_TYPE, {}), **(golden or {}).get(instance_type, {})}


def _reference(votes: Votes) -> Optional[str]:
    """Return the value that more than half have, or that enough have and more than any other; None where there is none."""
    ranked = sorted(votes, key=lambda value: votes[value], reverse=True)
    if not ranked:
        return None
    most = votes[ranked[0]]
    second = votes[ranked[1]] if len(ranked) > 1 else 0
    return ranked[0] if 2 * most > sum(votes.values()) or (most >= ENOUGH and most > second) else None


def _of(agree: int, peers: int) -> str:
    """Say whose value it is. Peers that could not be read are not counted."""
    if agree < peers:
        return f"on {agree} of its {peers} peers"
    return f"on all {peers} of its peers" if peers > 1 else "on its one peer"


def _spread(votes: Votes) -> str:
    ranked = sorted(votes, key=lambda value: (-votes[value], value))
    return ", ".join(f"{value} on {votes[value]}" for value in ranked[:4])
