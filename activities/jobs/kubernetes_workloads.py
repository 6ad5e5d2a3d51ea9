"""Finds the workloads of Kubernetes that train: by name, by a pod of theirs, by what the scheduler did; and all of their pods."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from activities.clock import Clock, SystemClock
from activities.errors import BadInput, CapabilityMissing
from activities.jobs.kubernetes_kinds.job import JobKind
from activities.jobs.kubernetes_kinds.job_set import JobSetKind
from activities.jobs.kubernetes_kinds.pytorch_job import PyTorchJobKind
from activities.jobs.kubernetes_kinds.train_job import TrainJobKind
from activities.jobs.kubernetes_kinds.workload import Family, WorkloadKind
from activities.jobs.kubernetes_pods import Bound, bindings, gpus_asked, holds_gpus, is_leaving, node_set
from activities.kubernetes import EVENT, POD, TRAIN_JOB, Kind, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_nodes import CACHE_S
from activities.names import KUBE_HELD, KUBE_NODE_SET

KINDS: dict[str, WorkloadKind] = {
    kind.kind.name.lower(): kind for kind in (TrainJobKind(), JobSetKind(), PyTorchJobKind(), JobKind())
}
"""By their name in the id of a job. A kind that makes others comes before them: a job is called by the topmost."""

_JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_PYTORCH_LABEL = "training.kubeflow.org/job-name"
_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")


class Workload:
    """One job as the API has it: its kind, its object (with the one it works through), its namespace and name."""

    def __init__(self, kind: WorkloadKind, family: Family) -> None:
        meta = family.top["metadata"]
        self.kind, self.family = kind, family
        self.namespace, self.name = str(meta["namespace"]), str(meta["name"])

    @property
    def id(self) -> str:
        """What Hotspare calls the job: "team/jobset/train"."""
        return f"{self.namespace}/{self.kind.kind.name.lower()}/{self.name}"


class Workloads:
    """Looks workloads up. Kinds whose CRD is not installed have none."""

    def __init__(self, api: KubernetesApi, gpu_resource: str, clock: Clock | None = None) -> None:
        self._api = api
        self._gpu_resource = gpu_resource
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._listed: list[Bound] = []
        self._listed_at = float("-inf")

    def get(self, job: str) -> Workload:
        """Return the job with this id. Raises BadInput where there is none."""
        namespace, _, rest = job.partition("/")
        kind, _, name = rest.partition("/")
        found = self._find(KINDS[kind], namespace, name) if kind in KINDS and name else None
        if found is None:
            raise BadInput(
                f"Kubernetes has no job {job!r}; a job is called namespace/kind/name, with kind one of {', '.join(KINDS)}"
            )
        return found

    def of_pod(self, pod: Object) -> Workload | None:
        """Return the topmost workload that a pod belongs to, None where it is of no kind that is known here."""
        labels, namespace = labels_of(pod), str(pod["metadata"]["namespace"])
        if name := labels.get(_PYTORCH_LABEL):
            return self._find(KINDS["pytorchjob"], namespace, name)
        if name := labels.get(_JOB_SET_LABEL):
            return self._top_of_set(namespace, name)
        name = next((labels[key] for key in _JOB_LABELS if key in labels), "")
        return self._find(KINDS["job"], namespace, name) if name else None

    def held_there(self, kubernetes_node: str) -> list[Workload]:
        """Return the workloads that we hold and that had the node, as is written in them: they have no pods."""
        return [one for one in self._all("", labels=KUBE_HELD) if kubernetes_node in noted_nodes(one)]

    def bound_there(self, kubernetes_node: str) -> list[Workload]:
        """Return the workloads whose pods the scheduler has sent to a node, the latest first, whose pods are gone from it."""
        found: dict[str, Workload] = {}
        known: dict[str, list[Workload]] = {}
        for one in self._recent_bindings():
            if one.node != kubernetes_node:
                continue
            if one.namespace not in known:
                known[one.namespace] = list(self._all(one.namespace))
            for workload in known[one.namespace]:
                if workload.kind.pod_name(workload.family).match(one.pod):
                    found.setdefault(workload.id, workload)
        return list(found.values())

    def pods(self, workload: Workload) -> list[Object]:
        """Return the pods of a workload that ask for GPUs."""
        pods = self._api.list(POD, workload.namespace, labels=workload.kind.pod_selector(workload.name))
        return [pod for pod in pods if gpus_asked(pod["spec"], self._gpu_resource)]

    def bindings(self, workload: Workload) -> list[Bound]:
        """Return where the scheduler has sent pods of a workload within the life of events (an hour), the newest first."""
        looks_like = workload.kind.pod_name(workload.family)
        return [one for one in self._bindings(workload.namespace) if looks_like.match(one.pod)]

    def node_set(self, workload: Workload, pods: list[Object] | None = None) -> list[str]:
        """Return the Nodes on which a workload's ranks run or, for each that has none now, ran last.

        What the scheduler did is read only where ranks are missing: events are many, and the API server keeps them on disk alone.
        """
        pods = self.pods(workload) if pods is None else pods
        noted = noted_nodes(workload)
        if noted and KUBE_HELD in annotations_of(workload.family.top):
            return noted
        there = [pod for pod in pods if holds_gpus(pod) and not is_leaving(pod)]
        asking = [one for one in workload.kind.templates(workload.family) if gpus_asked(one.spec, self._gpu_resource)]
        whole = bool(asking) and len(there) >= sum(one.pods for one in asking)
        return node_set(there if whole else pods, () if whole else self.bindings(workload), () if whole else noted)

    def _bindings(self, namespace: str) -> list[Bound]:
        return bindings(self._api.list(EVENT, namespace, fields="reason=Scheduled"))

    def _recent_bindings(self) -> list[Bound]:
        """Return the bindings in all namespaces, listed once for all who ask within some seconds: a sweep asks for each node."""
        with self._lock:
            if self._clock.now() - self._listed_at >= CACHE_S:
                self._listed = self._bindings("")
                self._listed_at = self._clock.now()
            return self._listed

    def _all(self, namespace: str, labels: str = "") -> Iterator[Workload]:
        """Yield the workloads that nothing else owns, of all kinds that are served."""
        for kind in KINDS.values():
            for top in self._list(kind.kind, namespace, labels):
                if not any(one.get("controller") for one in top["metadata"].get("ownerReferences") or []):
                    yield self._complete(kind, top)

    def _top_of_set(self, namespace: str, name: str) -> Workload | None:
        found = self._find(KINDS["jobset"], namespace, name)
        owners = found.family.top["metadata"].get("ownerReferences") or [] if found else []
        if any(one.get("kind") == TRAIN_JOB.name for one in owners):
            return self._find(KINDS["trainjob"], namespace, name)
        return found

    def _find(self, kind: WorkloadKind, namespace: str, name: str) -> Workload | None:
        try:
            top = self._api.get(kind.kind, name, namespace)
        except CapabilityMissing:
            return None
        return None if top is None else self._complete(kind, top)

    def _complete(self, kind: WorkloadKind, top: Object) -> Workload:
        meta = top["metadata"]
        child = self._api.get(kind.child, meta["name"], meta["namespace"]) if kind.child else None
        return Workload(kind, Family(top, child))

    def _list(self, kind: Kind, namespace: str, labels: str = "") -> list[Object]:
        try:
            return self._api.list(kind, namespace, labels=labels)
        except CapabilityMissing:
            return []


def noted_nodes(workload: Workload) -> list[str]:
    """Return the Nodes that are written in a job that was taken over, none for any other: events are kept for an hour."""
    return [name for name in annotations_of(workload.family.top).get(KUBE_NODE_SET, "").split(",") if name]
