"""Finds the workloads of Kubernetes that train: by name, by a pod of theirs, by what the scheduler did; and all of their pods."""

from __future__ import annotations

from activities.errors import BadInput, CapabilityMissing
from activities.jobs.kubernetes_kinds.job import JobKind
from activities.jobs.kubernetes_kinds.job_set import JobSetKind
from activities.jobs.kubernetes_kinds.pytorch_job import PyTorchJobKind
from activities.jobs.kubernetes_kinds.train_job import TrainJobKind
from activities.jobs.kubernetes_kinds.workload import Family, WorkloadKind
from activities.jobs.kubernetes_pods import Bound, bindings, gpus_asked
from activities.kubernetes import EVENT, POD, TRAIN_JOB, Kind, KubernetesApi, Object, labels_of

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

    def __init__(self, api: KubernetesApi, gpu_resource: str) -> None:
        self._api = api
        self._gpu_resource = gpu_resource

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

    def bound_there(self, kubernetes_node: str) -> list[Workload]:
        """Return the workloads whose pods the scheduler has sent to a node, the latest first, whose pods are gone from it."""
        found: dict[str, Workload] = {}
        for one in self._bindings(""):
            if one.node == kubernetes_node and (workload := self._by_pod_name(one)) is not None:
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

    def _bindings(self, namespace: str) -> list[Bound]:
        return bindings(self._api.list(EVENT, namespace, fields="reason=Scheduled"))

    def _by_pod_name(self, bound: Bound) -> Workload | None:
        for kind in KINDS.values():
            for top in self._list(kind.kind, bound.namespace):
                workload = self._complete(kind, top)
                owned = any(one.get("controller") for one in top["metadata"].get("ownerReferences") or [])
                if not owned and kind.pod_name(workload.family).match(bound.pod):
                    return workload
        return None

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

    def _list(self, kind: Kind, namespace: str) -> list[Object]:
        try:
            return self._api.list(kind, namespace)
        except CapabilityMissing:
            return []
