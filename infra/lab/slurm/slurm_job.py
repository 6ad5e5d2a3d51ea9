"""The lab's training job under Slurm: submitted with sbatch, its ranks started by srun, watched through squeue."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activities.jobs.protocol import JobState
from activities.jobs.slurm_jobs import SlurmJob
from infra.lab.changes import Changes
from infra.lab.desk import Reply
from infra.lab.job import RANK_PROGRAM, Refused
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from infra.lab.slurm.daemons import NoSlurm, SlurmDaemons

_LOOK_S = 0.3
_START_LIMIT_S = 60.0


class World:
    """The ranks of one start of the job: the port that rank 0 listens on, and who is there."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.nodes: dict[int, str] = {}
        self.running = 0


class TrainJob:
    """The job `train`; its name is the job id, by which Slurm and Hotspare know it. `resumes` are the worlds after the first."""

    def __init__(self, daemons: SlurmDaemons, by_slurm_name: Mapping[str, LabNode], folder: Path, options: LabOptions) -> None:
        self.name = "train"
        self.step = self.checkpoint_step = self.lost_steps = 0
        self.run_token = ""
        self.resumes: list[dict[str, Any]] = []
        self.node_names: list[str] = []
        self.script = daemons.folder / "train.sbatch"
        self._daemons, self._by_slurm_name, self._options = daemons, by_slurm_name, options
        self._checkpoints = folder / "checkpoints"
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        self._worlds: dict[int, World] = {}
        self._state = "STOPPED"
        self._began = (0.0, 0)
        self._begun = 0
        self._changes = Changes()
        self._looking: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """RUNNING, STOPPED or HELD."""
        return self._state

    async def start(self) -> None:
        """Submit the job and wait until its ranks run. NoSlurm shows what Slurm says."""
        status, said = await self._daemons.ask("sbatch", "--parsable", str(self.script))
        if status:
            raise NoSlurm(f"sbatch: {said}")
        self.name = said.split(";")[0].strip()
        self._looking = asyncio.ensure_future(self._look())
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await self._changes.wait_for(lambda: self._state == "RUNNING")
        except TimeoutError:
            _, nodes = await self._daemons.ask("sinfo", "-N", "-l")
            _, job = await self._daemons.ask("scontrol", "show", "job", self.name)
            raise NoSlurm(f"the job did not start within {_START_LIMIT_S:.0f} s:\n{nodes}\n{job}") from None

    async def run_rank(self, slurm_name: str, fields: dict[str, Any], reply: Reply) -> int:
        """Run one rank as a node's work until it ends; its exit status is that of srun's task. Cancelled when Slurm ends that."""
        node = self._by_slurm_name[slurm_name]
        world = self._worlds.setdefault(fields["restart"], World(fields["world"]))
        rank = int(fields["rank"])
        port = 0 if rank == 0 else await world.port
        pipe = asyncio.subprocess.PIPE if rank == 0 else None
        process = await node.start_work("python3", self._command(rank, world.size, port), stdout=pipe)
        try:
            if process.stdout is not None:
                world.port.set_result(int((await process.stdout.readline()).split()[1]))
            self._joined(world, rank, node.name)
            if process.stdout is not None:
                await self._read(process.stdout)
            code = await process.wait()
            return code if code >= 0 else 128 - code
        finally:
            world.running -= 1
            node.end_work(process)
            await asyncio.shield(process.wait())
            self._changes.notify()

    def _command(self, rank: int, world: int, port: int) -> list[str]:
        command = [os.path.realpath(sys.executable), "-E", "-P", "-S", str(RANK_PROGRAM)]
        options = self._options
        for name, value in (
            ("rank", rank),
            ("world", world),
            ("port", port),
            ("start", self._last_complete_checkpoint()),
            ("step-s", options.step_s),
            ("checkpoint-every", options.checkpoint_every),
            ("checkpoints", self._checkpoints),
        ):
            command += [f"--{name}", str(value)]
        return command

    def _joined(self, world: World, rank: int, node: str) -> None:
        world.nodes[rank] = node
        world.running += 1
        if len(world.nodes) < world.size:
            return
        self.node_names = [world.nodes[number] for number in sorted(world.nodes)]
        first = self._last_complete_checkpoint()
        if self._begun:
            self.resumes.append({"token": self.run_token, "nodes": list(self.node_names)})
            self.lost_steps += self.step - first
        self._begun += 1
        self._began = (0.0, first)
        self.step = self.checkpoint_step = first
        self._changes.notify()

    async def _read(self, leader: asyncio.StreamReader) -> None:
        while line := await leader.readline():
            word, _, number = line.decode().partition(" ")
            if word == "step":
                self.step = int(number)
                self._began = self._began if self._began[0] else (time.monotonic(), self.step)
            elif word == "checkpoint":
                self.checkpoint_step = int(number)
            self._changes.notify()

    async def _look(self) -> None:
        """Follow the job in Slurm: whether it is held, and which token Hotspare has noted in it."""
        while True:
            status, text = await self._daemons.ask("squeue", "--json", "--states=all")
            for row in json.loads(text)["jobs"] if status == 0 else []:
                if str(row["job_id"]) == self.name:
                    self._take(SlurmJob(row))
            await asyncio.sleep(_LOOK_S)

    def _take(self, job: SlurmJob) -> None:
        self.run_token = str(job.record.get("token", "")) or self.run_token
        world = self._worlds.get(job.restarts)
        ranks = world is not None and len(world.nodes) == world.size == world.running
        running = job.job_state is JobState.RUNNING and ranks
        self._state = "RUNNING" if running else "HELD" if job.held else "STOPPED"
        self._changes.notify()

    async def hold(self) -> None:
        """Requeue the job in held state, as a person would, and wait until it has stopped."""
        await self._daemons.ask("scontrol", "requeuehold", self.name)
        await self.wait_for_state("HELD")

    async def resume(self, names: list[str], token: str) -> None:
        """Who wants it released says so to Slurm."""
        raise Refused(f"job {self.name} is Slurm's: scontrol update jobid={self.name} ReqNodeList=..., then scontrol release")

    async def close(self) -> None:
        """Cancel the job with the lab."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            await self._daemons.ask("scancel", self.name)

    def _last_complete_checkpoint(self) -> int:
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
        await self._changes.wait_for(lambda: self._state == state)

    def status(self) -> dict[str, Any]:
        """Return the job as JSON, with its resumes."""
        since, from_step = self._began
        done = self.step - from_step
        measured = (time.monotonic() - since) / done if since and done > 0 and self._state == "RUNNING" else None
        return {
            "job": self.name,
            "state": self._state,
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
        """Answer how the training program stands; everything else is asked of Slurm."""
        if fields["verb"] not in ("status", "progress") or fields["job"] not in (self.name, "train"):
            await reply.err("trainctl: this job is Slurm's; use scontrol and squeue\n")
            return 1
        await reply.out(json.dumps(self.status()) + "\n")
        return 0
