"""Draining a Node: its pods leave through the eviction API, as their disruption budgets allow; what holds one is named.

Nothing is ever force-deleted here. A pod that may still run on a node that does not answer stays "Terminating" until the node is
back or gone, so that a StatefulSet's pod never runs twice; the restart of the node, which is what a drain prepares, ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from activities.clock import Clock, SystemClock, beat, waited_before
from activities.draining import Drained, DrainNode
from activities.effects import refuse_if_late
from activities.errors import DeadlinePassed, NodeUnreachable, PreconditionFailed, ProviderBusy
from activities.kubernetes import POD, KubernetesApi, Object, annotations_of, labels_of
from activities.kubernetes_marks import mark_on
from activities.kubernetes_nodes import KubernetesNodes, is_ready
from activities.names import KUBE_MANAGED_BY
from activities.settings_jobs import KubernetesSettings

LOOK_S = 1.0
"""Seconds between looks at the pods. Hotspare default."""

GRACE_MARGIN_S = 30.0
"""Seconds that a pod may take beyond its own grace period. Hotspare default: the kubelet then kills it, and tells the API."""

DEFAULT_GRACE_S = 30.0
"""Grace period of a pod that names none. Source: Kubernetes, PodSpec.terminationGracePeriodSeconds."""

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the mirror of a static pod: deleting it ends nothing. Source: Kubernetes, "Well-Known Labels"."""

FINISHED = ("Succeeded", "Failed")


@dataclass
class _Round:
    """What one drain has seen so far, by uid of the pod: why it is held, when it was tried last, since when it is on its way."""

    held: dict[str, str] = field(default_factory=dict)
    tried_at: dict[str, float] = field(default_factory=dict)
    leaving_since: dict[str, float] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)


