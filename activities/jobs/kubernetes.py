"""The job adapter `kubernetes`: Job, JobSet, PyTorchJob and TrainJob, each restarted by its own controller. See README.md."""

from __future__ import annotations

from dataclasses import replace

from activities.clock import Clock, SystemClock, beat
from activities.errors import CapabilityMissing, DeadlinePassed, NotOurs, PreconditionFailed, ProviderBusy, UnknownNode
from activities.inventory import Inventory, Node
from activities.jobs.kubernetes_kinds.pytorch_job import auto_resumes
from activities.jobs.kubernetes_kinds.workload import Placement
from activities.jobs.kubernetes_pods import (
    gpus_asked,
    holds_gpus,
    is_leaving,
    lease_toleration,
    node_of,
    node_set,
    runs,
    steps_in,
    waits_for_node,
    why_waiting,
)
from activities.jobs.kubernetes_workloads import Workload, Workloads
from activities.jobs.lint import JobShape, budget_warnings, warnings_of
from activities.jobs.progress import ProgressCommand
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.kubernetes import NODE, POD, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_marks import mark_on
from activities.kubernetes_nodes import KubernetesNodes, inventory_names, is_ready
from activities.kubernetes_taints import lease_value, leased_to, released
from activities.names import KUBE, KUBE_HELD, KUBE_TOKEN
from activities.settings import JobSettings, KubernetesSettings

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a job whose `suspend` belongs to Kueue. Source: Kueue documentation, "Run a Kubernetes Job"."""

PLACED = f"{KUBE}/placed"
"""Label of the nodes on which a job that was taken over is to run; its value is that of the job's lease."""

POLL_S = 0.5
"""Seconds between looks at a job that is to stop. Hotspare default."""


