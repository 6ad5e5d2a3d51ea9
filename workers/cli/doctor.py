"""`hotspare doctor`: is everything there that healing needs? Every line that is not OK says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from activities.errors import BadInput
from activities.inventory import Node
from checks.model import Verdict
from workers.cli.common import ConfigOption, JsonOption, answering, run_async
from workers.cli.health import Line, check_inventory, check_settings, check_spool, check_store, overall
from workers.cli.health_alerts import check_alerts, check_events
from workers.cli.health_aws import check_aws
from workers.cli.health_job import check_job
from workers.cli.health_kubernetes import check_kubernetes
from workers.cli.health_nodes import check_head, check_nodes
from workers.cli.health_owners import check_owners
from workers.cli.health_places import check_places
from workers.cli.health_shown import tell
from workers.cli.health_slurm import check_slurm
from workers.cli.health_spares import check_pool
from workers.cli.health_temporal import check_temporal
from workers.cli.other_healers import SWITCHES, check_healers, compare, table_of
from workers.connection import TemporalAway, connect
from workers.settings import Settings, load_settings
from workers.wiring import Wiring
from workflows.decisions.settings import PolicySettings


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    all_healers: Annotated[bool, typer.Option("--all", help="Compare with every healer known, not only those found.")] = False,
    no_test_event: Annotated[
        bool, typer.Option("--no-test-event", help="Send no test event through intake and event queue.")
    ] = False,
) -> None:
    """Check Temporal, AWS, access, alerts and every node, and who else repairs them.

    Exit status: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN. Nothing is changed but for a test event, which is observed and forgotten.
    """
    with answering(as_json) as answer:
        lines, policy, found = run_async(examine(config, test_event=not no_test_event))
        verdict = overall(lines)
        healers = list(SWITCHES) if all_healers else found
        compared = compare(policy, healers)
        told = {"lines": [asdict(line) for line in lines], "healers": [asdict(one) for one in compared]}
        answer.document({"verdict": verdict, **told})
        tell(answer, lines, verdict)
        for healer in healers:
            answer.say(table_of(healer, compared))
    raise typer.Exit(verdict.exit_status)


async def examine(config: Path | None, *, test_event: bool = True) -> tuple[list[Line], PolicySettings, list[str]]:
    """Look at everything; returns the lines, the policy, and the kinds of other healers that are there.

    One broken part does not keep the others from being looked at.
    """
    settings = load_settings(config)
    client, temporal = await _temporal(settings)
    wiring = Wiring(settings, client)
    try:
        found, nodes = await check_inventory(settings, wiring)
        others, healers = await asyncio.to_thread(check_healers, settings, wiring, nodes)
        looked = await asyncio.gather(*_beside(settings, wiring, client, nodes, may_try=test_event))
        lines = [*check_settings(settings), *temporal, *looked[0], check_spool(settings), *found, *check_owners(nodes), *others]
        return [*lines, *(line for lines in looked[1:] for line in lines)], settings.policy, healers
    finally:
        wiring.close()


def _beside(
    settings: Settings, wiring: Wiring, client: Client | None, nodes: Sequence[Node], *, may_try: bool
) -> list[Awaitable[list[Line]]]:
    """The looks that do not need each other, in the order in which they are told."""
    return [
        check_aws(settings, wiring, nodes),
        check_store(wiring),
        check_pool(settings, wiring, list(nodes)),
        check_kubernetes(settings, wiring, nodes),
        check_alerts(settings, client, may_try=may_try),
        check_events(settings, wiring, client, may_try=may_try),
        check_places(settings, wiring, client, nodes),
        check_head(settings, wiring),
        check_slurm(settings, wiring, nodes),
        check_job(settings, wiring, nodes),
        check_nodes(settings, wiring, nodes),
    ]


async def _temporal(settings: Settings) -> tuple[Client | None, list[Line]]:
    try:
        client = await connect(codec=settings.codec)
        return client, await check_temporal(settings, client)
    except (TemporalAway, BadInput) as error:
        text, _, how = str(error).partition("; ")
        return None, [Line("Temporal", Verdict.CRITICAL, text, how)]
