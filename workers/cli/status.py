"""`hotspare status`: open incidents, nodes seen and not seen, spares, reservations, what is handed out and what is frozen."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from activities.inventory import Node
from activities.names import ROLE_HEAD, ROLE_SPARE, ROLE_WORKER, incident_id
from activities.parity import ParityReport, compare_seen, report_of
from workers.cli.common import ConfigOption, Desk, JsonOption, answering, desk, many, run_async
from workers.cli.first_hour import (
    MOST_DAYS,
    look_at_nodes,
    past_in_words,
    read_past,
    reservations_in_words,
    reservations_of,
    seen_in_words,
)
from workers.cli.looking import Look, open_incidents, overview
from workflows.cluster_messages import BreakerState, Overview

QUEUE_SHOWN = 20
"""Waiting asks that are listed, those with the most GPUs that wait. Hotspare default: a screenful."""


ROWS = 60
"""Nodes up to which all have a row; of more, those that are not plain running workers. Hotspare default: two screenfuls."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    look: Annotated[bool, typer.Option("--look", help="Reach every node now, and say why one cannot be read.")] = False,
    days: Annotated[
        int,
        typer.Option(
            "--days", min=0, max=MOST_DAYS, help="Read the nodes' logs of so many days: what Hotspare would have done. 0: not."
        ),
    ] = 0,
) -> None:
    """Show open incidents, nodes, spares, reservations, leases and freezes of the cluster.

    In the first hour: hotspare status --look --days 7
    """
    with answering(as_json) as answer:

        async def show() -> None:
            async with desk(config) as at:
                nodes, now = await at.nodes(), datetime.now(UTC)
                incidents, (books, trouble) = await asyncio.gather(
                    open_incidents(at.client, at.settings.name, nodes), overview(at.client, at.settings.name)
                )
                differing = await asyncio.to_thread(_configurations, at, nodes)
                seen = await look_at_nodes(at.settings, at.wiring, nodes, now, look=look)
                reservations, unknown = await asyncio.to_thread(reservations_of, at.wiring, nodes)
                readable = [node for node in nodes if node.name not in seen.unreadable]
                past = await read_past(at.settings, at.wiring, readable, days, now) if days else None
                more = {
                    "configuration": _plain(differing),
                    "seen": asdict(seen),
                    "reservations": reservations,
                    "reservations_unknown": unknown,
                    "past": asdict(past) if past else None,
                }
                answer.document({**_document(at, nodes, incidents, books, trouble), **more})
                answer.say(_headline(at, nodes, incidents))
                for line in [*seen_in_words(seen), *reservations_in_words(reservations, unknown, now)]:
                    answer.say(line)
                if incidents:
                    answer.say(_incident_table(nodes, incidents))
                answer.say(_node_table(at.settings.name, nodes, books))
                for line in [*_books(books, trouble), *_not_alike(differing)]:
                    answer.say(line)
                for part in past_in_words(past) if past else []:
                    answer.say(part)

        run_async(show())


def _document(at: Desk, nodes: list[Node], incidents: dict[str, Look], books: Overview | None, trouble: str) -> dict[str, object]:
    return {
        "cluster": at.settings.name,
        "mode": at.settings.policy.mode.value,
        "nodes": nodes,
        "incidents": [
            {**asdict(look), "instance_id": instance_id, "ui": at.ui_link(look.workflow_id)}
            for instance_id, look in incidents.items()
        ],
        "spares": [node.name for node in nodes if node.role == ROLE_SPARE],
        "books": books,
        "trouble": trouble,
    }


def _configurations(at: Desk, nodes: list[Node]) -> ParityReport:
    """Compare the nodes as the last sweep saw them."""
    serving = [node for node in nodes if node.role != ROLE_HEAD and not node.quarantine]
    return report_of(serving, compare_seen(at.wiring.memory, at.settings.parity, serving, datetime.now(UTC)))


def _plain(found: ParityReport) -> dict[str, object]:
    return {"differing": found.differing, "undecided": found.undecided}


