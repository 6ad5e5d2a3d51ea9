"""The lab's training job and its launcher: one process a node, all-or-nothing, resumed from the last complete checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.lab.changes import Changes
from infra.lab.desk import Reply
from infra.lab.node import LabNode, NodeState
from infra.lab.options import LabOptions
from infra.lab.orchestrators import LabJob, Tables

if TYPE_CHECKING:
    from infra.lab.lab import Lab

RANK_PROGRAM = Path(__file__).with_name("job_rank.py")
QUARANTINED = "etc/hotspare/quarantined.d"
"""Folder on the head node with one file per node that must get no work."""

Rank = tuple[LabNode, asyncio.subprocess.Process]


class JobState(StrEnum):
    """RUNNING: ranks exist. STOPPED: none does. HELD: none does, and none is to be started."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    HELD = "HELD"


class Refused(Exception):
    """The launcher does not do what it was asked; the text says why."""


class TrainingJob:
    """The job `train`. `resumes` has one entry for each start that a resume made: its token and nodes."""

    name = "train"

    def __init__(
        self, nodes: Mapping[str, LabNode], workers: list[str], head_root: Path, shared: Path, options: LabOptions
    ) -> None:
        self._state = JobState.STOPPED
        self.node_names = list(workers)
        self.step = 0
        self.checkpoint_step = 0
        self.run_token = ""
        self.resumes: list[dict[str, Any]] = []
        self.lost_steps = 0
        self._nodes = nodes
        self._quarantined = head_root / QUARANTINED
        self._checkpoints = shared / "checkpoints"
        self._options = options
        self._ranks: list[Rank] = []
        self._minding: asyncio.Task[None] | None = None
        self._began: tuple[float, int] = (0.0, 0)
        self._turn = asyncio.Lock()
        self._changes = Changes()
        self._checkpoints.mkdir(parents=True, exist_ok=True)

    @property
    def state(self) -> str:
        """RUNNING, STOPPED or HELD."""
        return self._state.value

    async def start(self) -> None:
        """Start the job for the first time, on the workers."""
        async with self._turn:
            await self._launch(self.node_names)

    async def hold(self) -> None:
        """Stop the job and keep it stopped. Holding a held job does nothing."""
        async with self._turn:
            await self._stop(JobState.HELD)

    async def resume(self, names: list[str], token: str) -> None:
        """Start the job on these nodes from its last complete checkpoint, once per token. Raises Refused."""
        async with self._turn:
            if any(resume["token"] == token for resume in self.resumes):
                return
            if self._state is JobState.RUNNING:
                raise Refused(f"{self.name} is running; hold it first")
            self._check(names)
            lost = self.step - self.last_complete_checkpoint()
            await self._launch(names, token)
            self.lost_steps += lost
            self.resumes.append({"token": token, "nodes": list(names)})

    def _check(self, names: list[str]) -> None:
        if not names or len(set(names)) != len(names):
            raise Refused(f"a node list names each node once: {','.join(names)}")
        for name in names:
            node = self._nodes.get(name)
            if node is None or node.role == "head":
                raise Refused(f"no node is called {name}")
            if (self._quarantined / name).exists():
                raise Refused(f"{name} is quarantined ({self._quarantined / name}); lift the quarantine or leave it out")
            if node.state is not NodeState.UP or node.hangs:
                raise Refused(f"{name}: no answer (it is {node.state}{', and hangs' if node.hangs else ''})")

    async def _launch(self, names: list[str], token: str = "") -> None:
        self.checkpoint_step = self.step = self.last_complete_checkpoint()
        self.node_names = list(names)
        self._began = (0.0, self.step)
        leader = await self._start_rank(0, names, port=0, stdout=asyncio.subprocess.PIPE)
        assert leader.stdout is not None
        word = (await leader.stdout.readline()).decode().split()
        if word[:1] != ["port"]:
            await self._stop(JobState.STOPPED)
            raise Refused(f"rank 0 on {names[0]} did not start")
        for rank in range(1, len(names)):
            await self._start_rank(rank, names, port=int(word[1]))
        self.run_token = token
        self._set_state(JobState.RUNNING)
        self._minding = asyncio.ensure_future(self._mind(leader.stdout, list(self._ranks)))

    async def _start_rank(self, rank: int, names: list[str], port: int, stdout: int | None = None) -> asyncio.subprocess.Process:
        options = self._options
        command = [os.path.realpath(sys.executable), "-E", "-P", "-S", str(RANK_PROGRAM)]
        for name, value in (
            ("rank", rank),
            ("world", len(names)),
            ("port", port),
            ("start", self.step),
            ("step-s", options.step_s),
            ("checkpoint-every", options.checkpoint_every),
            ("checkpoints", self._checkpoints),
        ):
            command += [f"--{name}", str(value)]
        node = self._nodes[names[rank]]
        process = await node.start_work("python3", command, stdout=stdout)
        self._ranks.append((node, process))
        return process

    async def _mind(self, leader: asyncio.StreamReader, ranks: list[Rank]) -> None:
        """Follow the job until a rank ends; then end the others, as a launcher does."""
        reading = asyncio.ensure_future(self._read(leader))
        ends = [asyncio.ensure_future(process.wait()) for _, process in ranks]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
        await self._end_ranks()
        await reading
        self._set_state(JobState.STOPPED)

    async def _read(self, leader: asyncio.StreamReader) -> None:
        while line := await leader.readline():
            word, _, number = line.decode().partition(" ")
            if word == "step":
                self.step = int(number)
                self._began = self._began if self._began[0] else (time.monotonic(), self.step)
            elif word == "checkpoint":
                self.checkpoint_step = int(number)
            self._changes.notify()

    async def _end_ranks(self) -> None:
        ranks, self._ranks = self._ranks, []
        for node, process in ranks:
            node.end_work(process)
        await asyncio.gather(*(process.wait() for _, process in ranks))

    async def _stop(self, state: JobState) -> None:
        await self._end_ranks()
        if self._minding is not None:
            await self._minding
            self._minding = None
        self._set_state(state)

    async def close(self) -> None:
        """End the job with the lab."""
        async with self._turn:
            await self._stop(JobState.STOPPED)

    def _set_state(self, state: JobState) -> None:
        self._state = state
        self._changes.notify()

    def last_complete_checkpoint(self) -> int:
        """Step of the newest checkpoint that has its completion marker, 0 without one."""
        markers = self._checkpoints.glob("step-*/COMPLETE")
        return max((int(marker.parent.name.removeprefix("step-")) for marker in markers), default=0)

    async def wait_for_step(self, step: int) -> None:
        """Wait until the job has done a step."""
        await self._changes.wait_for(lambda: self.step >= step)

    async def wait_for_checkpoint(self, step: int = 1) -> None:
        """Wait until a checkpoint at `step` or later is complete."""
        await self._changes.wait_for(lambda: self.checkpoint_step >= step)

    async def wait_for_state(self, state: str) -> None:
        """Wait until the job is RUNNING, STOPPED or HELD."""
        await self._changes.wait_for(lambda: self.state == state)

    def status(self) -> dict[str, Any]:
        """Return what `trainctl status` prints, and the resumes."""
        since, from_step = self._began
        done = self.step - from_step
        measured = (time.monotonic() - since) / done if since and done > 0 and self._state is JobState.RUNNING else None
        return {
            "job": self.name,
            "state": self.state,
            "nodes": list(self.node_names),
            "step": self.step,
            "checkpoint_step": self.checkpoint_step,
            "run_token": self.run_token,
            "restarted_by": "hotspare",
            "seconds_per_step": round(measured or self._options.step_s, 4),
            "resumes": list(self.resumes),
            "lost_steps": self.lost_steps,
        }

    async def trainctl(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Carry out one call of `trainctl` and return its exit status."""
        if fields["verb"] == "find":
            found = self.status() if fields["node"] in self.node_names else None
            await reply.out(json.dumps(found) + "\n")
            return 0
        if fields["job"] != self.name:
            await reply.err(f"trainctl: no job is called {fields['job']}; there is {self.name}\n")
            return 1
        try:
            # Shielded: a launcher does not stop half-way because the one who asked has gone.
            if fields["verb"] == "hold":
                await asyncio.shield(self.hold())
            elif fields["verb"] == "resume":
                await asyncio.shield(self.resume(fields["nodes"].split(","), fields["token"]))
        except Refused as refused:
            await reply.err(f"trainctl: {refused}\n")
            return 1
        await reply.out(json.dumps(self.status()) + "\n")
        return 0


class CommandLauncher:
    """The launcher of the head node as an orchestrator: `trainctl` is all there is of it."""

    def __init__(self, lab: Lab, options: LabOptions) -> None:
        workers = [name for name, node in lab.nodes.items() if node.role == "worker"]
        self.job: LabJob = TrainingJob(lab.nodes, workers, lab.nodes["head"].root, lab.folder / "shared", options)

    async def start(self) -> None:
        """Nothing needs to run before the job."""

    async def close(self) -> None:
        """End the job."""
        await self.job.close()

    def settings(self) -> Tables:
        """The lab's own tables are for this launcher."""
        return {}

    def environment(self) -> dict[str, str]:
        """Nothing more is needed."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Nothing more is to be shown."""
        return {}
