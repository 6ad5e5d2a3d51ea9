"""The stage of the demonstration: a lab cluster with a training job, and Hotspare at work on it in a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from activities import names
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.cli.common import Desk, desk
from workers.demo.ending import JobView
from workers.demo.screen import Screen
from workers.demo.stories import Injection, Setting, Story
from workers.demo.worker_process import WorkerProcess, hotspare

NODES, SPARES = 4, 2

ROLE_RESERVE = "reserve"
"""Role of a spare that a story does not have in its pool: any word that Hotspare does not know."""


@dataclass
class Stage:
    """What the stories play on."""

    lab: Lab
    desk: Desk
    worker: WorkerProcess

    @property
    def nodes(self) -> dict[str, str]:
        """Names of the nodes that can have incidents, by instance id."""
        return {node.instance_id: node.name for node in self.lab.nodes.values() if node.role != names.ROLE_HEAD}

    def job(self) -> JobView:
        """Look at the training job."""
        status = self.lab.job.status()
        return JobView(
            name=status["job"],
            state=status["state"],
            nodes=tuple(status["nodes"]),
            step=status["step"] or 0,
            checkpoint_step=status["checkpoint_step"] or 0,
            resumes=len(status["resumes"]),
            by_us=sum(1 for resume in status["resumes"] if resume.get("token")),
        )

    async def job_name(self) -> str:
        """What Hotspare calls the job: on Kubernetes it is more than its name."""
        node = await self.desk.resolve(self.lab.nodes[self.job().nodes[0]].instance_id)
        found = await asyncio.to_thread(self.desk.wiring.jobs.find_on, node)
        return found.job if found else self.job().name

    async def prepare(self, story: Story) -> None:
        """Fill the pool for a story, put its hidden faults in place, and let the job reach a checkpoint of its own."""
        for name in story.spares:
            if name not in self.job().nodes:
                await self.put_in_pool(name)
        for injection in story.hidden:
            await self.inject(injection)
        await self.lab.job.wait_for_checkpoint(self.job().checkpoint_step + 1)

    async def put_in_pool(self, name: str) -> None:
        """Make a reserve node a spare."""
        await self._set_role(name, names.ROLE_SPARE)

    async def empty_the_pool(self) -> None:
        """Leave no spare in the pool; each story puts its own in."""
        for node in self.lab.nodes.values():
            if node.role == names.ROLE_SPARE:
                await self._set_role(node.name, ROLE_RESERVE)

    async def inject(self, injection: Injection) -> list[str]:
        """Break a node; returns the kernel lines that its driver printed."""
        return await self.lab.inject(injection.node, injection.fault)

    def calls(self, operation: str) -> dict[str, int]:
        """How often an EC2 operation was called so far, by node name."""
        return {name: self.lab.endpoint.count(operation, key) for key, name in self.nodes.items()}

    async def quarantined(self) -> frozenset[str]:
        """Names of the nodes that carry the quarantine tag, as EC2 says now."""
        views = await asyncio.to_thread(self.desk.wiring.ec2.describe_cluster, self.desk.settings.name)
        out = {view.instance_id for view in views if view.tags.get(names.TAG_QUARANTINE)}
        return frozenset(name for key, name in self.nodes.items() if key in out)

    async def _set_role(self, name: str, role: str) -> None:
        instance_id = self.lab.nodes[name].instance_id
        await asyncio.to_thread(self.desk.wiring.ec2.set_tags, instance_id, {names.TAG_ROLE: role})


@asynccontextmanager
async def set_stage(folder: Path, screen: Screen, setting: Setting | None = None) -> AsyncIterator[Stage]:
    """Bring up the demonstration's lab with Hotspare at work on it; take all of it down afterwards."""
    setting = setting or Setting()
    screen.say(f"A lab cluster of {NODES} nodes and {SPARES} spares{setting.words} comes up in {folder} ...")
    options = LabOptions(
        folder=folder,
        nodes=NODES,
        spares=SPARES,
        orchestrator=setting.orchestrator,
        job_kind=setting.job_kind,
        access=setting.access,
    )
    async with Lab(options) as lab, at_work(lab, screen) as stage:
        yield stage


@asynccontextmanager
async def at_work(lab: Lab, screen: Screen) -> AsyncIterator[Stage]:
    """Set Hotspare up on a lab as on any cluster, start the job and the worker, with an empty pool; end the worker afterwards."""
    os.environ.update(lab.environment())
    async with desk(None) as opened:
        await lab.job.start()
        worker = WorkerProcess(lab.folder / "hotspare.log")
        stage = Stage(lab, opened, worker)
        await stage.empty_the_pool()
        screen.say("hotspare init: search attributes, schedule, Cluster ...")
        await hotspare(lab.folder / "init.log", "init", "--yes")
        screen.say("hotspare run: worker, watcher and intake in one process ...")
        async with worker:
            yield stage
