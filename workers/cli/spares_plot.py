"""The picture of `hotspare spares plan`: how many spares are needed, over how long it takes to replace a node."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from activities.errors import BadInput, CapabilityMissing
from workflows.decisions.spares_pool import PoolNeed, plan_pool
from workflows.decisions.spares_rates import PUBLISHED
from workflows.decisions.spares_settings import SpareSettings

HOURS = (1, 2, 3, 4, 6, 9, 12, 18, 24, 36, 48, 72, 96, 132, 168)
"""Median restock times that are drawn: an hour to a week."""

ENDINGS = (".png", ".svg", ".pdf")


def draw(need: PoolNeed, settings: SpareSettings, file: Path) -> None:
    """Draw into `file`. Raises CapabilityMissing without matplotlib, BadInput for another kind of file."""
    if file.suffix.lower() not in ENDINGS:
        raise BadInput(f"--plot {file}: the name must end with {', '.join(ENDINGS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise CapabilityMissing("--plot needs matplotlib, not installed here; type: pip install 'hotspare[plots]'")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rates = {**PUBLISHED, need.rate.name: need.rate}
    for name, rate in rates.items():
        mine = name == need.rate.name
        sizes = [pool_at(need.model_copy(update={"rate": rate}), settings, hours) for hours in HOURS]
        label = f"{name}, {1000 * rate.per_node_day:.3g} per 1,000 node-days"
        axes.plot(HOURS, sizes, marker="o" if mine else None, linewidth=2.5 if mine else 1.2, label=label)
    planned = plan_pool(need, settings).pool
    axes.annotate(
        f"{planned} spares",
        (settings.restock_p50_h, planned),
        xytext=(12, -18),
        textcoords="offset points",
        arrowprops={"arrowstyle": "->"},
    )
    axes.set_xscale("log")
    axes.set_xticks(HOURS, [str(hours) for hours in HOURS])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("median hours until a node that cannot be mended has a successor")
    axes.set_ylabel("spares")
    kind = need.instance_type or "nodes"
    axes.set_title(f"Spares for {need.nodes} {kind}: one is free with {100 * settings.probability:g} %")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise BadInput(f"--plot {file}: cannot be written ({error.strerror})") from error


def pool_at(need: PoolNeed, settings: SpareSettings, hours: float) -> int:
    """The pool for another median restock time of the same relative spread."""
    spread = settings.restock_p90_h / settings.restock_p50_h
    changed = settings.model_copy(update={"restock_p50_h": hours, "restock_p90_h": hours * spread})
    return plan_pool(need, changed).pool
