"""Whose the nodes are, and which rungs that leaves. For `hotspare doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.owners import Owner, owner_of
from checks.model import Verdict
from workers.cli.common import many
from workers.cli.health import Line
from workflows.decisions.owners import OWNERS, RUNGS


def check_owners(nodes: Sequence[Node]) -> list[Line]:
    """One line for each owner, by the tags of its instances."""
    counted = Counter(owner_of(node.owner, ()) for node in nodes if node.role != ROLE_HEAD)
    return [_line(owner, count) for owner, count in counted.most_common()]


def _line(owner: Owner, count: int) -> Line:
    rules = OWNERS[owner]
    missing = [rung.value for rung in RUNGS if rung in rules.missing]
    text = f"{many(count, 'node')} of {owner.value}; "
    if len(missing) == len(RUNGS):
        return Line(
            "owners", Verdict.WARN, f"{text}nothing may be done to them", "see docs/owners.md; jobs on them are still resumed"
        )
    text += f"not there: {', '.join(missing)}" if missing else "every rung is there"
    return Line("owners", Verdict.OK, text)
