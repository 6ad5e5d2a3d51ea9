"""`hotspare spares`: the spare pool: who is in it, and how large it should be."""

from __future__ import annotations

import typer

from workers.cli import spares_plan, spares_pool

spares = typer.Typer(help="The spare pool: who is in it, and how large it should be.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    spares.command(name="list")(spares_pool.pool)
    spares.command()(spares_plan.plan)
    spares.command(name="test")(spares_pool.qualify)
    spares.command()(spares_pool.drain)
    spares.command()(spares_pool.retire)
    spares.command()(spares_pool.restore)
    app.add_typer(spares, name="spares")
