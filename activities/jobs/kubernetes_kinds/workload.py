"""What an adapter needs to know of one kind of workload, and what the kinds have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from activities.jobs.kubernetes_pods import command_of, gpus_asked
from activities.jobs.lint import JobShape
from activities.kubernetes import Kind, Object

NODE_LOSS = "DisruptionTarget"
"""Condition of a pod that was evicted, preempted or lost its node. Source: Kubernetes docs, "Disruptions"."""


@dataclass(frozen=True)
class Template:
    """A pod template of a workload and how many pods are made of it; `name` is how the workload calls it."""

    name: str
    pods: int
    spec: Object


@dataclass(frozen=True)
class Ended:
    """How a workload ended for good: whether it failed, since when (RFC 3339), and the controller's words."""

    failed: bool
    at: str
    words: str


@dataclass(frozen=True)
class Placement:
    """Where pods are to run from now on: only on nodes with this label, and on those that the job leases."""

    key: str
    value: str
    toleration: Object

    def on(self, spec: Object) -> Object:
        """Return the part of a pod spec that says so, beside what the spec says already."""
        kept = [one for one in spec.get("tolerations") or [] if one != self.toleration]
        return {
            "nodeSelector": {**(spec.get("nodeSelector") or {}), self.key: self.value},
            "tolerations": [*kept, self.toleration],
        }

    def asked_by(self, spec: Object) -> bool:
        """Whether a pod spec, or a part of one, says so."""
        return (spec.get("nodeSelector") or {}).get(self.key) == self.value


@dataclass(frozen=True)
class Family:
    """The topmost object of a job and what stands between it and its pods: the JobSet of a TrainJob."""

    top: Object
    child: Object | None = None


class WorkloadKind(Protocol):
    """One kind. Everything is read from objects that the adapter has fetched; only the adapter talks to the API."""

    @property
    def kind(self) -> Kind: ...

    @property
    def child(self) -> Kind | None:
        """Kind of the object of the same name through which this one works, None where it makes pods or jobs itself."""
        ...

    @property
    def movable_since(self) -> tuple[int, int] | None:
        """Release of Kubernetes since which one that has started may be told other nodes; None where each lets that be."""
        ...

    def pod_selector(self, name: str) -> str:
        """Return the label selector of the workload's pods."""
        ...

    def pod_name(self, family: Family) -> re.Pattern[str]:
        """Return what the names of its pods look like."""
        ...

    def templates(self, family: Family) -> list[Template]:
        """Return its pod templates."""
        ...

    def shape(self, family: Family, gpu_resource: str) -> JobShape:
        """Return what its definition says about faults; progress is the adapter's."""
        ...

    def restarts_left(self, family: Family, pods: Sequence[Object]) -> int | None:
        """Return what is left of its restarts, None without a bound."""
        ...

    def ended(self, family: Family) -> Ended | None:
        """Return how it ended for good, None while it goes on."""
        ...

    def suspended(self, family: Family) -> bool:
        """Whether it is asked to have no pods."""
        ...

    def suspend(self, yes: bool) -> Object:
        """Return the patch that suspends or starts it."""
        ...

    def settled(self, family: Family) -> bool:
        """Whether a suspended one is ready to be told where to run."""
        ...

    def place(self, family: Family, placement: Placement) -> Object:
        """Return the patch by which a suspended one runs only there from now on."""
        ...

    def placed(self, family: Family, placement: Placement) -> bool:
        """Whether that patch has stayed: the API drops fields that a release does not know."""
        ...


@dataclass(frozen=True)
class Cause:
    """Condition types of a kind that mean its end."""

    complete: Sequence[str] = field(default=("Complete",))
    failed: Sequence[str] = field(default=("Failed",))


def templates_placed(templates: Iterable[Template], placement: Placement) -> bool:
    """Whether every pod template asks for the label of a placement."""
    found = list(templates)
    return bool(found) and all(placement.asked_by(one.spec) for one in found)


def condition(item: Object, kind: str) -> Object | None:
    """Return a condition of an object that is True."""
    for one in item.get("status", {}).get("conditions") or []:
        if one.get("type") == kind and one.get("status") == "True":
            return dict(one)
    return None


def ended_by(item: Object, cause: Cause) -> Ended | None:
    """Read an object's end out of its conditions."""
    for failed, kinds in ((True, cause.failed), (False, cause.complete)):
        for kind in kinds:
            if found := condition(item, kind):
                words = ": ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
                return Ended(failed, str(found.get("lastTransitionTime") or ""), words or kind)
    return None


def spec_of(item: Object | None) -> dict[str, Any]:
    """Return an object's spec."""
    return dict((item or {}).get("spec") or {})


def job_template(name: str, job_spec: Object, times: int = 1) -> Template:
    """Return the pods that a Job's spec makes, `times` over."""
    pods = int(job_spec.get("parallelism", 1))
    if (completions := job_spec.get("completions")) is not None:
        pods = min(pods, int(completions))
    return Template(name, pods * times, (job_spec.get("template") or {}).get("spec") or {})


def rank_commands(templates: Sequence[Template], gpu_resource: str) -> list[str]:
    """Return what the pods that ask for GPUs execute."""
    return [word for one in templates if gpus_asked(one.spec, gpu_resource) for word in command_of(one.spec)]
