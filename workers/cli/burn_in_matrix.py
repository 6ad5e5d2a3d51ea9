"""The pairs of a burn-in as a table: for each two nodes what the runs of just these two measured, and whether they passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from checks.model import Verdict
from workflows.messages import GroupRun

WORST_FIRST = (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN, Verdict.OK)
STYLE = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.CRITICAL: "bold red", Verdict.UNKNOWN: "magenta"}
SIGN = {Verdict.OK: "+", Verdict.WARN: "+", Verdict.CRITICAL: "X", Verdict.UNKNOWN: "?"}
NUMBER_WIDTH, SIGN_WIDTH = 6, 2
LONGEST_NAME = 24
"""Characters of a node's name in the table. Hotspare default: EC2's own host names without their domain."""

SMALL = 8
"""Nodes up to which the whole table is shown, however few pairs were tried. Hotspare default: it is as long as the rounds."""


@dataclass(frozen=True)
class Cell:
    """What the runs of one pair say: the worst verdict, and the lowest bus bandwidth in GB/s."""

    verdict: Verdict
    busbw_gbs: float | None = None


@dataclass
class PairMatrix:
    """The nodes in the order of the ring, and the pairs that were tried."""

    nodes: list[str]
    cells: dict[frozenset[str], Cell] = field(default_factory=dict)

    @property
    def possible(self) -> int:
        """How many pairs there are."""
        return len(self.nodes) * (len(self.nodes) - 1) // 2

    @property
    def is_thin(self) -> bool:
        """Whether so few of many pairs were tried that a table would show dots."""
        return len(self.nodes) > SMALL and 2 * len(self.cells) < self.possible

    @property
    def failing(self) -> list[list[str]]:
        """The pairs that did not pass, each in the order of the ring."""
        bad = [pair for pair, cell in self.cells.items() if cell.verdict in (Verdict.CRITICAL, Verdict.UNKNOWN)]
        return sorted((sorted(pair, key=self.nodes.index) for pair in bad), key=lambda pair: [*map(self.nodes.index, pair)])

    def of(self, one: str, other: str) -> Cell | None:
        """The cell of two nodes, None where they were not tried."""
        return self.cells.get(frozenset({one, other}))

    def document(self) -> list[dict[str, object]]:
        """The pairs as JSON types."""
        ordered = sorted(self.cells, key=lambda pair: sorted(map(self.nodes.index, pair)))
        return [
            {
                "nodes": sorted(pair, key=self.nodes.index),
                "verdict": self.cells[pair].verdict.value,
                "busbw_gbs": self.cells[pair].busbw_gbs,
            }
            for pair in ordered
        ]


def pair_matrix(nodes: Sequence[str], runs: Sequence[GroupRun]) -> PairMatrix:
    """Gather the runs of two nodes that have ended. Those over one rail are no measure of the pair."""
    matrix = PairMatrix(list(nodes))
    for run in runs:
        if len(run.nodes) != 2 or run.rail is not None or run.verdict is None or not set(run.nodes) <= set(nodes):
            continue
        pair = frozenset(run.nodes)
        seen, now = matrix.cells.get(pair), Cell(run.verdict, run.busbw_gbs)
        matrix.cells[pair] = now if seen is None else _worse(seen, now)
    return matrix


def _worse(one: Cell, other: Cell) -> Cell:
    rates = [cell.busbw_gbs for cell in (one, other) if cell.busbw_gbs is not None]
    return Cell(min(one.verdict, other.verdict, key=WORST_FIRST.index), min(rates, default=None))


def matrix_lines(matrix: PairMatrix, width: int) -> list[Text]:
    """Write the table as wide as the screen allows, with numbers or signs; a wide or thin one has the nodes of failing pairs."""
    if not matrix.cells:
        return []
    tried = f"{len(matrix.cells)} of {matrix.possible} pairs tried"
    shown = matrix.nodes
    if _label_width(shown) + SIGN_WIDTH * len(shown) > width or matrix.is_thin:
        shown = [node for node in shown if any(node in pair for pair in matrix.failing)]
        if not shown:
            return [Text(f"{tried}, all pass")]
        if _label_width(shown) + SIGN_WIDTH * len(shown) > width:
            return [Text(f"{tried}, {len(matrix.failing)} do not pass; too many for a table here, see --plot or --json")]
    numbers = _label_width(shown) + NUMBER_WIDTH * len(shown) <= width
    legend = "bus bandwidth in GB/s: ! fails" if numbers else "+ passes, X fails"
    rest = len(matrix.nodes) - len(shown)
    lines = [tried, f"{legend}, ? not known, . not tried"] + [f"{rest} nodes without a failing pair are left out"] * bool(rest)
    return [*map(Text, lines), *_heads(shown, numbers), *_rows(matrix, shown, numbers)]


def _heads(shown: list[str], numbers: bool) -> list[Text]:
    """Number the columns; where a column has one letter, the tens stand above."""
    start = " " * _label_width(shown)
    if numbers:
        return [Text(start + "".join(f"{at:>{NUMBER_WIDTH}}" for at in range(1, len(shown) + 1)), style="dim")]
    places = range(1, len(shown) + 1)
    tens = "".join(f"{at // 10 or ' ':>{SIGN_WIDTH}}" if at % 10 == 0 else " " * SIGN_WIDTH for at in places)
    units = "".join(f"{at % 10:>{SIGN_WIDTH}}" for at in places)
    return [Text(start + line, style="dim") for line in ((tens, units) if len(shown) > 9 else (units,))]


def _rows(matrix: PairMatrix, shown: list[str], numbers: bool) -> list[Text]:
    found = []
    for at, node in enumerate(shown, 1):
        row = Text(f"{at:>3} {_short(node):<{_label_width(shown) - 4}}")
        for other in shown:
            row.append_text(_cell(None if node == other else matrix.of(node, other), node == other, numbers))
        found.append(row)
    return found


def _cell(cell: Cell | None, itself: bool, numbers: bool) -> Text:
    width = NUMBER_WIDTH if numbers else SIGN_WIDTH
    if cell is None:
        return Text(f"{'-' if itself else '.':>{width}}", style="dim")
    words = SIGN[cell.verdict]
    if numbers and cell.busbw_gbs is not None:
        words = rate(cell.busbw_gbs) + {Verdict.CRITICAL: "!", Verdict.UNKNOWN: "?"}.get(cell.verdict, "")
    return Text(f"{words:>{width}}", style=STYLE[cell.verdict])


def rate(gbs: float) -> str:
    """GB/s in words: whole ones of a fast fabric, hundredths of a slow link."""
    return f"{gbs:.0f}" if gbs >= 10 else f"{gbs:.2f}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _label_width(shown: Sequence[str]) -> int:
    return 4 + max((len(_short(node)) for node in shown), default=0)
