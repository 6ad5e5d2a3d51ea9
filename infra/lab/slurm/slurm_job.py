"""The lab's training job under Slurm: submitted with sbatch, its ranks started by srun, watched through squeue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activities.jobs.protocol import JobState
from activities.jobs.slurm_jobs import JOB, SlurmJob
from infra.lab.desk import Reply
from infra.lab.job import Refused
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from infra.lab.slurm.daemons import NoSlurm, SlurmDaemons
from infra.lab.watched_job import WatchedJob, last_complete_checkpoint, rank_command

_LOOK_S = 0.3
_START_LIMIT_S = 60.0


class World:
    """The ranks of one start of the job: the port that rank 0 listens on, and who is there."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.nodes: dict[int, str] = {}
        self.running = 0


class TrainJob(WatchedJob):
    """The job as sbatch submits it. It has Slurm's `id`, and the name by which Hotspare calls it; each start is a world."""

    def __init__(self, daemons: SlurmDaemons, by_slurm_name: Mapping[str, LabNode], folder: Path, options: LabOptions) -> None:
        super().__init__(options)
        self.id = ""
        self.script = daemons.folder / "train.sbatch"
        self._daemons, self._by_slurm_name = daemons, by_slurm_name
        self._checkpoints = folder / "checkpoints"
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        self._worlds: dict[int, World] = {}
        self._begun = 0
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Submit the job and wait until its ranks run. NoSlurm shows what Slurm says."""
        status, said = await self._daemons.ask("sbatch", "--parsable", str(self.script))
        if status:
            raise NoSlurm(f"sbatch: {said}")
        self.id = said.split(";")[0].strip()
        self.name = f"{JOB}{self.id}"
        self._looking = asyncio.ensure_future(self._look())
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await self._changes.wait_for(lambda: self._state == "RUNNING")
        except TimeoutError:
            _, nodes = await self._daemons.ask("sinfo", "-N", "-l")
            _, job = await self._daemons.ask("scontrol", "show", "job", self.id)
            raise NoSlurm(f"the job did not start within {_START_LIMIT_S:.0f} s:\n{nodes}\n{job}") from None

    async def run_rank(self, slurm_name: str, fields: dict[str, Any], reply: Reply) -> int:
        """Run one rank as a node's work until it ends; its exit status is that of srun's task. Cancelled when Slurm ends that."""
        node = self._by_slurm_name[slurm_name]
        world = self._worlds.setdefault(fields["restart"], World(fields["world"]))
        rank = int(fields["rank"])
        port = 0 if rank == 0 else await world.port
        pipe = asyncio.subprocess.PIPE if rank == 0 else None
        start = last_complete_checkpoint(self._checkpoints)
        command = rank_command(self._options, self._checkpoints, rank, world.size, port, start)
        process = await node.start_work("python3", command, stdout=pipe)
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

    def _joined(self, world: World, rank: int, node: str) -> None:
        world.nodes[rank] = node
        world.running += 1
        if len(world.nodes) < world.size:
            return
        self.node_names = [world.nodes[number] for number in sorted(world.nodes)]
        first = last_complete_checkpoint(self._checkpoints)
        if self._begun:
            self._count_resume(self.run_token, first)
        self._begun += 1
        self._begin(first)
        self._changes.notify()

    async def _look(self) -> None:
        """Follow the job in Slurm: whether it is held, and which token Hotspare has noted in it."""
        while True:
            status, text = await self._daemons.ask("squeue", "--json", "--states=all")
            for row in json.loads(text)["jobs"] if status == 0 else []:
                if str(row["job_id"]) == self.id:
                    self._take(SlurmJob(row))
            await asyncio.sleep(_LOOK_S)

    def _take(self, job: SlurmJob) -> None:
        self.run_token = str(job.record.get("token", "")) or self.run_token
        world = self._worlds.get(job.restarts)
        ranks = world is not None and len(world.nodes) == world.size == world.running
        running = job.job_state is JobState.RUNNING and ranks
        self._set_state("RUNNING" if running else "HELD" if job.held else "STOPPED")

    async def hold(self) -> None:
        """Requeue the job in held state, as a person would, and wait until it has stopped."""
        await self._daemons.ask("scontrol", "requeuehold", self.id)
        await self.wait_for_state("HELD")

    async def resume(self, names: list[str], token: str) -> None:
        """Who wants it released says so to Slurm."""
        raise Refused(f"{self.name} is Slurm's: scontrol update jobid={self.id} ReqNodeList=..., then scontrol release")

    async def close(self) -> None:
        """Cancel the job with the lab."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            await self._daemons.ask("scancel", self.id)

    async def trainctl(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Answer how the training program stands; everything else is asked of Slurm."""
        if fields["verb"] not in ("status", "progress") or fields["job"] not in (self.id, self.name, "train"):
            await reply.err("trainctl: this job is Slurm's; use scontrol and squeue\n")
            return 1
        await reply.out(json.dumps(self.status()) + "\n")
        return 0
