"""Gives a node to one job of Kubernetes and to no other, takes it back, and moves ranks off a node."""

from __future__ import annotations

from datetime import UTC, datetime

from activities.errors import PreconditionFailed, ProviderBusy
from activities.inventory import Node
from activities.jobs.kubernetes_pods import holds_gpus, is_leaving, lease_toleration, node_of, waits_for_node, works
from activities.jobs.kubernetes_workloads import Workload, Workloads
from activities.kubernetes import POD, KubernetesApi, Object, labels_of
from activities.kubernetes_marks import mark_on
from activities.kubernetes_nodes import KubernetesNodes, is_ready
from activities.kubernetes_taints import lease_value, leased_to, released, taint_value
from activities.names import KUBE_LEASE, KUBE_PLACED


class Supply:
    """Nodes of one Kubernetes in the hands of its jobs."""

    def __init__(self, api: KubernetesApi, nodes: KubernetesNodes, workloads: Workloads, gpu_resource: str) -> None:
        self._api = api
        self._nodes = nodes
        self._workloads = workloads
        self._gpu_resource = gpu_resource

    def supply(self, workload: Workload, node: Node) -> None:
        """Lease a node to a job whose waiting ranks alone tolerate that; the lease ends when a rank works there."""
        pods = self._workloads.pods(workload)
        name, now = self._nodes.name(node), datetime.now(UTC)
        if any(node_of(pod) == name and works(pod, self._gpu_resource, now) for pod in pods):
            self.let_in(node)
            return
        waiting = [pod for pod in pods if waits_for_node(pod)]
        placed = any(KUBE_PLACED in (pod["spec"].get("nodeSelector") or {}) for pod in waiting)
        self._nodes.change(node, lambda found: leased(found, node, workload.id, placed=placed))
        toleration = lease_toleration(lease_value(workload.id))
        for pod in waiting:
            tolerated = list(pod["spec"].get("tolerations") or [])
            if toleration not in tolerated:
                self._api.patch(
                    POD, pod["metadata"]["name"], {"spec": {"tolerations": [*tolerated, toleration]}}, workload.namespace
                )

    def let_in(self, node: Node) -> None:
        """End a node's lease because it is used: it is a node like any other now."""
        self._nodes.change(node, lambda found: released(found, into_pool=False))

    def take_back(self, node: Node) -> None:
        """Make a node a free spare again."""

        def freed(found: Object) -> Object | None:
            change = released(found, into_pool=True)
            if KUBE_PLACED not in labels_of(found):
                return change
            return {**(change or {}), "metadata": {"labels": {KUBE_PLACED: None}}}

        self._nodes.change(node, freed)

    def leave(self, workload: Workload, node: Node) -> None:
        """Move a job's ranks off a node, as its disruption budgets allow."""
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


def leased(found: Object, node: Node, job: str, *, placed: bool) -> Object | None:
    """Return the change that leases a Node to a job, None where it is; `placed`: with the label that its ranks ask for.

    Raises PreconditionFailed for a Node that is quarantined or leased to another job, NotOurs for one that others keep out.
    """
    mark = mark_on(found, node.name)
    if mark is not None:
        raise PreconditionFailed(f"{node.name} is quarantined by {mark.owner}; it is not supplied to job {job}")
    holder, lease = taint_value(found, KUBE_LEASE), lease_value(job)
    if holder not in (None, lease):
        raise PreconditionFailed(f"{node.name} is leased to job {holder}; it is not supplied to job {job}")
    change = leased_to(found, job) or {}
    if placed and labels_of(found).get(KUBE_PLACED) != lease:
        change = {**change, "metadata": {"labels": {KUBE_PLACED: lease}}}
    return change or None
