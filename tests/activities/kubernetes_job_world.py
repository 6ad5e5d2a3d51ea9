"""A JobSet of two ranks in a Kubernetes in memory, with what its controller, the scheduler and Kueue do as time goes by."""

from __future__ import annotations

from typing import Any

from activities.clients.fake_access import FakeAccess
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.inventory import Node
from activities.jobs.kubernetes import KubernetesJobs
from activities.jobs.progress import ProgressCommand
from activities.kubernetes import JOB_SET, KUEUE_WORKLOAD, NODE, POD, Object
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.kubernetes_taints import taint_value
from activities.names import (
    KUBE_CHECKPOINT_STEP,
    KUBE_SPARE,
    KUBE_STEP,
)
from activities.settings_jobs import JobSettings, KubernetesSettings
from tests.activities.kubernetes_world import GPU, NAMESPACE, KubeletClock, ListedNodes, World

TRAIN = "default/jobset/train"
LONG_AGO = "2026-01-01T00:00:00Z"
SET_LABEL = "jobset.sigs.k8s.io/jobset-name"


class Jobs:
    """A JobSet of two ranks on n1 and n2, and the spare s1."""

    def __init__(self) -> None:
        self.api = FakeKubernetes()
        self.world = World(self.api)
        self.n1, self.n2, self.s1 = (self.world.node(name) for name in ("n1", "n2", "s1"))
        self.api.patch(NODE, "ip-s1", {"spec": {"taints": [{"key": KUBE_SPARE, "effect": "NoSchedule"}]}})
        self.inventory = ListedNodes(self.n1, self.n2, self.s1)
        self.nodes = KubernetesNodes(self.api)
        self.marks = KubernetesMarks(self.nodes, self.inventory, GPU)
        settings, self.clock = JobSettings(), KubeletClock(self.world)
        self.clock.meanwhile = self.controller
        self.starts: list[str] = []
        progress = ProgressCommand(self._no_head, settings)
        self.adapter = KubernetesJobs(self.api, self.nodes, self.inventory, progress, KubernetesSettings(), settings, self.clock)
        self.job_set()
        self.rank("train-workers-0-0-aaaaa", "ip-n1")
        self.rank("train-workers-0-1-bbbbb", "ip-n2")

    def _no_head(self) -> FakeAccess:
        raise AssertionError("no command is configured")

    def job_set(self, name: str = "train", **spec: object) -> None:
        pod = {"containers": [{"name": "rank", "command": ["train"], "resources": {"limits": {GPU: "8"}}}]}
        job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
        whole = {"failurePolicy": {"maxRestarts": 5}, "replicatedJobs": [{"name": "workers", "template": {"spec": job}}]}
        self.api.create(JOB_SET, {"metadata": {"name": name}, "spec": {**whole, **spec}}, NAMESPACE)

    def rank(self, name: str, node: str, phase: str = "Running", job_set: str = "train") -> None:
        spec: Object = {"containers": [{"name": "rank", "resources": {"limits": {GPU: "8"}}}]}
        meta = {"name": name, "labels": {SET_LABEL: job_set}, "annotations": {KUBE_STEP: "120", KUBE_CHECKPOINT_STEP: "100"}}
        self.api.create(POD, {"metadata": meta, "spec": {**spec, **({"nodeName": node} if node else {})}}, NAMESPACE)
        self.says(name, phase)

    def says(self, pod: str, phase: str = "Running", **container: Any) -> None:
        """What the kubelet says of a pod and its container."""
        told = {"name": "rank", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": LONG_AGO}}, **container}
        status: Object = {"phase": phase, **({"containerStatuses": [told]} if phase == "Running" else {})}
        self.api.patch(POD, pod, {"status": status}, NAMESPACE, subresource="status")

    def starts_on(self, *nodes: str) -> None:
        """Where the scheduler will put the ranks of the next start."""
        self.starts = list(nodes)

    def controller(self) -> None:
        """What the job's controller and the scheduler do as time goes by."""
        if self.top()["spec"].get("suspend"):
            for name in self.world.pods():
                self.api.delete(POD, name, NAMESPACE, grace_s=0)
        elif not self.world.pods():
            for number, node in enumerate(self.starts):
                self.rank(f"train-workers-0-{number}-again", node)

    def kueue_says(self, **conditions: tuple[str, str, str]) -> None:
        """What the Workload of the job says: status, reason and message of each condition."""
        meta = {"name": "jobset-train", "labels": {"kueue.x-k8s.io/job-uid": self.top()["metadata"]["uid"]}}
        told = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": LONG_AGO}
            for kind, (status, reason, message) in conditions.items()
        ]
        self.api.put(KUEUE_WORKLOAD, {"metadata": meta, "spec": {}, "status": {"conditions": told}}, NAMESPACE)

    def top(self) -> Object:
        found = self.api.get(JOB_SET, "train", NAMESPACE)
        assert found is not None
        return found

    def taints(self, node: Node, key: str) -> str | None:
        return taint_value(self.nodes.get(node), key)
