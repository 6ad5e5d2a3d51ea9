"""The lab's training job and its launcher: one process a node, all-or-nothing, resumed from the last complete checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.lab.desk import Reply
from infra.lab.node import LabNode, NodeState
from infra.lab.options import LabOptions
from infra.lab.orchestrators import LabJob, Tables
from infra.lab.watched_job import WatchedJob, last_complete_checkpoint, rank_command

if TYPE_CHECKING:
    from infra.lab.lab import Lab

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


class TrainingJob(WatchedJob):
    """The job `train` as `trainctl` starts it. `resumes` are the starts that a resume made."""

    def __init__(
        self, nodes: Mapping[str, LabNode], workers: list[str], head_root: Path, shared: Path, options: LabOptions
    ) -> None:
        super().__init__(options)
        self.node_names = list(workers)
        self._nodes = nodes
        self._quarantined = head_root / QUARANTINED
        self._checkpoints = shared / "checkpoints"
        self._ranks: list[Rank] = []
        self._minding: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._checkpoints.mkdir(parents=True, exist_ok=True)

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
            if self._state == JobState.RUNNING:
                raise Refused(f"{self.name} is running; hold it first")
            self._check(names)
            reached = self.step
            await self._launch(names, token)
            self.lost_steps += reached - self._began[1]
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
        self._begin(last_complete_checkpoint(self._checkpoints))
        self.node_names = list(names)
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
        command = rank_command(self._options, self._checkpoints, rank, len(names), port, self._began[1])
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
