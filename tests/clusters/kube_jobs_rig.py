"""Jobs of each kind on their real controllers, over nodes without machines, and the product's adapter with its own rights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activities.clients.fake_access import FakeAccess
from activities.clients.kubernetes_api import KubernetesClient
from activities.errors import AccessRefused
from activities.inventory import Node
from activities.jobs.kubernetes import KubernetesJobs
from activities.jobs.progress import ProgressCommand
from activities.jobs.protocol import JobStatus
from activities.kubernetes import JOB, JOB_SET, NODE, POD, PYTORCH_JOB, TRAIN_JOB, Kind, Object
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.kubernetes_taints import taint_value
from activities.names import KUBE_CHECKPOINT_STEP, KUBE_SPARE, KUBE_STEP
from activities.quarantine import Mark
from activities.settings_jobs import JobSettings, KubernetesSettings
from tests.activities.kubernetes_world import GPU, NAMESPACE, ListedNodes
from tests.clusters.loop_plane import WORKER, Plane

PATIENCE_S = 90.0
LOOK_S = 0.2

KINDS: dict[str, Kind] = {kind.name: kind for kind in (JOB, JOB_SET, PYTORCH_JOB, TRAIN_JOB)}

_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "TrainingRuntime")


class Rig:
    """A control plane with a scheduler, kwok, and the controllers that `controllers_for` has started."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.plane = Plane(folder, scheduler=True, **options)
        self.admin = self.plane.client("admin")
        self._started: set[str] = set()
        self._worlds = 0

    def controllers_for(self, kind: str) -> None:
        """Start what a kind of job needs, once."""
        controllers = self.plane.real.controllers
        wanted = {"JobSet": ["jobset"], "PyTorchJob": ["training_operator"], "TrainJob": ["jobset", "trainer"], "Job": []}[kind]
        for name in wanted:
            if name not in self._started:
                self.plane.do(getattr(controllers, f"start_{name}")())
                self._started.add(name)

    def world(self, kind: str, *, workers: int = 2, spares: int = 2) -> World:
        """Make nodes of their own for one job, with names that no other world has."""
        self.controllers_for(kind)
        self._worlds += 1
        return World(self, f"w{self._worlds}", kind, workers, spares)

    def close(self) -> None:
        self.admin.close()
        self.plane.close()


