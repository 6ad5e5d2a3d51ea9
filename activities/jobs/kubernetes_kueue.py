"""What Kueue, or another controller above a job, does with it: whose queue, whose `suspend`, and what became of its admission."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from activities.errors import CapabilityMissing
from activities.jobs.kubernetes_kinds.workload import condition, spec_of
from activities.jobs.kubernetes_workloads import KINDS, Workload
from activities.kubernetes import KUEUE_WORKLOAD, Kind, KubernetesApi, Object, labels_of

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a job whose `suspend` belongs to Kueue. Source: Kueue documentation, "Run a Kubernetes Job"."""

_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: which job it stands for. Source: pkg/controller/constants of Kueue 0.17."""

_WORKLOADS = (KUEUE_WORKLOAD, Kind("kueue.x-k8s.io/v1beta1", "workloads", "Workload"))
"""What Kueue serves its Workloads as: the version that 0.17 stores, then that of older releases."""

_OWN_CONTROLLERS = frozenset(
    {
        "kubernetes.io/job-controller",
        "jobset.sigs.k8s.io/jobset-controller",
        "kubeflow.org/training-operator",
        "trainer.kubeflow.org/trainjob-controller",
    }
)
"""What `managedBy` says where the kind's own controller has the job. Sources: the API references of the four kinds."""

_LET_IT_BE = frozenset({"CronJob", *(kind.kind.name for kind in KINDS.values())})
"""Controllers that may own a job and do not undo its suspension."""


@dataclass(frozen=True)
class Queued:
    """A job in a queue of Kueue: the queue, and its Workload, None while Kueue has made none."""

    queue: str
    workload: Object | None

    @property
    def words(self) -> str:
        """What Kueue has done with the job so far, in one line."""
        if self.workload is None:
            return f"Kueue has made no Workload for it; is queue {self.queue!r} there, and does Kueue run?"
        return f"Kueue: Workload {self.workload['metadata']['name']} {'; '.join(_doings(self.workload))}"

    @property
    def admitted(self) -> bool:
        """Whether Kueue lets it run at this moment."""
        return self.workload is not None and condition(self.workload, "Admitted") is not None


def queued(api: KubernetesApi, workload: Workload, pods: Iterable[Object]) -> Queued | None:
    """Return a job's place in Kueue, None where no level of it, from its topmost object to its pods, is in a queue."""
    levels = _levels(workload)
    queue = next((name for one in [*levels, *pods] if (name := labels_of(one).get(KUEUE_QUEUE))), "")
    return Queued(queue, kueue_workload(api, workload)) if queue else None


def kueue_workload(api: KubernetesApi, workload: Workload) -> Object | None:
    """Return the Workload that Kueue has made for a job, also for one without a queue's label."""
    for one in _levels(workload):
        for kind in _WORKLOADS:
            try:
                found = api.list(kind, workload.namespace, labels=f"{_JOB_UID}={one['metadata']['uid']}")
            except CapabilityMissing:
                continue
            if found:
                return found[0]
            break
    return None


def refuse_managed(api: KubernetesApi, workload: Workload, pods: Iterable[Object]) -> None:
    """Raise where somebody above the job's own controller suspends and starts it: Hotspare would fight with that one."""
    place = queued(api, workload, pods)
    if place is None and (made := kueue_workload(api, workload)) is not None:
        place = Queued("", made)
    if place is not None:
        name = place.workload["metadata"]["name"] if place.workload else "NAME"
        again = f"kubectl patch workloads.kueue.x-k8s.io {name} -n {workload.namespace} --type=merge -p"
        raise CapabilityMissing(
            f"job {workload.id} is in a queue of Kueue, which alone suspends and starts it. {place.words}. To have it started "
            f'anew set spec.active of its Workload to false, then to true: {again} \'{{"spec":{{"active":false}}}}\''
        )
    if manager := _other_manager(workload.family.top):
        raise CapabilityMissing(f"job {workload.id} is managed by {manager} (managedBy), which alone suspends and starts it")
    if owner := _owner(workload.family.top):
        raise CapabilityMissing(
            f"job {workload.id} belongs to {owner}, which may undo a suspension; hold it there, by that one's own means"
        )


def _levels(workload: Workload) -> list[Object]:
    return [one for one in (workload.family.top, workload.family.child) if one is not None]


def _other_manager(top: Object) -> str:
    spec = spec_of(top)
    manager = str(spec.get("managedBy") or (spec.get("runPolicy") or {}).get("managedBy") or "")
    return "" if manager in _OWN_CONTROLLERS else manager


def _owner(top: Object) -> str:
    owners: list[dict[str, Any]] = top["metadata"].get("ownerReferences") or []
    return next((f"{one['kind']} {one['name']}" for one in owners if one.get("controller") and one["kind"] not in _LET_IT_BE), "")


def _doings(workload: Object) -> list[str]:
    """Say admission, eviction and requeueing in the order in which they matter to somebody who waits."""
    found = []
    if spec_of(workload).get("active") is False:
        found.append("is stopped (spec.active is false)")
    admitted = condition(workload, "Admitted")
    if admitted is not None:
        found.append(f"is admitted since {admitted.get('lastTransitionTime')}: it keeps its quota")
    if (evicted := condition(workload, "Evicted")) is not None:
        found.append(f"was evicted at {evicted.get('lastTransitionTime')} ({_said(evicted)})")
    if (requeued := condition(workload, "Requeued")) is not None:
        found.append(f"was requeued ({_said(requeued)})")
    if nodes := workload.get("status", {}).get("unhealthyNodes"):
        found.append(f"looks for a node in the place of {', '.join(str(one.get('name')) for one in nodes)}")
    if admitted is None:
        found.append(_why_not_admitted(workload))
    return found


def _why_not_admitted(workload: Object) -> str:
    for one in workload.get("status", {}).get("conditions") or []:
        if one.get("type") == "QuotaReserved" and one.get("status") == "False":
            return f"is not admitted ({_said(one)})"
    return "is not admitted"


def _said(one: Object) -> str:
    return ": ".join(str(one[key]) for key in ("reason", "message") if one.get(key))
