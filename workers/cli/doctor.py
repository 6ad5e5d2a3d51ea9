"""`hotspare doctor`: is everything there that healing needs? Every line that is not OK says what to do."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text
from temporalio.client import Client

from activities.errors import BadInput
from checks.model import Verdict
from workers.cli.common import Answer, ConfigOption, JsonOption, answering, run_async
from workers.cli.health import Line, check_aws, check_inventory, check_settings, check_spool, check_store, overall
from workers.cli.health_nodes import check_head, check_nodes
from workers.cli.health_slurm import check_slurm
from workers.cli.health_spares import check_pool
from workers.cli.health_temporal import check_temporal
from workers.cli.other_healers import SWITCHES, check_healers, compare, table_of
from workers.connection import TemporalAway, connect
from workers.settings import Settings, load_settings
from workers.wiring import Wiring
from workflows.decisions.settings import PolicySettings

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.CRITICAL: "bold red", Verdict.UNKNOWN: "red"}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    all_healers: Annotated[bool, typer.Option("--all", help="Compare with every healer known, not only those found.")] = False,
) -> None:
    """Check Temporal, AWS, SSH and every node, and who else repairs them. Exit status: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN."""
    with answering(as_json) as answer:
        lines, policy, found = run_async(examine(config))
        verdict = overall(lines)
        healers = list(SWITCHES) if all_healers else found
        compared = compare(policy, healers)
        told = {"lines": [asdict(line) for line in lines], "healers": [asdict(one) for one in compared]}
        answer.document({"verdict": verdict, **told})
        _tell(answer, lines, verdict)
        for healer in healers:
            answer.say(table_of(healer, compared))
    raise typer.Exit(verdict.exit_status)


async def look(config: Path | None) -> list[Line]:
    """Look at everything; one broken part does not keep the others from being looked at."""
    return (await examine(config))[0]


async def examine(config: Path | None) -> tuple[list[Line], PolicySettings, list[str]]:
    """Look at everything; returns the lines, the policy, and the kinds of other healers that are there."""
    settings = load_settings(config)
    client, temporal = await _temporal(settings)
    wiring = Wiring(settings, client)
    try:
        found, nodes = await check_inventory(settings, wiring)
        others, healers = await asyncio.to_thread(check_healers, settings, wiring, nodes)
        lines = [
            *check_settings(settings),
            *temporal,
            *await check_aws(settings),
            await check_store(wiring),
            check_spool(settings),
            *found,
            *await check_pool(settings, wiring, nodes),
            *others,
            *await check_head(settings, wiring),
            *await check_slurm(settings, wiring, nodes),
            *await check_nodes(wiring, nodes),
        ]
        return lines, settings.policy, healers
    finally:
        wiring.close()


async def _temporal(settings: Settings) -> tuple[Client | None, list[Line]]:
    try:
        client = await connect(codec=settings.codec)
        return client, await check_temporal(settings, client)
    except (TemporalAway, BadInput) as error:
        text, _, how = str(error).partition("; ")
        return None, [Line("Temporal", Verdict.CRITICAL, text, how)]


def _tell(answer: Answer, lines: list[Line], verdict: Verdict) -> None:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for line in lines:
        what = Text(line.text)
        if line.do:
            what.append(f"\n→ {line.do}", style=STYLES[line.verdict])
        table.add_row(Text(line.verdict.value, style=STYLES[line.verdict]), Text(line.part), what)
    answer.say(table)
    answer.say(Text(f"{verdict.value}", style=STYLES[verdict]))
