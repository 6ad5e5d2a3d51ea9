"""The picture of `hotspare burn-in --plot`: a square for each two nodes, coloured by the bus bandwidth that they reached."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from activities.errors import BadInput, CapabilityMissing
from checks.model import Verdict
from workers.cli.burn_in_matrix import PairMatrix

ENDINGS = (".png", ".svg", ".pdf")
NAMED = 40
"""Nodes up to which each row has its name. Hotspare default: more are not readable side by side."""

WRITTEN = 20
"""Nodes up to which each square has its number, for the same reason."""


def check_plot(file: Path) -> None:
    """Refuse before the burn-in what cannot be drawn after it: without matplotlib, of another kind, in no folder."""
    if file.suffix.lower() not in ENDINGS:
        raise BadInput(f"--plot {file}: the name must end with {', '.join(ENDINGS)}")
    if not file.absolute().parent.is_dir():
        raise BadInput(f"--plot {file}: there is no folder {file.absolute().parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise CapabilityMissing("--plot needs matplotlib, not installed here; type: pip install 'hotspare[plots]'")


def draw(matrix: PairMatrix, title: str, file: Path) -> None:
    """Draw into `file`. Raises BadInput where it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    nodes = matrix.nodes
    size = min(14.0, max(5.0, 2.5 + 0.42 * len(nodes)))
    figure = Figure(figsize=(size + 1.2, size), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("0.92")
    rates = [[_rate(matrix, one, other) for other in nodes] for one in nodes]
    highest = max((rate for row in rates for rate in row if rate == rate), default=1.0)
    seen = axes.imshow(rates, cmap="viridis", norm=Normalize(0, highest))
    figure.colorbar(seen, ax=axes, label="bus bandwidth of the pair, GB/s", shrink=0.8)
    for at, one in enumerate(nodes):
        for beside, other in enumerate(nodes):
            cell = matrix.of(one, other)
            if cell is None or one == other:
                continue
            failed = cell.verdict in (Verdict.CRITICAL, Verdict.UNKNOWN)
            if failed:
                colour = "red" if cell.verdict is Verdict.CRITICAL else "magenta"
                axes.plot([beside], [at], marker="s", markersize=180 / max(8, len(nodes)), fillstyle="none", color=colour)
            if len(nodes) <= WRITTEN and cell.busbw_gbs is not None:
                dark = cell.busbw_gbs < 0.6 * highest
                words = f"{cell.busbw_gbs:.0f}" if cell.busbw_gbs >= 10 else f"{cell.busbw_gbs:.2f}"
                axes.text(beside, at, words, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    if len(nodes) <= NAMED:
        places = range(len(nodes))
        axes.set_xticks(places, nodes, rotation=90, fontsize=8)
        axes.set_yticks(places, nodes, fontsize=8)
    else:
        axes.set_xlabel("node, by its place in the ring")
    axes.set_title(
        f"{title}\n{len(matrix.cells)} of {matrix.possible} pairs tried; framed: not passed; grey: not tried", fontsize=9
    )
    try:
        figure.savefig(file, dpi=130)
    except OSError as error:
        raise BadInput(f"--plot {file}: cannot be written ({error.strerror})") from error


def _rate(matrix: PairMatrix, one: str, other: str) -> float:
    """The rate of a pair, not a number where there is none: such squares stay empty."""
    cell = matrix.of(one, other) if one != other else None
    return cell.busbw_gbs if cell is not None and cell.busbw_gbs is not None else float("nan")
