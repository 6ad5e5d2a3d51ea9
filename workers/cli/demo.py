"""`hotspare demo`: three faults on a lab cluster, healed before your eyes."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from activities.errors import BadInput, CapabilityMissing
from workers.cli.common import CRITICAL, OK, answering, run_async
from workers.cli.lab import check_extra

TOLD_TO_END = 128 + signal.SIGTERM
"""Exit status of a demonstration that was told to end before it had ended, as a shell would say it."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    faults: Annotated[
        list[str] | None,
        typer.Argument(metavar="[XID]...", help="79, 64 or 94: play only the stories of these faults [default: all]"),
    ] = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="Keep logs and state in this new folder.")] = None,
    orchestrator: Annotated[str, typer.Option(help="What starts the job: command, kubernetes or slurm.")] = "command",
    job_kind: Annotated[str, typer.Option(help="On kubernetes: Job, JobSet, PyTorchJob or TrainJob.")] = "Job",
    access: Annotated[str, typer.Option(help="How Hotspare reaches nodes: ssh, ssm, or on kubernetes agent.")] = "ssh",
) -> None:
    """Heal three faults on a lab cluster before your eyes. Ends with 0 only when the job trains again after each."""
    with answering(as_json=False):
        check_extra()
        try:
            healed = run_async(_demo(list(faults or []), keep, orchestrator, job_kind, access))
        except asyncio.CancelledError:
            raise typer.Exit(TOLD_TO_END) from None
    raise typer.Exit(OK if healed else CRITICAL)


async def _demo(faults: list[str], keep: Path | None, orchestrator: str, job_kind: str, access: str) -> bool:
    from workers.demo.play import play
    from workers.demo.screen import Screen
    from workers.demo.stories import Setting, choose
    from workers.demo.worker_process import WorkerFailed

    try:
        setting = Setting(orchestrator, job_kind, access)
        stories = choose(faults, setting)
    except ValueError as error:
        raise BadInput(str(error)) from error
    if keep is not None and keep.exists():
        raise BadInput(f"{keep} exists already; name a new folder")
    folder = keep.resolve() if keep is not None else Path(tempfile.mkdtemp(prefix="hotspare-demo-"))
    screen = Screen()
    healed = False
    _end_tidily_when_told()
    try:
        healed = await play(stories, folder, screen, setting)
    except WorkerFailed as error:
        screen.failed(str(error), "")
    except FileNotFoundError as error:
        raise CapabilityMissing(str(error)) from error
    if healed and keep is None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    else:
        screen.say(f"Logs and state are in {folder}")
    return healed


def _end_tidily_when_told() -> None:
    """Let the lab and the worker be taken down when this process is told to end, as they are on Ctrl-C."""
    playing = asyncio.current_task()
    assert playing is not None
    for wanted in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(wanted, playing.cancel)
