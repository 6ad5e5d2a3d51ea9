"""Running a lab as a process: in the foreground until told to stop, or detached with a log file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.lab.control import ControlPort
from infra.lab.lab import Lab
from infra.lab.node_root import TREE, write_atomically
from infra.lab.options import LabOptions
from infra.lab.remote import LAB_FILE, NoLab, RemoteLab

LOG_FILE = "lab.log"
_UP_DEADLINE_S = 120.0
_UP_S_A_KWOK_NODE = 0.3
"""Six times what it takes on two busy cores."""


class LabRuns(Exception):
    """A lab already runs in that folder."""


def refuse_second_lab(folder: Path) -> None:
    """Raise LabRuns if a lab answers in the folder; what a killed one left behind is cleared away."""
    remote = RemoteLab(folder)
    with contextlib.suppress(NoLab):
        about = remote.about()
        try:
            remote.status()
        except NoLab:
            remote.down()
        else:
            raise LabRuns(f"a lab already runs in {folder} (process {about['pid']}); stop it with: hotspare lab down")


async def serve_lab(options: LabOptions, ready: Callable[[dict[str, Any]], None]) -> None:
    """Bring a lab up with its job running, tell `ready` about it, and take it down when asked to or at SIGINT or SIGTERM."""
    async with Lab(options) as lab:
        control = ControlPort(lab)
        control.start(lab.folder)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, control.down_asked.set)
        try:
            await lab.job.start()
            about = {**lab.status(), "control_url": control.url, "environment": lab.environment()}
            write_atomically(lab.folder / LAB_FILE, json.dumps(about, indent=2))
            ready(about)
            await control.down_asked.wait()
        finally:
            await asyncio.to_thread(control.stop)


def run_lab(options: LabOptions, ready: Callable[[dict[str, Any]], None] = lambda about: None) -> None:
    """Run a lab in the foreground until it is asked to go down. Raises LabRuns, ValueError (folder, instance type)."""
    refuse_second_lab(options.folder)
    try:
        asyncio.run(serve_lab(options, ready))
    finally:
        (options.folder / LAB_FILE).unlink(missing_ok=True)


def start_detached(options: LabOptions) -> dict[str, Any]:
    """Start a lab as a process of its own and return what it says of itself once it is up.

    Raises LabRuns; RuntimeError shows the end of its log.
    """
    refuse_second_lab(options.folder)
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_FILE
    pid = _spawn([sys.executable, "-m", "infra.lab", json.dumps(options.to_json())], log)
    deadline = time.monotonic() + _UP_DEADLINE_S + _UP_S_A_KWOK_NODE * options.kwok_nodes
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG) == (0, 0):
        with contextlib.suppress(NoLab):
            return RemoteLab(folder).about()
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    raise RuntimeError(f"the lab did not come up; the end of {log}:\n{log.read_text()[-3000:]}")


def _spawn(command: list[str], log: Path) -> int:
    """Start a process that is to outlive this one, in a session of its own; returns its id."""
    paths = [str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
    with log.open("wb") as output, open(os.devnull, "rb") as nothing:
        streams = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number, file in ((0, nothing), (1, output), (2, output))]
        return os.posix_spawn(
            command[0],
            command,
            {**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            file_actions=streams,
            setsid=True,
        )


def main() -> None:
    """Run the lab that the first argument describes, as `start_detached` starts it."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    run_lab(LabOptions.from_json(json.loads(sys.argv[1])))
