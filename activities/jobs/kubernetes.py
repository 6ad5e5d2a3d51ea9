"""The job adapter `kubernetes`: Job, JobSet, PyTorchJob and TrainJob, each restarted by its own controller. See README.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from activities.clock import Clock, SystemClock
from activities.errors import UnknownNode
from activities.inventory import Inventory, Node
from activities.jobs.kubernetes_kinds.pytorch_job import auto_resumes
from activities.jobs.kubernetes_kueue import Queued, queued
from activities.jobs.kubernetes_pods import (
    gpus_asked,
    holds_gpus,
    is_leaving,
    node_of,
    steps_in,
    why_waiting,
    works,
)
from activities.jobs.kubernetes_supply import Supply
from activities.jobs.kubernetes_takeover import TakeOver
from activities.jobs.kubernetes_workloads import Workload, Workloads
from activities.jobs.lint import JobShape, budget_warnings, warnings_of
from activities.jobs.progress import ProgressCommand
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.kubernetes import POD, KubernetesApi, Object, annotations_of
from activities.kubernetes_nodes import KubernetesNodes, is_ready
from activities.names import KUBE_HELD, KUBE_TOKEN
from activities.settings_jobs import JobSettings, KubernetesSettings


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
        self._restarts_warning = job.restarts_warning
        clock = clock or SystemClock()
        self._workloads = Workloads(api, settings.gpu_resource, clock)
        self._supply = Supply(api, nodes, self._workloads, settings.gpu_resource)
        self._take_over = TakeOver(api, nodes, inventory, self._workloads, self._supply, job, clock, self._status)

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
        """The workloads with pods on a node, the one with most GPUs first; then those that we hold, or whose pods are gone."""
        asked: dict[str, int] = {}
        found: dict[str, Workload] = {}
        for pod in self._api.list(POD, fields=f"spec.nodeName={kubernetes_node}"):
            gpus = gpus_asked(pod["spec"], self._gpu_resource)
            workload = self._workloads.of_pod(pod) if gpus else None
            if workload is not None:
                asked[workload.id] = asked.get(workload.id, 0) + (gpus if holds_gpus(pod) else 0)
                found[workload.id] = workload
        present = sorted(found.values(), key=lambda one: -asked[one.id])
        return present or self._workloads.held_there(kubernetes_node) or self._workloads.bound_there(kubernetes_node)

    def status(self, job: str) -> JobStatus:
        return self._status(self._workloads.get(job))

    def _status(self, workload: Workload) -> JobStatus:
        kind, family = workload.kind, workload.family
        pods = self._workloads.pods(workload)
        place = queued(self._api, workload, pods)
        had = self._workloads.node_set(workload, pods)
        live = [pod for pod in pods if holds_gpus(pod)]
        silent, names = self._silent(live), self._inventory_names({*had, *map(node_of, live)})
        now = datetime.now(UTC)
        working = [pod for pod in live if works(pod, self._gpu_resource, now)]
        told, (step, checkpoint) = self._progress.of(workload.id), steps_in(pods, family.top)
        step = step if told.step is None else told.step
        whole = bool(had) and set(had) <= set(map(node_of, working))
        counted = step is not None or self._progress.configured or not whole  # ranks that wait for others count nothing
        shape = replace(kind.shape(family, self._gpu_resource), shows_progress=counted)
        annotations = annotations_of(family.top)
        ended, left = kind.ended(family), kind.restarts_left(family, pods)
        ranks_on = {names.get(node_of(pod), node_of(pod)) for pod in live}
        return JobStatus(
            job=workload.id,
            state=_state(workload, live, working, silent),
            nodes=sorted(names.get(one, one) for one in had),
            ranks_on=sorted(ranks_on),
            starting_on=sorted(ranks_on - {names.get(node_of(pod), node_of(pod)) for pod in working}),
            step=step,
            checkpoint_step=checkpoint if told.checkpoint_step is None else told.checkpoint_step,
            seconds_per_step=told.seconds_per_step,
            run_token=annotations.get(KUBE_TOKEN, ""),
            restarted_by=RestartedBy.IN_JOB if _in_job(workload, shape) else RestartedBy.CONTROLLER,
            restarts_left=0 if ended else left,
            controller=f"{shape.controller} (in Kueue's queue {place.queue})" if place else shape.controller,
            held_for=annotations.get(KUBE_HELD, ""),
            ended=f"{'failed' if ended.failed else 'complete'}: {ended.words}" if ended else "",
            waits_for=_why_waiting(pods, working, place),
            warnings=[*warnings_of(shape), *budget_warnings(shape, left, self._restarts_warning)],
        )

    def _silent(self, live: list[Object]) -> set[str]:
        """Return the Nodes of these pods whose kubelet says nothing.

        Only Nodes of pods that are not ready are read: the node lifecycle controller makes those of a silent Node so.
        """
        asked = {node_of(pod) for pod in live if not is_ready(pod)}
        return asked - {str(node["metadata"]["name"]) for node in self._nodes.named(asked) if is_ready(node)}

    def _inventory_names(self, kubernetes_nodes: set[str]) -> dict[str, str]:
        known = {node.instance_id: node.name for node in self._inventory.list("")}
        ids = self._nodes.instance_ids(kubernetes_nodes)
        return {name: known[instance_id] for name, instance_id in ids.items() if instance_id in known}

    def hold(self, job: str, reason: str) -> JobStatus:
        return self._take_over.hold(job, reason)

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        self._take_over.resume(job, nodes, token)

    def settle(self, job: str, nodes: list[str]) -> None:
        self._take_over.settle(job, nodes)

    def supply(self, job: str, node: Node) -> None:
        self._supply.supply(self._workloads.get(job), node)

    def take_back(self, job: str, node: Node) -> None:
        self._supply.take_back(node)

    def leave(self, job: str, node: Node) -> None:
        self._supply.leave(self._workloads.get(job), node)


def _state(workload: Workload, live: list[Object], working: list[Object], silent: Collection[str]) -> JobState:
    """Nothing is known of a pod on a node whose kubelet is silent, so a job that has one there is not provably stopped."""
    if any(not is_leaving(pod) and node_of(pod) not in silent for pod in working):
        return JobState.RUNNING
    if any(node_of(pod) in silent for pod in live):
        return JobState.UNKNOWN
    if live:
        return JobState.RUNNING
    ours = KUBE_HELD in annotations_of(workload.family.top)
    return JobState.HELD if ours and workload.kind.suspended(workload.family) else JobState.STOPPED


def _why_waiting(pods: list[Object], working: list[Object], place: Queued | None) -> str:
    """Why ranks that should run do not; where Kueue has a say, what it has done about that."""
    why = why_waiting(pods)
    if place is None or (place.admitted and working and not why):
        return why
    return "; ".join(words for words in (why, place.words) if words)


def _complete(workload: Workload) -> bool:
    """Whether a job has done its work: its pods may still be listed, and it needs no node any more."""
    ended = workload.kind.ended(workload.family)
    return ended is not None and not ended.failed


def _in_job(workload: Workload, shape: JobShape) -> bool:
    """Whether the job restarts its ranks inside its pods: torchrun, or HyperPod's own resume."""
    return bool(shape.torchrun and shape.torchrun.max_restarts) or auto_resumes(workload.family)
