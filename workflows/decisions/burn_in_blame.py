"""Whom a burn-in leaves out for what it proved, and what several faults together point at: one switch, or one way between two."""

from __future__ import annotations

from collections import Counter

from workflows.decisions.burn_in_runs import Proven
from workflows.decisions.burn_in_settings import BurnInLimits


def ends_left_out(nodes: list[str], fresh: list[str], proven: Proven) -> dict[str, str]:
    """The nodes that the rest runs without: every bad one, and one end of each bad path, the newer to the job, else the later."""
    out = dict(proven.bad)
    for path, why in proven.bad_paths.items():
        if path & out.keys():
            continue
        leave = max(path, key=lambda node: (node in fresh, nodes.index(node)))
        stay = next(iter(path - {leave}))
        out[leave] = f"the path to {stay} is bad, both pass with others ({why}); left out so that the rest can run"
    return out


def accused_together(nodes: list[str], switches: dict[str, str], proven: Proven, limits: BurnInLimits) -> list[str]:
    """What the faults have in common: most nodes of one switch, or paths between the same two switches."""
    members = Counter(switches[node] for node in nodes if node in switches)
    bad = Counter(switches[node] for node in proven.bad if node in switches)
    told = [
        f"switch {switch}: {count} of its {members[switch]} nodes are bad, so look at the switch before replacing nodes"
        for switch, count in bad.items()
        if count >= limits.of_one_switch and count >= limits.share_of_a_switch * members[switch]
    ]
    ways = Counter(tuple(sorted({switches[node] for node in path if node in switches})) for path in proven.bad_paths)
    return told + [
        f"{' and '.join(way)}: {count} bad paths {'between these switches' if len(way) == 2 else 'within this switch'}"
        for way, count in ways.items()
        if way and count >= 2
    ]
