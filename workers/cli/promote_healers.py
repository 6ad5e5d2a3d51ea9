"""For `hotspare promote`: who else repairs the nodes for which a rung is promoted, and which of them have no such rung."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from activities.errors import HotspareError
from activities.names import ROLE_HEAD
from activities.owners import owner_of
from checks.model import Action
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.owners import missing_rung

ONLY_IN_KUBERNETES = "Karpenter, EKS node auto repair and Auto Mode, NVSentinel, SageMaker HyperPod"
"""Healers that are looked for through Kubernetes alone."""


@dataclass(frozen=True)
class Healers:
    """Nodes by the healer that stands back before a rung; nodes without the rung by the reason; what could not be found out."""

    nodes: dict[str, int] = field(default_factory=dict)
    without_rung: dict[str, int] = field(default_factory=dict)
    unknown: str = ""
    not_asked: str = ""


def look_for_healers(wiring: Wiring, settings: Settings, rung: Action) -> Healers:
    """Look at every node of the cluster but its head."""
    not_asked = ONLY_IN_KUBERNETES if settings.kubernetes.source == "none" else ""
    told: Counter[str] = Counter()
    without: Counter[str] = Counter()
    doubts: dict[str, None] = {}
    try:
        for node in wiring.inventory.list(settings.name):
            if node.role == ROLE_HEAD:
                continue
            found = wiring.healers.found(node)
            doubts |= dict.fromkeys(one.doubt for one in found if one.doubt)
            owned = next((one.owns for one in found if one.owns), "")
            if why := owned or missing_rung(owner_of(node.owner, [one.kind for one in found]), rung):
                without[why] += 1
            else:
                told.update(one.words for one in found if not one.doubt)
    except HotspareError as error:
        return Healers(unknown=str(error), not_asked=not_asked)
    return Healers(dict(told.most_common()), dict(without.most_common()), "; ".join(doubts), not_asked)


def healers_in_words(healers: Healers) -> list[Any]:
    """Return the lines that a person reads."""
    lines: list[Any] = [
        f"also repaired by {name}: {_nodes(count)}; it is told to stand back before this rung"
        for name, count in healers.nodes.items()
    ]
    lines += [Text(f"not for {_nodes(count)}: {why}", style="yellow") for why, count in healers.without_rung.items()]
    if healers.unknown:
        lines.append(Text(f"who else repairs these nodes is not known: {healers.unknown}", style="yellow"))
    elif not lines:
        lines.append("nobody else was found to repair these nodes")
    if healers.not_asked:
        lines.append(f"without [kubernetes] in the settings nobody asks for {healers.not_asked}: they may be there")
    return lines


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"
