"""Puts the commands together and runs them, so that every way out flushes and ends the process safely."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console

from workers.cli import (
    agent,
    burn_in,
    cancel,
    codec,
    demo,
    diagnose,
    doctor,
    evidence,
    explain,
    init,
    job,
    judge,
    lab,
    ledger,
    manifests,
    processes,
    promote,
    replay,
    report,
    spares,
    status,
    trust,
    unwedge,
    why,
    words,
)
from workers.cli.common import UNKNOWN, WRONG_USAGE
from workers.launch.ending import end_process

app = typer.Typer(
    name="hotspare",
    help="Heals GPU training clusters on EC2 and EKS: from the first fault line to a job that trains again.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
SHOWN = (
    init,
    doctor,
    trust,
    processes,
    agent,
    report,
    spares,
    status,
    job,
    why,
    words,
    cancel,
    unwedge,
    burn_in,
    ledger,
    evidence,
    judge,
    diagnose,
    explain,
    replay,
    promote,
    codec,
    manifests,
    lab,
    demo,
)
for module in SHOWN:
    module.add_to(app)


def run() -> NoReturn:
    """Run the command line and end the process with its exit status."""
    end_process(exit_status(sys.argv[1:]))


def exit_status(arguments: list[str]) -> int:
    """Run the command line; wrong usage is 64, because 2 means CRITICAL here."""
    try:
        code = app(arguments, prog_name="hotspare", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except SystemExit as ending:
        # typer ends so when the reader of our output is gone.
        return ending.code if isinstance(ending.code, int) else UNKNOWN
    except Exception as error:
        # Errors of usage are of a private class in some releases of typer, of click in others.
        show = getattr(error, "show", None)
        if show is None:
            Console(stderr=True).print_exception()
            return UNKNOWN
        show()
        return WRONG_USAGE
    return code if isinstance(code, int) else 0
