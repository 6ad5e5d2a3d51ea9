"""A lab on one orchestrator with Hotspare at work on it, as a test of the scenario suite drives and judges it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from rich.console import Console
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from activities import names
from infra.lab.faults import Fault
from infra.lab.job import QUARANTINED
from infra.lab.kube.cluster import KubernetesCluster
from infra.lab.kube.control_plane import ControlPlane
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from infra.lab.slurm.cluster import SlurmCluster
from workers.demo.screen import Screen
from workers.demo.stage import Stage, at_work
from workflows.messages import IncidentReport, Word

PROTECTED = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: keep, namespace: default}}
spec: {{minAvailable: 1, selector: {{matchLabels: {{app: db}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, labels: {{app: db}}}}
spec:
  nodeName: {node}
  containers: [{{name: db, image: db, command: [sleep, infinity]}}]
"""

LOOK_S = 0.2
"""Between looks at a workflow, which has no event to wait for."""


@dataclass(frozen=True)
class Adapter:
    """One way to run jobs. `controlled`: whoever it is restarts the job, and Hotspare never does."""

    orchestrator: str
    job_kind: str = "Job"

    @property
    def controlled(self) -> bool:
        return self.orchestrator == "kubernetes"

    @property
    def name(self) -> str:
        return self.job_kind if self.controlled else self.orchestrator


ADAPTERS = (
    Adapter("command"),
    Adapter("kubernetes", "Job"),
    Adapter("kubernetes", "JobSet"),
    Adapter("kubernetes", "PyTorchJob"),
    Adapter("slurm"),
)


@dataclass
class World:
    """The lab and Hotspare on it."""

    adapter: Adapter
    stage: Stage

    @property
    def lab(self) -> Lab:
        return self.stage.lab

    async def spares(self, *spares: str) -> None:
        """Put these into the pool, and let the job write a checkpoint."""
        for name in spares:
            await self.stage.put_in_pool(name)
        await self.lab.job.wait_for_checkpoint(self.lab.job.checkpoint_step + 1)

    async def inject(self, node: str, fault: Fault) -> None:
        """Break a node; the watcher sees the line."""
        await self.lab.inject(node, fault)

    def incident(self, node: str) -> WorkflowHandle[Any, IncidentReport]:
        """The incident of a node."""
        workflow_id = names.incident_id(self.stage.desk.settings.name, self.lab.nodes[node].instance_id)
        return self.stage.desk.client.get_workflow_handle(workflow_id, result_type=IncidentReport)

    async def report(self, node: str) -> IncidentReport:
        """Wait for the end of a node's incident, which may not have begun yet."""
        while not await self._exists(node):  # noqa: ASYNC110  (the server has no event to wait for)
            await asyncio.sleep(LOOK_S)
        return await self.incident(node).result()

    async def _exists(self, node: str) -> bool:
        try:
            return (await self.incident(node).describe()).status is not None
        except RPCError:
            return False

    async def story(self, node: str) -> list[str]:
        """The story of an incident so far, empty before it has begun."""
        if not await self._exists(node):
            return []
        lines = await self.incident(node).query("story")
        return [f"{line['phase']}: {line['text']}" for line in lines]

    async def told(self, node: str, phase: str) -> str:
        """Wait until the story of a node's incident has a line of this phase; returns it."""
        while True:
            for line in await self.story(node):
                if line.startswith(f"{phase}: "):
                    return line
            await asyncio.sleep(LOOK_S)

    async def say(self, node: str, verb: str, why: str, step: str = "") -> None:
        """A person's word to the incident of a node."""
        await self.incident(node).execute_update(verb, Word(by="dana", reason=why, step=step))

    def reboots(self, node: str) -> int:
        """How often EC2 was asked to reboot a node."""
        return self.stage.calls("RebootInstances")[node]

    def ours(self) -> int:
        """How many starts of the job Hotspare made."""
        return sum(1 for resume in self.lab.job.resumes if resume.get("token"))

    def pages(self) -> list[dict[str, Any]]:
        """The pages that went out."""
        log = self.lab.folder / "pages.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    async def keep_out(self, node: str) -> None:
        """Somebody else keeps work off a node, by the orchestrator's own means."""
        orchestrator = self.lab.orchestrator
        if isinstance(orchestrator, KubernetesCluster):
            await orchestrator.plane.kubectl("cordon", self.lab.nodes[node].dns)
        elif isinstance(orchestrator, SlurmCluster):
            await orchestrator.daemons.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=cables, dana")
        else:
            self._head_file(node).parent.mkdir(parents=True, exist_ok=True)
            self._head_file(node).write_text("cables, dana")

    async def kept_out(self, node: str) -> bool:
        """Whether that still holds, as it was."""
        orchestrator = self.lab.orchestrator
        if isinstance(orchestrator, KubernetesCluster):
            found = json.loads(await orchestrator.plane.kubectl("get", "node", self.lab.nodes[node].dns, "-o", "json"))
            return bool(found["spec"].get("unschedulable")) and names.KUBE_QUARANTINE not in found["metadata"]["annotations"]
        if isinstance(orchestrator, SlurmCluster):
            _, text = await orchestrator.daemons.ask("scontrol", "show", "node", node)
            return "DRAIN" in text and "Reason=cables, dana" in text
        return self._head_file(node).read_text() == "cables, dana"

    def _head_file(self, node: str) -> Path:
        return self.lab.nodes["head"].root / QUARANTINED / node

    async def protect_pod(self, name: str, node: str) -> None:
        """Put a pod on a node that a disruption budget lets nobody evict."""
        await self._plane.apply(PROTECTED.format(name=name, node=self.lab.nodes[node].dns))
        await self._plane.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=30s")

    async def unprotect_pods(self) -> None:
        """Take the budget away."""
        await self._plane.kubectl("delete", "poddisruptionbudget", "keep")

    @property
    def _plane(self) -> ControlPlane:
        orchestrator = self.lab.orchestrator
        assert isinstance(orchestrator, KubernetesCluster)
        return orchestrator.plane

    async def trains_on(self, *, with_: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        """Wait until the job has gone two steps on with these nodes and without those."""
        job = self.lab.job
        while True:
            await job.wait_for_state("RUNNING")
            nodes = set(job.status()["nodes"])
            if nodes.issuperset(with_) and nodes.isdisjoint(without):
                break
            await asyncio.sleep(LOOK_S)
        await job.wait_for_step(job.step + 2)
        nodes = set(job.status()["nodes"])
        assert nodes.issuperset(with_), nodes
        assert nodes.isdisjoint(without), nodes


@asynccontextmanager
async def world(folder: Path, adapter: Adapter, **settings: dict[str, Any]) -> AsyncIterator[World]:
    """Bring up a lab of 4 workers and 2 spares, none of them in the pool, with Hotspare on it. `settings` change its tables."""
    options = LabOptions(folder=folder / "lab", nodes=4, spares=2, orchestrator=adapter.orchestrator, job_kind=adapter.job_kind)
    screen = Screen(Console(file=io.StringIO()))
    async with Lab(options) as lab:
        _change(lab.folder / "hotspare.toml", settings)
        async with at_work(lab, screen) as stage:
            yield World(adapter, stage)


def _change(file: Path, settings: dict[str, dict[str, Any]]) -> None:
    document: Any = tomlkit.parse(file.read_text())
    for table, values in settings.items():
        document.setdefault(table, tomlkit.table()).update(values)
    file.write_text(tomlkit.dumps(document))
