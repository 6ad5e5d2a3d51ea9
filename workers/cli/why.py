"""`hotspare why NODE`: the story of the node's open or last incident, with the reason of each decision."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from activities.host_memory import ClosedIncident
from activities.names import incident_id
from workers.cli.common import Answer, ConfigOption, JsonOption, NodeArgument, answering, desk, run_async
from workers.cli.looking import Look, look_at


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(why)


def why(node: NodeArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Tell what was done to NODE and why: its open incident, else its last one."""
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                look = await look_at(at.client, incident_id(at.settings.name, found.instance_id))
                closed = await asyncio.to_thread(at.wiring.memory.incidents, found.instance_id, 1)
                link = at.ui_link(look.workflow_id) if look else ""
                answer.document({"node": found, "incident": asdict(look) if look else None, "last_closed": closed, "ui": link})
                if look and (look.is_open or look.story):
                    _tell_story(answer, found.name, look, link)
                elif closed:
                    _tell_closed(answer, found.name, closed[-1])
                elif look:
                    answer.say(Text(f"{found.name}: the incident ended as {look.state}; {look.trouble}"))
                else:
                    answer.say(Text(f"{found.name}: no incident is known"))

        run_async(tell())


def _tell_story(answer: Answer, name: str, look: Look, link: str) -> None:
    state = "open" if look.is_open else f"{look.state.lower()}{f': {look.outcome}' if look.outcome else ''}"
    answer.say(Text(f"{name}: incident {look.workflow_id} ({state})", style="bold"))
    table = Table(show_header=True)
    for heading in ("time (UTC)", "step", "what and why"):
        table.add_column(heading, overflow="fold")
    for line in look.story:
        at = str(line.get("at", ""))[11:19]
        table.add_row(Text(at), Text(str(line.get("phase", "")), style="bold"), Text(str(line.get("text", ""))))
    if look.story:
        answer.say(table)
    if look.trouble:
        answer.say(Text(look.trouble, style="yellow"))
    if link:
        answer.say(link)


def _tell_closed(answer: Answer, name: str, closed: ClosedIncident) -> None:
    answer.say(
        Text(f"{name}: {closed.fault_class}, {closed.outcome}, closed {closed.closed_at:%Y-%m-%d %H:%M} UTC", style="bold")
    )
    for line in closed.summary:
        answer.say(Text(f"  {line}"))
