"""Takes a job of Kubernetes over from its controller: suspends it, and starts it once on exactly the nodes that are proven."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from functools import partial

from activities.clock import Clock, beat
from activities.errors import BadInput, CapabilityMissing, DeadlinePassed, NotOurs, PreconditionFailed, ProviderBusy
from activities.inventory import Inventory, Node
from activities.jobs.kubernetes_kinds.workload import Family, Placement
from activities.jobs.kubernetes_kueue import refuse_managed
from activities.jobs.kubernetes_pods import holds_gpus, is_leaving, lease_toleration, node_of
from activities.jobs.kubernetes_supply import Supply, leased
from activities.jobs.kubernetes_workloads import Workload, Workloads
from activities.jobs.protocol import JobState, JobStatus
from activities.kubernetes import NODE, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_marks import mark_on
from activities.kubernetes_nodes import KubernetesNodes
from activities.kubernetes_taints import lease_value, taint_value
from activities.names import KUBE_HELD, KUBE_LEASE, KUBE_NODE_SET, KUBE_PLACED, KUBE_SPARE, KUBE_TOKEN
from activities.settings_jobs import JobSettings

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""Seconds between looks at a job that is to stop. Hotspare default."""

_RELEASE = re.compile(r"^v?(\d+)\.(\d+)")


