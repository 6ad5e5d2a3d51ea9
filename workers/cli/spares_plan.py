"""`hotspare spares plan`: how many spares the cluster should have, why, and what they cost. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput
from workers.cli.common import OK, WARN, Answer, ConfigOption, JsonOption, answering
from workers.cli.spares_needs import Wish, need_of, needs_of_cluster
from workers.cli.spares_plot import draw
from workers.settings import Settings, load_settings
from workflows.decisions.spares_groups import Place
from workflows.decisions.spares_pool import PoolSize, plan_pool
from workflows.decisions.spares_rates import PUBLISHED
from workflows.decisions.spares_settings import SpareSettings


def plan(
    nodes: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Plan for so many nodes, without looking at a cluster.")
    ] = None,
    instance_type: Annotated[str, typer.Option("--type", help="Their instance type.")] = "p5.48xlarge",
    rate: Annotated[
        str, typer.Option(help=f"Failures per node and day, or whose: {', '.join(PUBLISHED)}. Without it: as seen here.")
    ] = "",
    probability: Annotated[float | None, typer.Option(help="Wished probability that a spare is free when a node fails.")] = None,
    repair: Annotated[str, typer.Option(help="Hours until a node that can be mended is back: median/90th centile.")] = "",
    restock: Annotated[str, typer.Option(help="Hours until a node that cannot is replaced: median/90th centile.")] = "",
    nodes_per_event: Annotated[float | None, typer.Option(help="Nodes that one event takes out, mean.")] = None,
    within: Annotated[Place, typer.Option(help="Where a spare must be to be of use.")] = Place.ZONE,
    survive: Annotated[str, typer.Option(help="Survive the loss of the largest rack or placement-group, or of N nodes.")] = "",
    cost: Annotated[float | None, typer.Option(min=0, help="What a node costs per hour.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw pool size over restock time into this file (.png, .svg, .pdf).")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many spares the pool should have, why, and what they cost per hour. Changes nothing.

    Ends with 0 when the pool is large enough, or no cluster was looked at; 1 when it is too small.
    """
    with answering(as_json) as answer:
        settings = _settings(config, needed=nodes is None)
        wished = _wished(
            settings.spares, probability=probability, nodes_per_event=nodes_per_event, repair=repair, restock=restock
        )
        wish = Wish(rate=rate, within=within, survive=survive, cost=cost)
        needs = needs_of_cluster(settings, wish) if nodes is None else [need_of(nodes, instance_type, wish, wished.cost_per_hour)]
        sizes = [plan_pool(need, wished) for need in needs]
        compared = [plan_pool(needs[0].model_copy(update={"rate": one}), wished) for one in PUBLISHED.values()]
        if plot is not None:
            draw(needs[0], wished, plot)
        answer.document({"settings": wished, "pools": sizes, "with_published_rates": compared, "plot": plot})
        _tell(answer, sizes, compared, wished)
        if plot is not None:
            answer.say(Text(f"drawn: {plot}"))
    raise typer.Exit(WARN if any(size.short for size in sizes) else OK)


def _settings(config: Path | None, *, needed: bool) -> Settings:
    """Without a cluster to look at, a settings file is read where one is named, and not needed."""
    return load_settings(config) if needed or config is not None else Settings()


def _wished(
    settings: SpareSettings, *, probability: float | None, nodes_per_event: float | None, repair: str, restock: str
) -> SpareSettings:
    given: dict[str, Any] = {"probability": probability, "nodes_per_event": nodes_per_event}
    given |= {"repair_p50_h": None, "repair_p90_h": None, "restock_p50_h": None, "restock_p90_h": None}
    for name, text in (("repair", repair), ("restock", restock)):
        if text:
            given[f"{name}_p50_h"], given[f"{name}_p90_h"] = _median_and_p90(name, text)
    try:
        return SpareSettings.model_validate(
            {**settings.model_dump(), **{key: value for key, value in given.items() if value is not None}}
        )
    except ValidationError as error:
        lines = [f"{item['loc'][0]}: {item['msg']}" for item in error.errors(include_url=False)]
        raise BadInput("; ".join(lines)) from None


def _median_and_p90(name: str, text: str) -> tuple[float, float]:
    """Read "6/24" (hours), or "6" for a time without spread. Raises BadInput."""
    first, _, second = text.partition("/")
    try:
        median, p90 = float(first), float(second or first)
    except ValueError:
        raise BadInput(f"--{name} {text!r}: write hours as median/90th centile, such as 6/24") from None
    if not 0 < median <= p90:
        raise BadInput(f"--{name} {text!r}: the median must be above 0 and at most the 90th centile")
    return median, p90


def _tell(answer: Answer, sizes: list[PoolSize], compared: list[PoolSize], wished: SpareSettings) -> None:
    answer.say(_table(f"spares, so that one is free with {100 * wished.probability:g} %", sizes))
    for size in sizes:
        answer.say(Text(f"{_name(size)}:", style="bold"))
        for line in size.because:
            answer.say(Text(f"  - {line}"))
    if any(size.cost_per_hour is None for size in sizes):
        answer.say(Text("what they cost is not known: give --cost, or set spares.cost_per_hour", style="yellow"))
    answer.say(_table(f"the same {compared[0].need.nodes} nodes with published failure rates", compared, by_rate=True))
    for size in sizes:
        if size.short:
            found = f"one is free with {100 * (size.free_now or 0):.1f} %"
            said = f"{_name(size)}: {size.short} spares too few; with the {size.need.spares} that there are {found}"
            answer.say(Text(said, style="yellow"))


def _table(title: str, sizes: list[PoolSize], *, by_rate: bool = False) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("rate" if by_rate else "nodes of", no_wrap=True)
    for heading in ("nodes", "fail/day", "h away", "out", "pool", "made of", "free", "there are", "GPUs", "cost/h"):
        table.add_column(heading, justify="right", no_wrap=True)
    for size in sizes:
        need = size.need
        table.add_row(
            need.rate.name if by_rate else _name(size),
            str(need.nodes),
            f"{size.failures_per_day:.3g}",
            f"{size.away_h:.3g}",
            f"{size.out:.3g}",
            Text(str(size.pool), style="bold"),
            _made_of(size),
            f"{100 * size.free:.2f} %",
            "-" if need.spares is None else str(need.spares),
            str(size.pool * need.gpus) if need.gpus else "?",
            "?" if size.cost_per_hour is None else f"{size.cost_per_hour:,.2f}",
        )
    return table


def _made_of(size: PoolSize) -> str:
    """The steps to the pool: by the formula, for the next one, for bursts, for bad ones, for a domain."""
    steps = [size.formula, size.for_next, size.for_bursts, size.for_bad, *([size.for_domain] if size.for_domain else [])]
    return " + ".join(str(step) for step in steps)


def _name(size: PoolSize) -> str:
    need = size.need
    return f"{need.instance_type or 'unknown type'}{f' in {need.place}' if need.place else ''}"
