"""Pods of a training job as facts: which ask for GPUs, where ranks run or may still run, why they wait."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.kubernetes import Object, annotations_of
from activities.names import KUBE_CHECKPOINT_STEP, KUBE_LEASE, KUBE_STEP

FINISHED = ("Succeeded", "Failed")

_SUFFIX = re.compile(r"-[a-z0-9]{5}$")
"""What the Job controller adds to the name of a pod, so that its successor has another."""

_ASSIGNED = re.compile(r"Successfully assigned (?P<namespace>[^/ ]+)/(?P<pod>\S+) to (?P<node>\S+)$")
"""The scheduler's event about a pod that it has bound. Source: pkg/scheduler/schedule_one.go of Kubernetes."""


STEADY_S = 10.0
"""How long a rank must have run since it was started again in its pod. Source: the kubelet's first back-off, 10 s (Kubernetes
docs, "Pod Lifecycle"): what crashes at its start has by then been seen to wait."""


@dataclass(frozen=True)
class Bound:
    """One decision of the scheduler: a pod went to a node."""

    namespace: str
    pod: str
    node: str
    at: str


def gpus_asked(spec: Mapping[str, Any], resource: str) -> int:
    """Return how many GPUs a pod with this spec asks for."""
    total = 0
    for container in spec.get("containers") or []:
        resources = container.get("resources") or {}
        asked = (resources.get("limits") or {}).get(resource) or (resources.get("requests") or {}).get(resource) or 0
        total += int(asked)
    return total


def command_of(spec: Mapping[str, Any]) -> list[str]:
    """Return what the containers of a pod execute, in order."""
    containers = spec.get("containers") or []
    return [word for one in containers for word in [*(one.get("command") or []), *(one.get("args") or [])]]


def node_of(pod: Object) -> str:
    """Return the node that a pod is bound to, empty while there is none."""
    return str(pod.get("spec", {}).get("nodeName") or "")


def phase_of(pod: Object) -> str:
    """Return a pod's phase; one that nobody has looked at yet is Pending."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def is_live(pod: Object) -> bool:
    """Whether a process of the pod may exist or come to exist: it has not ended."""
    return phase_of(pod) not in FINISHED


def is_leaving(pod: Object) -> bool:
    """Whether the pod is being deleted; its processes may still run."""
    return "deletionTimestamp" in pod["metadata"]


def works(pod: Object, resource: str, now: datetime) -> bool:
    """Whether the rank in a pod works, one that is being stopped included.

    Its container runs, is ready where something asks it, and was not started again a moment ago. The phase alone is Running also
    for a container that crashes again and again.
    """
    if phase_of(pod) != "Running" or not node_of(pod):
        return False
    told = {one.get("name"): one for one in pod.get("status", {}).get("containerStatuses") or []}
    ranks = [one for one in pod["spec"].get("containers") or [] if gpus_asked({"containers": [one]}, resource)]
    return bool(ranks) and all(_container_works(one, told.get(one.get("name")) or {}, now) for one in ranks)


def _container_works(container: Object, told: Object, now: datetime) -> bool:
    running = (told.get("state") or {}).get("running")
    if running is None or (container.get("readinessProbe") and not told.get("ready")):
        return False
    if not told.get("restartCount"):
        return True
    since = running.get("startedAt")
    return since is not None and (now - datetime.fromisoformat(since)).total_seconds() >= STEADY_S


def holds_gpus(pod: Object) -> bool:
    """Whether the pod is bound and has not ended: it has, or is about to have, its GPUs."""
    return is_live(pod) and bool(node_of(pod))


def waits_for_node(pod: Object) -> bool:
    """Whether the pod is to run and has no node yet."""
    return is_live(pod) and not node_of(pod) and not is_leaving(pod)


def rank_name(pod_name: str) -> str:
    """Return what a pod's name has in common with the pod that comes in its place."""
    return _SUFFIX.sub("", pod_name)