class TakeOver:
    """Holds and resumes. `look` is the adapter's own look at a workload."""

    def __init__(
        self,
        api: KubernetesApi,
        nodes: KubernetesNodes,
        inventory: Inventory,
        workloads: Workloads,
        supply: Supply,
        job: JobSettings,
        clock: Clock,
        look: Callable[[Workload], JobStatus],
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._inventory = inventory
        self._workloads = workloads
        self._supply = supply
        self._job = job
        self._clock = clock
        self._look = look

    def hold(self, job: str, reason: str) -> JobStatus:
        """Suspend a job, and write into it why, and which nodes it had; returns when it has stopped."""
        workload = self._workloads.get(job)
        refuse_managed(self._api, workload, self._workloads.pods(workload))
        if ended := workload.kind.ended(workload.family):
            raise CapabilityMissing(
                f"job {job} has ended ({ended.words}), and what has ended is not started again; submit it anew"
            )
        ours, suspended = KUBE_HELD in annotations_of(workload.family.top), workload.kind.suspended(workload.family)
        if suspended and not ours:
            raise NotOurs(f"job {job} was suspended by somebody else, who starts it again; Hotspare does not take it over")
        if not suspended:
            self._refuse_old_release(workload)
            notes = {KUBE_HELD: reason[:500] or "held by Hotspare", KUBE_NODE_SET: ",".join(self._workloads.node_set(workload))}
            said = {"metadata": {"annotations": notes, "labels": {KUBE_HELD: "yes"}}}
            self._patch(workload, said | workload.kind.suspend(True))
        return self._until_held(job)

    def _refuse_old_release(self, workload: Workload) -> None:
        """Refuse before anything is stopped what could not be started again where it must."""
        needed = workload.kind.movable_since
        version = self._api.version() if needed else ""
        found = _RELEASE.match(version)
        if needed and found and (int(found[1]), int(found[2])) < needed:
            raise CapabilityMissing(_unmovable(workload, f"this is Kubernetes {version}", needed))

    def _until_held(self, job: str) -> JobStatus:
        until = self._clock.now() + self._job.command_deadline_s
        while True:
            status = self._look(self._workloads.get(job))
            if status.state is JobState.HELD:
                return status
            if self._clock.now() >= until:
                raise DeadlinePassed(
                    f"job {job} is not stopped after {self._job.command_deadline_s:.0f} s; it still has pods on "
                    f"{', '.join(status.ranks_on or []) or 'no node'}"
                )
            beat()
            self._clock.wait(POLL_S)

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        """Start a job that we hold, once per token, on these nodes. A spare among them is nobody else's meanwhile."""
        workload = self._workloads.get(job)
        annotations, suspended = annotations_of(workload.family.top), workload.kind.suspended(workload.family)
        wanted = [self._inventory.resolve("", name) for name in nodes]
        if annotations.get(KUBE_TOKEN) != token or suspended:
            self._refuse_others(workload, annotations, suspended)
            found = self._place(workload, wanted)
            notes = {KUBE_TOKEN: token, KUBE_HELD: None, KUBE_NODE_SET: ",".join(sorted(found))}
            started = {"metadata": {"annotations": notes, "labels": {KUBE_HELD: None}}}
            self._patch(workload, started | workload.kind.suspend(False))
        self._let_in(workload, wanted)

    def settle(self, job: str, nodes: list[str]) -> None:
        """End the leases that a resume, whose worker died after the start, has left on these nodes."""
        self._let_in(self._workloads.get(job), [self._inventory.resolve("", name) for name in nodes])

    def _refuse_others(self, workload: Workload, annotations: dict[str, str], suspended: bool) -> None:
        refuse_managed(self._api, workload, [])
        if KUBE_HELD not in annotations or not suspended:
            raise PreconditionFailed(f"job {workload.id} is not held by Hotspare, so it is not resumed; hold it first")
        if not workload.kind.settled(workload.family):
            raise ProviderBusy(f"job {workload.id}: its controller has not noticed yet that it is suspended")

    def _place(self, workload: Workload, wanted: Iterable[Node]) -> set[str]:
        """Have the next pods run on exactly these nodes: a label there, and nowhere else, that they ask for.

        Returns the names of the Nodes.
        """
        lease, chosen = lease_value(workload.id), set()
        for node in wanted:
            found = self._nodes.change(node, partial(_chosen, node=node, job=workload.id))
            chosen.add(str(found["metadata"]["name"]))
        for one in self._nodes.labelled(KUBE_PLACED, lease):
            if one["metadata"]["name"] not in chosen:
                self._api.patch(NODE, one["metadata"]["name"], {"metadata": {"labels": {KUBE_PLACED: None}}})
        placement = Placement(KUBE_PLACED, lease, lease_toleration(lease))
        try:
            answer = self._patch(workload, workload.kind.place(workload.family, placement))
        except BadInput as error:
            if "immutable" in str(error):
                raise CapabilityMissing(_unmovable(workload, str(error), workload.kind.movable_since)) from error
            raise
        if not workload.kind.placed(Family(answer, workload.family.child), placement):
            raise CapabilityMissing(
                f"job {workload.id}: the API took the nodes that it is to run on and did not keep them: this release of "
                f"{workload.kind.kind.name} has another field for that. It stays suspended; to start it where it likes: kubectl "
                f"patch {workload.kind.kind.plural} {workload.name} -n {workload.namespace} --type=merge -p "
                '\'{"spec":{"suspend":false}}\''
            )
        return chosen

    def _let_in(self, workload: Workload, nodes: list[Node]) -> None:
        """End the leases of nodes to which the job's pods are bound: the taint has done its work, and would keep others out."""
        until = self._clock.now() + self._job.command_deadline_s
        left = {self._nodes.name(node): node for node in nodes if self._is_kept(node)}
        while left:
            pods = self._workloads.pods(self._workloads.get(workload.id))
            for name in {node_of(pod) for pod in pods if holds_gpus(pod) and not is_leaving(pod)} & set(left):
                self._supply.let_in(left.pop(name))
            if left and self._clock.now() >= until:
                names = ", ".join(sorted(node.name for node in left.values()))
                logger.warning("no rank of job %s is bound to %s yet: the lease there stays until one is", workload.id, names)
                return
            if left:
                beat()
                self._clock.wait(POLL_S)

    def _is_kept(self, node: Node) -> bool:
        found = self._nodes.get(node)
        return any(taint_value(found, key) is not None for key in (KUBE_LEASE, KUBE_SPARE))

    def _patch(self, workload: Workload, body: Object) -> Object:
        return self._api.patch(workload.kind.kind, workload.name, body, workload.namespace)


def _chosen(found: Object, node: Node, job: str) -> Object | None:
    """Return the change of a Node on which a job is to start; a spare, or a node that is leased already, is leased to it."""
    mark = mark_on(found, node.name)
    if mark is not None:
        raise PreconditionFailed(f"{node.name} is quarantined by {mark.owner}; job {job} is not resumed there")
    if any(taint_value(found, key) is not None for key in (KUBE_LEASE, KUBE_SPARE)):
        return leased(found, node, job, placed=True)
    if labels_of(found).get(KUBE_PLACED) == lease_value(job):
        return None
    return {"metadata": {"labels": {KUBE_PLACED: lease_value(job)}}}


def _unmovable(workload: Workload, why: str, needed: tuple[int, int] | None) -> str:
    since = f"before Kubernetes {needed[0]}.{needed[1]} " if needed else ""
    return (
        f"job {workload.id}: {since}nobody can change on which nodes a {workload.kind.kind.name} runs that has started once "
        f"({why}), so Hotspare does not take it over. Make it a JobSet, or delete it and submit it anew; its checkpoint stays"
    )