def _not_alike(found: ParityReport) -> list[Text]:
    lines = [Text(f"{one.node_name} is not set up like its peers: {'; '.join(one.differences)}") for one in found.differing]
    return [*lines, *(Text(f"nodes are not set up alike: {line}") for line in found.undecided)]


def _headline(at: Desk, nodes: list[Node], incidents: dict[str, Look]) -> Text:
    spares = sum(1 for node in nodes if node.role == ROLE_SPARE)
    working = sum(1 for node in nodes if node.role != ROLE_HEAD)
    return Text.assemble(
        (f"cluster {at.settings.name}", "bold"),
        f": {many(working, 'node')}, of which {many(spares, 'spare')}, mode {at.settings.policy.mode.value}, ",
        (many(len(incidents), "open incident"), "red" if incidents else "green"),
    )


def _incident_table(nodes: list[Node], incidents: dict[str, Look]) -> Table:
    names = {node.instance_id: node.name for node in nodes}
    table = _table("open incidents", "node", "since", "phase", "what and why")
    for instance_id, look in sorted(incidents.items(), key=lambda item: names[item[0]]):
        table.add_row(Text(names[instance_id]), Text(_age(look.opened_at)), Text(look.phase), Text(look.newest or look.trouble))
    return table


def _node_table(cluster: str, nodes: list[Node], books: Overview | None) -> Table | Text:
    leased = {grant.spare_id: grant.asker for grant in books.state.grants if grant.spare_id} if books else {}
    table = _table("nodes", "node", "instance", "role", "type", "marks")
    left_out = 0
    for node in nodes:
        marks = [] if node.state == "running" else [node.state]
        own = node.quarantine == incident_id(cluster, node.instance_id)
        marks += [f"quarantined by {'its incident' if own else node.quarantine}"] if node.quarantine else []
        marks += [node.fate] if node.fate else []
        marks += [f"leased to {leased[node.instance_id]}"] if node.instance_id in leased else []
        if len(nodes) > ROWS and not marks and node.role == ROLE_WORKER:
            left_out += 1
            continue
        row = (node.name, node.instance_id, node.role, node.instance_type, ", ".join(marks))
        table.add_row(*(Text(cell) for cell in row))
    rest = f"{many(left_out, 'worker')} running without a mark; --json has all"
    if left_out:
        table.caption = f"and {rest}"
    return table if table.row_count else Text(rest)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        # A name that is broken over two lines cannot be copied.
        table.add_column(heading, overflow="fold", no_wrap=heading in ("node", "instance"))
    return table


def _books(books: Overview | None, trouble: str) -> list[Text]:
    if books is None:
        return [Text(trouble, style="red")]
    lines = [Text("Cluster is recovering: it grants nothing yet", style="yellow")] if books.recovering else []
    lines += [Text(f"handed out: {grant.kind.value} for {grant.instance_id} to {grant.asker}") for grant in books.state.grants]
    breaker = books.state.breaker
    if breaker.state is not BreakerState.CLOSED:
        lines.append(Text(f"the breaker is {breaker.state.value}: {breaker.reason}", style="red"))
    lines += [Text(f"storm: {storm.reason} ({storm.storm_id})", style="yellow") for storm in books.state.storms]
    queue = sorted(books.state.queue, key=lambda ask: -ask.impact)
    lines += [
        Text(f"in the queue: {ask.kind.value} for {ask.node_name or ask.instance_id}: {ask.waits_for}")
        for ask in queue[:QUEUE_SHOWN]
    ]
    if len(queue) > QUEUE_SHOWN:
        lines.append(Text(f"and {len(queue) - QUEUE_SHOWN} more in the queue"))
    lines += [
        Text(f"frozen: {freeze.scope} until {freeze.until:%Y-%m-%d %H:%M} UTC by {freeze.who}: {freeze.why}", style="yellow")
        for freeze in books.state.freezes
        if freeze.until > datetime.now(UTC)
    ]
    return lines


def _age(since: datetime | None) -> str:
    if since is None:
        return "?"
    seconds = (datetime.now(UTC) - since).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