class World:
    """One job called `train-<prefix>` with its nodes; the spares are tainted as free ones."""

    def __init__(self, rig: Rig, prefix: str, kind: str, workers: int, spares: int) -> None:
        self.rig, self.kind, self.name = rig, KINDS[kind], f"train-{prefix}"
        self.admin = rig.admin
        self.job = f"{NAMESPACE}/{kind.lower()}/{self.name}"
        names = rig.plane.do(rig.plane.real.add_kwok_nodes(workers + spares, prefix=prefix, taint=True))
        self.nodes = [Node(instance_id=f"i-{one.replace('-', '')}", name=one.replace("-", "n"), gpus=8) for one in names]
        self.kube_names = dict(zip((node.name for node in self.nodes), names, strict=True))
        self.workers, self.spares = self.nodes[:workers], self.nodes[workers:]
        for node in self.nodes:
            taints = [{"key": KUBE_SPARE, "effect": "NoSchedule"}] if node in self.spares else []
            spec = {"providerID": f"aws:///us-east-1a/{node.instance_id}", "taints": taints}
            labels = {"world": prefix}
            self.admin.patch(NODE, self.kube_names[node.name], {"spec": spec, "metadata": {"labels": labels}})
        self.client: KubernetesClient = rig.plane.client(WORKER)
        self.inventory = ListedNodes(*self.nodes)
        self.kube_nodes = KubernetesNodes(self.client)
        self.marks = KubernetesMarks(self.kube_nodes, self.inventory, GPU)
        self.adapter = adapter_for(self.client, self.nodes)
        self._pod = {**_POD, "nodeSelector": {"world": prefix}}

    def start(self, **metadata: Any) -> None:
        """Make the job, and wait until every rank runs."""
        self.create(**metadata)
        self.until(lambda: self.running_on() == sorted(node.name for node in self.workers), self.seen)

    def create(self, **metadata: Any) -> None:
        """Make the job."""
        manifest = _MANIFESTS[self.kind.name](self._pod, len(self.workers), self.name)
        runtime = manifest.pop("runtime", None)
        if runtime is not None:
            self.admin.create(_RUNTIME, runtime, NAMESPACE)
        job: Object = {"metadata": {"name": self.name, **metadata}, "spec": manifest["spec"]}
        self.until(lambda: self._admitted(job), lambda: f"{self.name}: its webhook has not seen its runtime")

    def _admitted(self, job: Object) -> bool:
        """Make the job; False while a webhook has not seen yet what was made just before."""
        try:
            self.admin.create(self.kind, job, NAMESPACE)
        except AccessRefused as error:
            if "not found" not in str(error):
                raise
            return False
        return True

    def pods(self) -> list[Object]:
        """The pods of this world."""
        return [pod for pod in self.admin.list(POD, NAMESPACE) if pod["metadata"]["name"].startswith(f"{self.name}-")]

    def running_on(self) -> list[str]:
        """Where ranks run that nobody deletes."""
        names = {kube: name for name, kube in self.kube_names.items()}
        there = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"]
        return sorted(names[pod["spec"]["nodeName"]] for pod in there)

    def seen(self) -> str:
        """What pods and job look like, for a test that waited in vain."""
        pods = [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"]["phase"]) for pod in self.pods()]
        status = self.adapter.status(self.job).model_dump(mode="json")
        return json.dumps({"pods": pods, "job": self.top().get("status"), "status": status}, indent=1)

    def top(self) -> Object:
        """The job's own object."""
        found = self.admin.get(self.kind, self.name, NAMESPACE)
        assert found is not None
        return found

    def taint(self, node: Node, key: str) -> str | None:
        """Value of a taint on a node."""
        return taint_value(self.kube_nodes.get(node), key)

    def quarantine(self, node: Node) -> None:
        """Keep work off a node, as an incident does."""
        self.marks.write(node, Mark(owner=f"incident/lab/{node.instance_id}", reason="XID 79", since=datetime.now(UTC)))

    def steps(self, step: int, checkpoint: int) -> None:
        """The training program tells how far it is."""
        told = {KUBE_STEP: str(step), KUBE_CHECKPOINT_STEP: str(checkpoint)}
        for pod in self.pods():
            self.admin.patch(POD, pod["metadata"]["name"], {"metadata": {"annotations": told}}, NAMESPACE)

    def supplied(self, node: Node) -> JobStatus:
        """Supply a node to the job until a rank of it works there, as the wait for a controller does."""

        def used() -> bool:
            self.adapter.supply(self.job, node)
            return self.adapter.status(self.job).runs_on(node.name)

        self.until(used, self.seen)
        self.adapter.supply(self.job, node)
        return self.adapter.status(self.job)

    def left(self, node: Node) -> None:
        """Have the job's ranks leave a node."""

        def gone() -> bool:
            self.adapter.leave(self.job, node)
            return not self.adapter.status(self.job).may_have_ranks_on(node.name)

        self.until(gone, self.seen)

    def until(self, holds: Callable[[], bool], seen: Callable[[], str]) -> None:
        """Wait for something, and show what is there instead when it never comes."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, seen()
            time.sleep(LOOK_S)

    def clear(self) -> None:
        """Remove the job, its pods and its nodes."""
        self.admin.delete(self.kind, self.name, NAMESPACE)
        self.until(lambda: not self._swept(), lambda: json.dumps([pod["metadata"]["name"] for pod in self.pods()]))
        for name in self.kube_names.values():
            self.admin.delete(NODE, name)
        self.client.close()

    def _swept(self) -> list[Object]:
        left = self.pods()
        for pod in left:
            self.admin.delete(POD, pod["metadata"]["name"], NAMESPACE, grace_s=0)
        return left


_POD: Object = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
    "containers": [{"name": "pytorch", "image": "none", "command": ["train"], "resources": {"limits": {GPU: "8"}}}],
}


def adapter_for(client: KubernetesClient, nodes: list[Node]) -> KubernetesJobs:
    """The product's adapter over these nodes; no command tells of progress."""
    settings = JobSettings(command_deadline_s=60.0)
    progress = ProgressCommand(_no_head, settings)
    return KubernetesJobs(client, KubernetesNodes(client), ListedNodes(*nodes), progress, KubernetesSettings(), settings)


def job_manifest(ranks: int) -> Object:
    """The spec of a Job of so many ranks, one a node."""
    return _job(_POD, ranks, "")


def _no_head() -> FakeAccess:
    raise AssertionError("no command is configured")


def _job(pod: Object, ranks: int, name: str) -> Object:
    spec = {"completionMode": "Indexed", "completions": ranks, "parallelism": ranks, "backoffLimit": 20}
    return {"spec": {**spec, "template": {"spec": pod}}}


def _replicated(pod: Object, ranks: int) -> Object:
    job = {"completionMode": "Indexed", "completions": ranks, "parallelism": ranks, "backoffLimit": 0}
    return {"spec": {**job, "template": {"spec": pod}}}


def _job_set(pod: Object, ranks: int, name: str) -> Object:
    jobs = [{"name": "workers", "replicas": 1, "template": _replicated(pod, ranks)}]
    return {"spec": {"failurePolicy": {"maxRestarts": 20}, "replicatedJobs": jobs}}


def _pytorch_job(pod: Object, ranks: int, name: str) -> Object:
    worker = {"replicas": ranks, "restartPolicy": "OnFailure", "template": {"spec": {**pod, "restartPolicy": "OnFailure"}}}
    return {"spec": {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": {"Worker": worker}}}


def _train_job(pod: Object, ranks: int, name: str) -> Object:
    node = _replicated({**pod, "containers": [{**pod["containers"][0], "name": "node"}]}, ranks)
    node["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    jobs = [{"name": "node", "replicas": 1, "template": node}]
    template = {"spec": {"failurePolicy": {"maxRestarts": 20}, "replicatedJobs": jobs}}
    meta = {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}}
    runtime = {"metadata": meta, "spec": {"mlPolicy": {"numNodes": ranks}, "template": template}}
    reference = {"name": name, "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    return {"spec": {"runtimeRef": reference}, "runtime": runtime}


_MANIFESTS: dict[str, Callable[[Object, int, str], Object]] = {
    "Job": _job,
    "JobSet": _job_set,
    "PyTorchJob": _pytorch_job,
    "TrainJob": _train_job,
}
