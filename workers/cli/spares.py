"""`hotspare spares`: the spare pool: who is in it, and how large it should be."""

from __future__ import annotations

import typer

from workers.cli import spares_plan

spares = typer.Typer(help="The spare pool: who is in it, and how large it should be.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    spares.command()(spares_plan.plan)
    app.add_typer(spares, name="spares")