def node_set(pods: Sequence[Object], before: Sequence[Bound], noted: Sequence[str] = ()) -> list[str]:
    """Return the nodes on which ranks run or, for each that has none now, ran last.

    `before` are bindings of these ranks, the newest first. A rank whose pod waits is taken to have run where its predecessor did,
    or, where nobody remembers that one, on a node of `noted`.
    """
    bound = [pod for pod in pods if holds_gpus(pod) and not is_leaving(pod)]
    nodes = [node_of(pod) for pod in bound]
    ranks = {rank_name(pod["metadata"]["name"]) for pod in bound}
    ended = sorted((pod for pod in pods if node_of(pod) and pod not in bound), key=_made, reverse=True)
    earlier = [(pod["metadata"]["name"], node_of(pod)) for pod in ended] + [(one.pod, one.node) for one in before]
    waiting = Counter(rank_name(pod["metadata"]["name"]) for pod in pods if waits_for_node(pod))
    missing = Counter({rank: 1 for rank, _ in ((rank_name(name), node) for name, node in earlier) if rank not in ranks}) | waiting
    for name, node in earlier:
        rank = rank_name(name)
        if missing[rank] > 0 and node not in nodes:
            nodes.append(node)
            missing[rank] -= 1
    # A restart may deal the nodes out anew: a rank's last node has another rank then, and a node without one is still missing.
    spare_places = sum(count for count in missing.values() if count > 0)
    idle = list(dict.fromkeys(node for node in [*(node for _, node in earlier), *noted] if node not in nodes))
    return sorted({*nodes, *idle[:spare_places]})


def _made(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def bindings(events: Iterable[Object]) -> list[Bound]:
    """Read the scheduler's bindings out of events, the newest first."""
    found = []
    for event in events:
        match = _ASSIGNED.match(str(event.get("message") or ""))
        if match:
            at = event.get("eventTime") or event.get("lastTimestamp") or event["metadata"].get("creationTimestamp") or ""
            found.append(Bound(match["namespace"], match["pod"], match["node"], str(at)))
    return sorted(found, key=lambda one: one.at, reverse=True)


def why_waiting(pods: Iterable[Object]) -> str:
    """Say why pods that should run do not, empty where none waits."""
    reasons: Counter[str] = Counter()
    for pod in pods:
        if waits_for_node(pod):
            reasons[_unscheduled(pod)] += 1
        elif phase_of(pod) == "Pending" and not is_leaving(pod):
            reasons[f"wait for their containers{_container_words(pod)}"] += 1
    return "; ".join(f"{count} pod{'s' if count > 1 else ''} {reason}" for reason, count in sorted(reasons.items()))


def _unscheduled(pod: Object) -> str:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"cannot be scheduled: {condition.get('message') or condition.get('reason')}"
    return "not looked at by the scheduler yet"


def _container_words(pod: Object) -> str:
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in pod.get("status", {}).get("containerStatuses") or []]
    words = sorted({str(one["reason"]) for one in waiting if one.get("reason")})
    return f": {', '.join(words)}" if words else ""


def step_in(items: Iterable[Object], key: str) -> int | None:
    """Return the highest counter that the objects' annotations carry under a key."""
    values = [annotations_of(item).get(key, "") for item in items]
    return max((int(value) for value in values if value.isdigit()), default=None)


def steps_in(pods: Sequence[Object], job: Object) -> tuple[int | None, int | None]:
    """Return step and checkpoint step. The step is that of the present pods, the job's own only where they tell none."""
    step = step_in((pod for pod in pods if is_live(pod)), KUBE_STEP)
    return step_in([job], KUBE_STEP) if step is None else step, step_in([*pods, job], KUBE_CHECKPOINT_STEP)


def lease_toleration(lease: str) -> Object:
    """Return the toleration of exactly one job's lease."""
    return {"key": KUBE_LEASE, "operator": "Equal", "value": lease, "effect": "NoSchedule"}
