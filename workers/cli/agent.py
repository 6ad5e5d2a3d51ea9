"""`hotspare agent`: what the DaemonSet runs on every node. It needs no settings file and no Temporal, only the intake."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from workers.cli.common import JsonOption, VerboseOption, answering, log_to_stderr


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(agent)


def agent(
    node: Annotated[str, typer.Option(envvar="HOTSPARE_NODE", help="This node's name in Kubernetes (spec.nodeName).")],
    intake: Annotated[str, typer.Option(envvar="HOTSPARE_INTAKE", help="Address of the intake, such as https://hotspare:9099.")],
    token_file: Annotated[Path, typer.Option(envvar="HOTSPARE_INTAKE_TOKEN_FILE", help="File with the intake's token.")],
    folder: Annotated[
        Path, typer.Option(envvar="HOTSPARE_AGENT_DIR", help="Folder on the node for how far its log is reported.")
    ] = Path("/var/lib/hotspare/agent"),
    ca_file: Annotated[
        Path | None,
        typer.Option(envvar="HOTSPARE_INTAKE_CA", help="Certificates of the intake's authority; else the usual."),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Follow this node's own kernel log and report faults to the intake."""
    with answering(as_json):
        from workers.agent.agent import Agent, AgentOptions
        from workers.cli.processes import Announce

        log_to_stderr(verbose)
        announce = Announce(as_json)
        following = Agent(AgentOptions(node, intake, token_file, folder, ca_file))
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, lambda number, frame: following.stop())
        following.run(ready=lambda: announce("agent", f"following the kernel log of {node}", node=node))
