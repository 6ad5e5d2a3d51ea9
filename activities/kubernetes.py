"""Kubernetes as Hotspare uses it: objects as plain JSON, a few verbs, our errors. The real client is in `activities/clients/`.

Objects stay the JSON that the API serves, because half of those we meet (JobSet, PyTorchJob, Workload, NodeClaim) have no type in
the official client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Object = dict[str, Any]
"""One object of the API as JSON."""


@dataclass(frozen=True)
class Kind:
    """A kind of object: its API version ("batch/v1"), the plural in its address, its name, whether it lives in a namespace."""

    api_version: str
    plural: str
    name: str
    namespaced: bool = True


NODE = Kind("v1", "nodes", "Node", namespaced=False)
POD = Kind("v1", "pods", "Pod")
CONFIG_MAP = Kind("v1", "configmaps", "ConfigMap")
EVENT = Kind("v1", "events", "Event")
SECRET = Kind("v1", "secrets", "Secret")
LEASE = Kind("coordination.k8s.io/v1", "leases", "Lease")
JOB = Kind("batch/v1", "jobs", "Job")
DISRUPTION_BUDGET = Kind("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
JOB_SET = Kind("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
PYTORCH_JOB = Kind("kubeflow.org/v1", "pytorchjobs", "PyTorchJob")
MPI_JOB = Kind("kubeflow.org/v1", "mpijobs", "MPIJob")
TRAIN_JOB = Kind("trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob")
KUEUE_WORKLOAD = Kind("kueue.x-k8s.io/v1beta2", "workloads", "Workload")


@dataclass(frozen=True)
class Blocked:
    """An eviction that a disruption budget refuses: which budget where the API names it, and its words."""

    budget: str
    message: str


@dataclass(frozen=True)
class Access:
    """One question to the API's own access review: may we do `verb` on `kind`, in `namespace` ("" is all of them)?"""

    verb: str
    kind: Kind
    namespace: str = ""
    subresource: str = ""


class KubernetesApi(Protocol):
    """The verbs. `namespace` is "" for kinds without one, and for `list` over all namespaces.

    Raises NodeUnreachable (the API server does not answer), ProviderBusy (429 and 5xx), AccessRefused (401 and 403, with what is
    not allowed), PreconditionFailed (409: the object has changed since it was read, or exists), BadInput (400 and 422),
    CapabilityMissing (the kind is not known there: its CRD is not installed).
    """

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return the object, None where there is none."""
        ...

    def list(self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", cached: bool = False) -> list[Object]:
        """Return all objects that match the selectors, over as many pages as it takes.

        `cached`: as the API server has them in its memory, which costs it little and may be a moment old.
        """
        ...

    def create(self, kind: Kind, body: Object, namespace: str = "") -> Object:
        """Make an object; PreconditionFailed where the name is taken."""
        ...

    def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        """Merge `body` into the object (JSON merge patch: null removes, lists are replaced whole).

        With metadata.resourceVersion in `body` the write is refused (PreconditionFailed) if the object has changed since.
        """
        ...

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = "", orphans: bool = False
    ) -> None:
        """Delete the object, only the one with `uid` where given; one that is gone already is no error."""
        ...

    def evict(self, pod: str, namespace: str, *, grace_s: int | None = None, uid: str = "") -> Blocked | None:
        """Ask for a pod to be evicted; returns what forbids it, None when it is on its way out or gone."""
        ...

    def watch(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", deadline_s: float
    ) -> Iterator[tuple[str, Object]]:
        """Yield ("ADDED" | "MODIFIED" | "DELETED", object): what exists first, then changes, until the deadline.

        An expired watch (410) and a restarted API server are gone on from by listing again, so an object may come twice. Yields
        ("", {}) at least every second while nothing changes, so that the caller can stop.
        """
        ...

    def allowed(self, question: Access) -> bool:
        """Whether the API would let us (SelfSubjectAccessReview)."""
        ...

    def version(self) -> str:
        """Version of the API server, such as "v1.36.3"."""
        ...


def labels_of(item: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's labels."""
    return dict(item.get("metadata", {}).get("labels") or {})


def annotations_of(item: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's annotations."""
    return dict(item.get("metadata", {}).get("annotations") or {})


def instance_id_of(node: Mapping[str, Any]) -> str:
    """Return the EC2 instance id in a Node's spec.providerID ("aws:///us-east-1a/i-0abc"), empty if it has none."""
    return str(node.get("spec", {}).get("providerID") or "").rpartition("/")[2]
