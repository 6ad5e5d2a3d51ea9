"""What the lab's job is, whoever starts its ranks: how far it has come, who waits for that, and how it is told."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from infra.lab.changes import Changes
from infra.lab.options import LabOptions

RANK_PROGRAM = Path(__file__).with_name("job_rank.py")


class WatchedJob:
    """The job `train`. `resumes` has one entry for each start of its world after the first: the token, if any, and the nodes."""

    name = "train"
    restarted_by = "hotspare"

    def __init__(self, options: LabOptions) -> None:
        self.step = self.checkpoint_step = self.lost_steps = 0
        self.run_token = ""
        self.resumes: list[dict[str, Any]] = []
        self.node_names: list[str] = []
        self._options = options
        self._state = "STOPPED"
        self._began = (0.0, 0)
        self._changes = Changes()

    @property
    def state(self) -> str:
        """RUNNING, STOPPED or HELD."""
        return self._state

    def _set_state(self, state: str) -> None:
        self._state = state
        self._changes.notify()

    def _begin(self, step: int) -> None:
        """A world begins at this step; its pace is measured from its first step on."""
        self._began = (0.0, step)
        self.step = self.checkpoint_step = step

    def _count_resume(self, token: str, step: int) -> None:
        """Count a start after the first, on the nodes that it has, and what is lost back to the step that it begins at."""
        self.resumes.append({"token": token, "nodes": list(self.node_names)})
        self.lost_steps += self.step - step

    def _hear(self, word: str, step: int) -> None:
        """Take in what rank 0 tells."""
        if word == "step":
            self.step = step
            self._began = self._began if self._began[0] else (time.monotonic(), step)
        elif word == "checkpoint":
            self.checkpoint_step = step
        self._changes.notify()

    async def _read(self, leader: asyncio.StreamReader) -> None:
        """Follow what rank 0 prints."""
        while line := await leader.readline():
            word, _, number = line.decode().partition(" ")
            self._hear(word, int(number))

    async def wait_for_step(self, step: int) -> None:
        """Wait until the job has done a step."""
        await self._changes.wait_for(lambda: self.step >= step)

    async def wait_for_checkpoint(self, step: int = 1) -> None:
        """Wait until a checkpoint at `step` or later is complete."""
        await self._changes.wait_for(lambda: self.checkpoint_step >= step)

    async def wait_for_state(self, state: str) -> None:
        """Wait until the job is RUNNING, STOPPED or HELD."""
        await self._changes.wait_for(lambda: self._state == state)

    async def wait_for_resumes(self, count: int) -> None:
        """Wait until its world has begun this many times after the first."""
        await self._changes.wait_for(lambda: len(self.resumes) >= count)

    def seconds_per_step(self) -> float:
        """Return the measured pace of the present world, or what was asked for while there is none."""
        since, from_step = self._began
        done = self.step - from_step
        measured = (time.monotonic() - since) / done if since and done > 0 and self._state == "RUNNING" else None
        return round(measured or self._options.step_s, 4)

    def status(self) -> dict[str, Any]:
        """Return what `trainctl status` prints, and the resumes."""
        return {
            "job": self.name,
            "state": self._state,
            "nodes": list(self.node_names),
            "step": self.step,
            "checkpoint_step": self.checkpoint_step,
            "run_token": self.run_token,
            "restarted_by": self.restarted_by,
            "seconds_per_step": self.seconds_per_step(),
            "resumes": list(self.resumes),
            "lost_steps": self.lost_steps,
        }


def rank_command(options: LabOptions, checkpoints: Path, rank: int, world: int, port: int, start: int) -> list[str]:
    """Return the command of one rank: `port` is where rank 0 listens, 0 for itself; `start` is the step that it begins at."""
    command = [os.path.realpath(sys.executable), "-E", "-P", "-S", str(RANK_PROGRAM)]
    for name, value in (
        ("rank", rank),
        ("world", world),
        ("port", port),
        ("start", start),
        ("step-s", options.step_s),
        ("checkpoint-every", options.checkpoint_every),
        ("checkpoints", checkpoints),
    ):
        command += [f"--{name}", str(value)]
    return command


def last_complete_checkpoint(checkpoints: Path) -> int:
    """Step of the newest checkpoint that has its completion marker, 0 without one."""
    markers = checkpoints.glob("step-*/COMPLETE")
    return max((int(marker.parent.name.removeprefix("step-")) for marker in markers), default=0)
