"""How doctor's lines look to people: what is well in few words, what is not with its mend, thousands of nodes in a screenful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from checks.model import Verdict
from workers.cli.common import Answer, many
from workers.cli.health import Line

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.CRITICAL: "bold red", Verdict.UNKNOWN: "red"}

NODES_SHOWN = 10
"""Nodes of one verdict that have a line of their own. Hotspare default: a screenful; --json has all."""

NODE = "node "


def tell(answer: Answer, lines: Sequence[Line], verdict: Verdict) -> None:
    """Say every line, and the verdict on all."""
    table = Table(box=None, padding=(0, 1), show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=20)
    table.add_column(overflow="fold")
    last = ""
    for line in shown(lines):
        style = STYLES[line.verdict] if line.can_tell else "dim"
        what = Text(line.text)
        if line.do:
            what.append(f"\n→ {line.do}", style=style)
        table.add_row(Text(line.verdict.value, style=style), Text("" if line.part == last else line.part), what)
        last = line.part
    answer.say(table)
    answer.say(Text(verdict.value, style=STYLES[verdict]) + Text(_beyond(lines), style="dim"))


def shown(lines: Sequence[Line]) -> list[Line]:
    """Fold what is said of many nodes into one line for each verdict, with the first of them before it."""
    count = Counter(line.verdict for line in lines if line.part.startswith(NODE))
    seen: Counter[Verdict] = Counter()
    kept: list[Line] = []
    for line in lines:
        if line.part.startswith(NODE) and count[line.verdict] > NODES_SHOWN:
            seen[line.verdict] += 1
            if line.verdict is Verdict.OK or seen[line.verdict] > NODES_SHOWN:
                continue
        kept.append(line)
    for verdict, number in count.items():
        if number > NODES_SHOWN and verdict is Verdict.OK:
            kept.append(Line("nodes", verdict, f"{number} reached and probed"))
        elif number > NODES_SHOWN:
            kept.append(
                Line("nodes", verdict, f"and {number - NODES_SHOWN} more like these", "all of them: hotspare doctor --json")
            )
    return kept


def _beyond(lines: Sequence[Line]) -> str:
    """What the verdict is silent about."""
    count = sum(1 for line in lines if not line.can_tell)
    return f"; {many(count, 'line')} cannot be told from here and {'does' if count == 1 else 'do'} not count" if count else ""