class KubernetesDrainer:
    """`Drainer` on Kubernetes. The modes and the deadline are in `KubernetesSettings`."""

    def __init__(
        self, api: KubernetesApi, nodes: KubernetesNodes, settings: KubernetesSettings, clock: Clock | None = None
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._settings = settings
        self._clock = clock or SystemClock()

    def drain(self, request: DrainNode) -> Drained:
        before, since = waited_before(), self._clock.now()
        deadline_s = self._settings.drain_deadline_s if request.deadline_s is None else request.deadline_s
        seen, answer = _Round(), None
        while answer is None:
            waited = before + self._clock.now() - since
            beat(waited)
            try:
                answer = self._once(request, seen, waited, deadline_s)
            except (NodeUnreachable, ProviderBusy):  # the API server restarts; what was done shows when it is back
                if waited >= deadline_s:
                    raise
            if answer is None:
                self._clock.wait(min(LOOK_S, self._settings.drain_poll_s))
        return answer

    def _once(self, request: DrainNode, seen: _Round, waited: float, deadline_s: float) -> Drained | None:
        """Look, and evict what can be; returns the result when no pod is left that is to move."""
        node = self._nodes.find(request.node)
        if node is None:
            return Drained(said=f"nothing to drain on {request.node.name}: Kubernetes has no Node of its instance")
        self._refuse_unless_ours(request, node)
        pods = self._api.list(POD, fields=f"spec.nodeName={node['metadata']['name']}")
        stay = [pod for pod in pods if _stays(pod)]
        moving = [pod for pod in pods if not _stays(pod) and pod.get("status", {}).get("phase") not in FINISHED]
        self._note_leaving(moving, seen, waited)
        stuck = [] if is_ready(node) else [pod for pod in moving if self._past_grace(pod, seen, waited)]
        if len(stuck) == len(moving):
            return _result(request, seen, stay, stuck)
        if waited >= deadline_s:
            self._at_deadline(request, [pod for pod in moving if pod not in stuck], seen, waited, deadline_s)
        elif self._settings.drain_mode != "allow_completion":
            self._evict(moving, seen, waited)
        return None

    def _refuse_unless_ours(self, request: DrainNode, node: Object) -> None:
        mark = mark_on(node, request.node.name)
        if mark is None or mark.owner != request.incident:
            raise PreconditionFailed(
                f"{request.node.name} is not drained: it is "
                + (f"quarantined by {mark.owner}" if mark else "not quarantined")
                + f", and {request.incident} drains only what it has quarantined itself"
            )

    def _note_leaving(self, pods: list[Object], seen: _Round, waited: float) -> None:
        for pod in pods:
            uid = pod["metadata"]["uid"]
            seen.moved.add(_name(pod))
            if _is_leaving(pod):
                seen.leaving_since.setdefault(uid, waited)
                seen.held.pop(uid, None)

    def _past_grace(self, pod: Object, seen: _Round, waited: float) -> bool:
        since = seen.leaving_since.get(pod["metadata"]["uid"])
        return since is not None and waited - since >= _grace_s(pod) + GRACE_MARGIN_S

    def _evict(self, pods: list[Object], seen: _Round, waited: float) -> None:
        """Try the pods that are not on their way; one that a budget holds again after drain_poll_s."""
        for pod in pods:
            meta = pod["metadata"]
            tried = seen.tried_at.get(meta["uid"])
            if _is_leaving(pod) or (tried is not None and waited - tried < self._settings.drain_poll_s):
                continue
            beat()
            refuse_if_late()
            seen.tried_at[meta["uid"]] = waited
            blocked = self._api.evict(meta["name"], meta["namespace"], uid=meta["uid"])
            if blocked:
                seen.held[meta["uid"]] = f"disruption budget {blocked.budget}: {blocked.message}".replace(" : ", ": ")
            else:
                seen.held.pop(meta["uid"], None)

    def _at_deadline(self, request: DrainNode, pods: list[Object], seen: _Round, waited: float, deadline_s: float) -> None:
        """Delete what is left where the mode says so, and give it its grace period; then it is a person's."""
        grace_s = max(map(_grace_s, pods)) + GRACE_MARGIN_S
        if self._settings.drain_mode != "delete_after_timeout" or waited >= deadline_s + grace_s:
            raise DeadlinePassed(_too_long(request, pods, seen, deadline_s, self._settings))
        for pod in pods:
            if not _is_leaving(pod):
                beat()
                refuse_if_late()
                self._api.delete(POD, pod["metadata"]["name"], pod["metadata"]["namespace"], uid=pod["metadata"]["uid"])


def _stays(pod: Object) -> bool:
    """Whether a drain leaves the pod: of a DaemonSet, static, or one of our own checks."""
    owners = [owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or [] if owner.get("controller")]
    return "DaemonSet" in owners or MIRROR in annotations_of(pod) or KUBE_MANAGED_BY in labels_of(pod)


def _is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _grace_s(pod: Object) -> float:
    told = pod["metadata"].get("deletionGracePeriodSeconds")
    return float(pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S) if told is None else told)


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _result(request: DrainNode, seen: _Round, stay: list[Object], stuck: list[Object]) -> Drained:
    blocked = [f"{_name(pod)}: its node does not answer, so it cannot end there" for pod in stuck]
    gone = len(seen.moved) - len(stuck)
    said = f"{gone} pod{'s' if gone != 1 else ''} moved off {request.node.name}" if seen.moved else "no pod had to be moved"
    if stuck:
        said += (
            f"; {len(stuck)} cannot end because the node does not answer: its restart ends them ({', '.join(map(_name, stuck))})"
        )
    if stay:
        said += f"; {len(stay)} of DaemonSets, static or our own stay"
    return Drained(said=said, left=sorted(map(_name, stay)), blocked=blocked)


def _too_long(request: DrainNode, pods: list[Object], seen: _Round, deadline_s: float, settings: KubernetesSettings) -> str:
    held = "; ".join(f"{_name(pod)} ({_why(pod, seen, settings)})" for pod in pods[:5])
    more = f"; and {len(pods) - 5} more" if len(pods) > 5 else ""
    namespace, name = pods[0]["metadata"]["namespace"], pods[0]["metadata"]["name"]
    return (
        f"{request.node.name} was not empty after {deadline_s:.0f} s: {held}{more}. It stays cordoned. "
        f"Look: kubectl -n {namespace} get pdb,pods; when the pod may go: kubectl -n {namespace} delete pod {name}"
    )


def _why(pod: Object, seen: _Round, settings: KubernetesSettings) -> str:
    finalizers = pod["metadata"].get("finalizers") or []
    if _is_leaving(pod):
        return f"is being deleted{', held by finalizers ' + ', '.join(finalizers) if finalizers else ', and has not ended'}"
    if settings.drain_mode == "allow_completion":
        return "still works; kubernetes.drain_mode = allow_completion evicts nothing"
    return seen.held.get(pod["metadata"]["uid"], "the API server has not taken an eviction")
