"""`hotspare report NODE`: tells Hotspare that something is wrong with a node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from activities.incidents import StartIncident
from activities.node import Gpu, Report
from workers.cli.common import ConfigOption, JsonOption, NodeArgument, answering, desk, person, run_async


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    node: NodeArgument,
    xid: Annotated[int | None, typer.Option(min=0, help="The XID code of the kernel line.")] = None,
    gpu: Annotated[str, typer.Option(help="The GPU: index, UUID or PCI bus id.")] = "",
    what: Annotated[str, typer.Option(help="What is wrong, in words.")] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report a fault of NODE: opens its incident, or adds to the open one. The node is examined before anything is done."""
    with answering(as_json) as answer:

        async def send() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                now = datetime.now(UTC)
                told = Report(
                    source="hand",
                    key=f"hand/{person()}/{xid}/{gpu}/{now:%Y-%m-%dT%H:%M:%S.%f}",
                    xid=xid,
                    what=what or f"reported by {person()}",
                    gpu=gpu_of(gpu),
                    seen_at=now,
                )
                start = StartIncident(node=found.name, cluster=at.settings.name, report=told)
                joined = await at.wiring.gateway.report_fault(start, found.instance_id)
                link = at.ui_link(joined.workflow_id)
                answer.document({"node": found, "incident": joined.workflow_id, "ui": link})
                answer.say(f"{found.name} ({found.instance_id}): {joined.workflow_id} has the report")
                if link:
                    answer.say(link)
                answer.say(f"next: hotspare why {found.name}")

        run_async(send())


def gpu_of(text: str) -> Gpu:
    """Tell an index, a UUID and a PCI bus id apart."""
    text = text.strip()
    if not text:
        return Gpu()
    if text.isascii() and text.isdigit():
        return Gpu(index=int(text))
    return Gpu(pci=text) if ":" in text else Gpu(uuid=text)