class KubernetesJobs:
    """Jobs of one Kubernetes. Their controllers restart them: nodes are supplied and left; a hold is a take-over."""

    def __init__(
        self,
        api: KubernetesApi,
        nodes: KubernetesNodes,
        inventory: Inventory,
        progress: ProgressCommand,
        settings: KubernetesSettings,
        job: JobSettings,
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._inventory = inventory
        self._progress = progress
        self._gpu_resource = settings.gpu_resource
        self._job = job
        self._workloads = Workloads(api, settings.gpu_resource)
        self._clock = clock or SystemClock()

    def find_on(self, node: Node) -> JobStatus | None:
        try:
            name = self._nodes.name(node)
        except UnknownNode:
            return None
        looked_at = [self._status(one) for one in self._candidates(name) if not _complete(one)]
        found = [status for status in looked_at if node.name in status.nodes]
        if not found:
            return None
        others = [f"{other.job} has pods on {node.name} too" for other in found[1:]]
        return found[0].model_copy(update={"warnings": [*found[0].warnings, *others]})

    def _candidates(self, kubernetes_node: str) -> list[Workload]:
        """The workloads with pods on a node, the one with most GPUs first; then those whose pods were there and are gone."""
        asked: dict[str, int] = {}
        found: dict[str, Workload] = {}
        for pod in self._api.list(POD, fields=f"spec.nodeName={kubernetes_node}"):
            gpus = gpus_asked(pod["spec"], self._gpu_resource)
            workload = self._workloads.of_pod(pod) if gpus else None
            if workload is not None:
                asked[workload.id] = asked.get(workload.id, 0) + (gpus if holds_gpus(pod) else 0)
                found[workload.id] = workload
        present = sorted(found.values(), key=lambda one: -asked[one.id])
        return present or self._workloads.bound_there(kubernetes_node)

    def status(self, job: str) -> JobStatus:
        return self._status(self._workloads.get(job))

    def _status(self, workload: Workload) -> JobStatus:
        kind, family = workload.kind, workload.family
        pods = self._workloads.pods(workload)
        nodes = self._nodes.all()
        names = {key: node.name for key, node in inventory_names(nodes, self._inventory).items()}
        ended, left = kind.ended(family), kind.restarts_left(family, pods)
        told = self._progress.of(workload.id)
        step, checkpoint = steps_in(pods, family.top)
        step = step if told.step is None else told.step
        shape = replace(kind.shape(family, self._gpu_resource), shows_progress=step is not None or self._progress.configured)
        annotations = annotations_of(family.top)
        return JobStatus(
            job=workload.id,
            state=self._state(workload, pods, [node["metadata"]["name"] for node in nodes if is_ready(node)]),
            nodes=[names.get(one, one) for one in node_set(pods, self._workloads.bindings(workload))],
            ranks_on=sorted({names.get(node_of(pod), node_of(pod)) for pod in pods if holds_gpus(pod)}),
            step=step,
            checkpoint_step=checkpoint if told.checkpoint_step is None else told.checkpoint_step,
            seconds_per_step=told.seconds_per_step,
            run_token=annotations.get(KUBE_TOKEN, ""),
            restarted_by=RestartedBy.IN_JOB if _in_job(workload, shape) else RestartedBy.CONTROLLER,
            restarts_left=0 if ended else left,
            controller=f"{shape.controller} (in Kueue's queue)" if _in_kueue(workload) else shape.controller,
            held_for=annotations.get(KUBE_HELD, ""),
            ended=f"{'failed' if ended.failed else 'complete'}: {ended.words}" if ended else "",
            waits_for=why_waiting(pods),
            warnings=[*warnings_of(shape), *budget_warnings(shape, left, self._job.restarts_warning)],
        )

    def _state(self, workload: Workload, pods: list[Object], ready: list[str]) -> JobState:
        """Nothing is known of a pod on a node whose kubelet is silent, so a job that has one there is not provably stopped."""
        live = [pod for pod in pods if holds_gpus(pod)]
        if any(runs(pod) and not is_leaving(pod) and node_of(pod) in ready for pod in live):
            return JobState.RUNNING
        if any(node_of(pod) not in ready for pod in live):
            return JobState.UNKNOWN
        if live:
            return JobState.RUNNING
        ours = KUBE_HELD in annotations_of(workload.family.top)
        return JobState.HELD if ours and workload.kind.suspended(workload.family) else JobState.STOPPED

    def hold(self, job: str, reason: str) -> JobStatus:
        workload = self._workloads.get(job)
        _refuse_kueue(workload)
        if ended := workload.kind.ended(workload.family):
            raise CapabilityMissing(
                f"job {job} has ended ({ended.words}), and what has ended is not started again; submit it anew"
            )
        ours, suspended = KUBE_HELD in annotations_of(workload.family.top), workload.kind.suspended(workload.family)
        if suspended and not ours:
            raise NotOurs(f"job {job} was suspended by somebody else, who starts it again; Hotspare does not take it over")
        if not suspended:
            said = {"metadata": {"annotations": {KUBE_HELD: reason[:500] or "held by Hotspare"}}}
            self._patch(workload, said | workload.kind.suspend(True))
        return self._until(job, JobState.HELD, "stopped")

    def _until(self, job: str, wanted: JobState, words: str) -> JobStatus:
        until = self._clock.now() + self._job.command_deadline_s
        while True:
            status = self.status(job)
            if status.state is wanted:
                return status
            if self._clock.now() >= until:
                raise DeadlinePassed(
                    f"job {job} is not {words} after {self._job.command_deadline_s:.0f} s; it still has pods on "
                    f"{', '.join(status.ranks_on or []) or 'no node'}"
                )
            beat()
            self._clock.wait(POLL_S)

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        workload = self._workloads.get(job)
        annotations, suspended = annotations_of(workload.family.top), workload.kind.suspended(workload.family)
        if annotations.get(KUBE_TOKEN) == token and not suspended:
            return
        _refuse_kueue(workload)
        if KUBE_HELD not in annotations or not suspended:
            raise PreconditionFailed(f"job {job} is not held by Hotspare, so it is not resumed; hold it first")
        if not workload.kind.settled(workload.family):
            raise ProviderBusy(f"job {job}: its controller has not noticed yet that it is suspended")
        self._place(workload, nodes)
        started = {"metadata": {"annotations": {KUBE_TOKEN: token, KUBE_HELD: None}}}
        self._patch(workload, started | workload.kind.suspend(False))

    def _place(self, workload: Workload, nodes: list[str]) -> None:
        """Have the next pods run on exactly these nodes: a label there, and nowhere else, that they ask for."""
        lease = lease_value(workload.id)
        wanted = [self._nodes.get(self._inventory.resolve("", name)) for name in nodes]
        chosen = {one["metadata"]["name"] for one in wanted}
        for one in self._nodes.all():
            name, labelled = one["metadata"]["name"], labels_of(one).get(PLACED) == lease
            if labelled != (name in chosen):
                self._api.patch(NODE, name, {"metadata": {"labels": {PLACED: None if labelled else lease}}})
        self._patch(workload, workload.kind.place(workload.family, Placement(PLACED, lease, lease_toleration(lease))))

    def supply(self, job: str, node: Node) -> None:
        workload = self._workloads.get(job)
        pods = self._workloads.pods(workload)
        name = self._nodes.name(node)
        if any(node_of(pod) == name and runs(pod) for pod in pods):
            self._nodes.change(node, lambda found: released(found, into_pool=False))
            return
        self._nodes.change(node, lambda found: self._leased(found, node, workload.id))
        toleration = lease_toleration(lease_value(workload.id))
        for pod in pods:
            tolerated = list(pod["spec"].get("tolerations") or [])
            if waits_for_node(pod) and toleration not in tolerated:
                self._api.patch(
                    POD, pod["metadata"]["name"], {"spec": {"tolerations": [*tolerated, toleration]}}, workload.namespace
                )

    def _leased(self, found: Object, node: Node, job: str) -> Object | None:
        mark = mark_on(found, node.name)
        if mark is not None:
            raise PreconditionFailed(f"{node.name} is quarantined by {mark.owner}; it is not supplied to job {job}")
        return leased_to(found, job)

    def take_back(self, job: str, node: Node) -> None:
        self._nodes.change(node, lambda found: released(found, into_pool=True))

    def leave(self, job: str, node: Node) -> None:
        workload = self._workloads.get(job)
        found = self._nodes.get(node)
        there = [pod for pod in self._workloads.pods(workload) if node_of(pod) == found["metadata"]["name"] and holds_gpus(pod)]
        for pod in there:
            if is_ready(found):
                self._evict(pod)
            elif mark_on(found, node.name) is not None:
                # Its kubelet is silent, and the node is ours. A rank that may still run there can do nothing without the others,
                # and its controller starts no other in its place before the pod is gone.
                self._delete_at_once(pod)

    def _evict(self, pod: Object) -> None:
        if is_leaving(pod):
            return
        meta = pod["metadata"]
        blocked = self._api.evict(meta["name"], meta["namespace"], uid=meta["uid"])
        if blocked is not None:
            raise ProviderBusy(f"pod {meta['namespace']}/{meta['name']} is held by the disruption budget {blocked.budget}")

    def _delete_at_once(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._api.delete(POD, meta["name"], meta["namespace"], grace_s=0, uid=meta["uid"])

    def _patch(self, workload: Workload, body: Object) -> None:
        self._api.patch(workload.kind.kind, workload.name, body, workload.namespace)


def _complete(workload: Workload) -> bool:
    """Whether a job has done its work: its pods may still be listed, and it needs no node any more."""
    ended = workload.kind.ended(workload.family)
    return ended is not None and not ended.failed


def _in_kueue(workload: Workload) -> bool:
    return KUEUE_QUEUE in labels_of(workload.family.top)


def _refuse_kueue(workload: Workload) -> None:
    if _in_kueue(workload):
        raise CapabilityMissing(
            f"job {workload.id} is in a queue of Kueue, which alone suspends and starts it; to have it started anew set "
            "spec.active of its Workload to false, then to true"
        )


def _in_job(workload: Workload, shape: JobShape) -> bool:
    """Whether the job restarts its ranks inside its pods: torchrun, or HyperPod's own resume."""
    return bool(shape.torchrun and shape.torchrun.max_restarts) or auto_resumes(workload.family)
