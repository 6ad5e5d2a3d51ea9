"""The lab's training job on Kubernetes: made from a manifest, restarted by its controller, watched by what its pods do."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from activities.names import KUBE_TOKEN
from infra.lab.desk import Reply
from infra.lab.job import Refused
from infra.lab.kube.api import MERGE, KubeApi, Object
from infra.lab.kube.control_plane import ControlPlane
from infra.lab.kube.kubelet import Kubelet
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from infra.lab.watched_job import WatchedJob

MANIFESTS = Path(__file__).with_name("jobs")
NAMESPACE, NAME = "default", "train"
GPUS = 8

START_LIMIT_S = 180.0
"""Longest wait for the first start of the world; it takes a few seconds."""

_LOOK_S = 0.1
_LOOK_AT_JOB_S = 0.5


class Kind:
    """A kind of workload: where its objects are, where it says that it is suspended, which label has a pod's rank."""

    def __init__(self, path: str, suspend: tuple[str, ...], rank_label: str) -> None:
        self.path, self.suspend, self.rank_label = path, suspend, rank_label

    def suspended(self, found: Object) -> bool:
        """Whether the object is suspended."""
        value: Any = found
        for key in self.suspend:
            value = (value or {}).get(key)
        return bool(value)

    def suspension(self, suspended: bool) -> Object:
        """Return the patch that suspends it, or lets it go on."""
        body: Any = suspended
        for key in reversed(self.suspend):
            body = {key: body}
        return dict(body)


_INDEX = "batch.kubernetes.io/job-completion-index"
KINDS: Mapping[str, Kind] = {
    "Job": Kind(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", ("spec", "suspend"), _INDEX),
    "JobSet": Kind(f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets", ("spec", "suspend"), _INDEX),
    "PyTorchJob": Kind(
        f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs",
        ("spec", "runPolicy", "suspend"),
        "training.kubeflow.org/replica-index",
    ),
    "TrainJob": Kind(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs", ("spec", "suspend"), _INDEX),
}


class KubeJob(WatchedJob):
    """The job `train`. It runs while each pod of its present world has a process; `resumes` are the worlds after the first."""

    name = NAME
    restarted_by = "controller"

    def __init__(
        self,
        plane: ControlPlane,
        api: KubeApi,
        kubelet: Kubelet,
        nodes: Mapping[str, LabNode],
        folder: Path,
        options: LabOptions,
    ) -> None:
        """`folder` is where the training program keeps its files, as the lab sees it."""
        if options.job_kind not in KINDS:
            raise ValueError(f"no kind of job is called {options.job_kind}; there are {', '.join(KINDS)}")
        self.kind = KINDS[options.job_kind]
        super().__init__(options)
        self._plane, self._api, self._kubelet, self._nodes = plane, api, kubelet, nodes
        self._events = folder / "events.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._pods: list[str] = []
        self._worlds = 0
        self._held = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Make the job and wait until its world has begun. RuntimeError shows its pods when that takes too long."""
        manifest = (MANIFESTS / f"{self._options.job_kind}.yaml").read_text()
        await self._plane.apply((MANIFESTS / "account.yaml").read_text())
        await self._plane.apply_once_admitted(self._fill(manifest))
        self._tasks = [asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._look_at_job())]
        try:
            async with asyncio.timeout(START_LIMIT_S):
                await self._changes.wait_for(lambda: self._worlds > 0)
        except TimeoutError:
            pods = await self._plane.kubectl("get", "pods", "-A", "-o", "wide")
            raise RuntimeError(f"the job did not start within {START_LIMIT_S:.0f} s; its pods:\n{pods}") from None

    def _fill(self, manifest: str) -> str:
        """Put the pod's specification and the lab's numbers into a manifest."""
        pod = (MANIFESTS / "pod.yaml").read_text()
        trainer = pod.replace("name: pytorch\n", "name: node\n", 1)  # Trainer knows its container by this name
        lines = []
        for line in manifest.splitlines():
            word = line.strip()
            text = {"$POD": pod, "$NODE_POD": trainer}.get(word)
            lines.append(line if text is None else textwrap.indent(text, line[: -len(word)]))
        numbers = {
            "WORLD": self._options.nodes,
            "GPUS": GPUS,
            "STEP_S": self._options.step_s,
            "CHECKPOINT_EVERY": self._options.checkpoint_every,
            "RANK_LABEL": self.kind.rank_label,
        }
        return Template("\n".join(lines)).safe_substitute(numbers)

    async def _follow(self) -> None:
        """Take in what rank 0 writes, and what becomes of the pods."""
        place = 0
        while True:
            if self._events.exists():
                with self._events.open("rb") as events:
                    events.seek(place)
                    lines = events.read().splitlines(keepends=True)
                for line in lines:
                    if line.endswith(b"\n"):
                        place += len(line)
                        self._take(json.loads(line))
            running = bool(self._pods) and all(self._runs(uid) for uid in self._pods)
            self._set_state("RUNNING" if running else "HELD" if self._held else "STOPPED")
            await asyncio.sleep(_LOOK_S)

    def _runs(self, uid: str) -> bool:
        run = self._kubelet.runs.get(uid)
        return run is not None and run.running

    def _take(self, event: dict[str, Any]) -> None:
        step = int(event["step"])
        if event["event"] == "start":
            self._begin_world(step, event["nodes"], event["pods"])
        else:
            self._hear("checkpoint" if event["event"] == "checkpoint" else "step", step)

    def _begin_world(self, step: int, nodes: list[str], pods: list[str]) -> None:
        names = {node.dns: node.name for node in self._nodes.values()}
        self.node_names = [names.get(node, node) for node in nodes]
        if self._worlds:
            self._count_resume(self.run_token, step)
        self._worlds += 1
        self._pods = pods
        self._begin(step)

    async def _look_at_job(self) -> None:
        while True:
            found = await self._api.get(f"{self.kind.path}/{NAME}") or {}
            self._held = self.kind.suspended(found)
            self.run_token = (found.get("metadata", {}).get("annotations") or {}).get(KUBE_TOKEN, "")
            await asyncio.sleep(_LOOK_AT_JOB_S)

    async def hold(self) -> None:
        """Suspend the job, as a person would, and wait until it has stopped."""
        await self._api.insist("PATCH", f"{self.kind.path}/{NAME}", self.kind.suspension(True), content_type=MERGE)
        await self.wait_for_state("HELD")

    async def resume(self, names: list[str], token: str) -> None:
        """Its controller chooses nodes and restarts ranks."""
        raise Refused(f"{self.name} is restarted by its controller; change the {self._options.job_kind} in Kubernetes")

    async def close(self) -> None:
        """Stop looking."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def status(self) -> dict[str, Any]:
        """Return the job as JSON, with its resumes."""
        return super().status() | {"kind": self._options.job_kind}

    async def trainctl(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Answer `trainctl progress` and `status`; the rest is Kubernetes' affair."""
        if fields["verb"] not in ("progress", "status"):
            await reply.err(f"trainctl: {self.name} belongs to Kubernetes; use kubectl\n")
            return 1
        if fields["job"].rpartition("/")[2] != self.name:
            await reply.err(f"trainctl: no job is called {fields['job']}; there is {self.name}\n")
            return 1
        whole = self.status()
        shown = ("step", "checkpoint_step", "seconds_per_step") if fields["verb"] == "progress" else tuple(whole)
        await reply.out(json.dumps({key: whole[key] for key in shown}) + "\n")
        return 0
