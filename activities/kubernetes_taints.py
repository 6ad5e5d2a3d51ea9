"""Taints of Kubernetes Nodes: ours put on and taken off beside those of others, and whose hand a taint shows."""

from __future__ import annotations

import hashlib
import re

from activities.kubernetes import Object, annotations_of, labels_of
from activities.names import KUBE_LEASE, KUBE_QUARANTINE, KUBE_SPARE

VALUE_LIMIT = 63
"""Characters of a taint's value, and of a label's. Source: Kubernetes, "Labels and Selectors"."""

_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

OTHERS = {
    "karpenter.sh/disrupted": "Karpenter is about to remove the node",
    "karpenter.sh/disruption": "Karpenter is about to remove the node",
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler is about to remove the node",
    "nvidia.com/gpu-xid-error": "NVSentinel has quarantined the node",
    "nvsentinel.dgxc.nvidia.com/external-remediation": "NVSentinel has handed the node to somebody",
    "sagemaker.amazonaws.com/node-health-status": "HyperPod keeps the node for its own checks or repair",
    "node.kubernetes.io/out-of-service": "somebody has declared the node out of service",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud provider says that the node is shut down",
}
"""Taints by which others keep work off a node, and what they mean. Sources: Karpenter, "Disruption"; Cluster Autoscaler FAQ;
NVSentinel, fault-quarantine; SageMaker, "Resilience-related Kubernetes labels"; Kubernetes, "Well-Known Labels and Taints"."""

CORDONED_BY = ("k8saas.nvidia.com/cordon-by", "quarantineHealthEventIsCordoned")
"""Label and annotation that NVSentinel leaves where it has cordoned (fault-quarantine)."""


def taints_of(node: Object) -> list[Object]:
    """Return a Node's taints."""
    return list(node.get("spec", {}).get("taints") or [])


def with_taint(node: Object, key: str, value: str = "", effect: str = "NoSchedule") -> list[Object]:
    """Return a Node's taints with this one, in the place of any with its key."""
    taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
    return [*without_taints(node, key), taint]


def without_taints(node: Object, *keys: str) -> list[Object]:
    """Return a Node's taints without those of these keys. A patch replaces the list whole: send it with the resourceVersion."""
    return [taint for taint in taints_of(node) if taint.get("key") not in keys]


def taint_value(node: Object, key: str) -> str | None:
    """Return the value of a Node's taint, None where it has none with this key."""
    return next((str(taint.get("value") or "") for taint in taints_of(node) if taint.get("key") == key), None)


def lease_value(job: str) -> str:
    """Return the value of the lease taint for a job: its id where that may be one, else its readable part and a digest."""
    if len(job) <= VALUE_LIMIT and _VALUE.fullmatch(job):
        return job
    digest = hashlib.sha256(job.encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]", ".", job)[: VALUE_LIMIT - len(digest) - 1].strip("._-")
    return f"{readable}-{digest}" if readable else digest


def leased_to(node: Object, job: str) -> Object | None:
    """Return the change that leases a Node to a job (its taint on, that of a free spare off), None where it is leased to it."""
    if taint_value(node, KUBE_LEASE) == lease_value(job) and taint_value(node, KUBE_SPARE) is None:
        return None
    kept = {"spec": {"taints": without_taints(node, KUBE_SPARE)}}
    return {"spec": {"taints": with_taint(kept, KUBE_LEASE, lease_value(job))}}


def released(node: Object, *, into_pool: bool) -> Object | None:
    """Return the change that ends a Node's lease (`into_pool`: it becomes a free spare), None where nothing is to be done."""
    taints = free_spare(taints_of(node)) if into_pool else without_taints(node, KUBE_LEASE, KUBE_SPARE)
    return None if taints == taints_of(node) else {"spec": {"taints": taints}}


def free_spare(taints: list[Object]) -> list[Object]:
    """Return these taints as a spare has them that nobody has leased: no job may use it."""
    node = {"spec": {"taints": taints}}
    return with_taint({"spec": {"taints": without_taints(node, KUBE_LEASE)}}, KUBE_SPARE)


def kept_out_by_others(node: Object) -> str:
    """Say who else keeps work off a Node besides our quarantine, empty where nobody is seen to."""
    found = [f"taint {taint['key']}: {OTHERS[taint['key']]}" for taint in taints_of(node) if taint.get("key") in OTHERS]
    marks = labels_of(node) | annotations_of(node)
    found += [
        f"{key}={marks[key]}: NVSentinel has cordoned it"
        for key in CORDONED_BY
        if marks.get(key, "") not in ("", "False", "false")
    ]
    return "; ".join(found)


def is_cordoned(node: Object) -> bool:
    """Whether somebody, we or another, has cordoned the Node."""
    return bool(node.get("spec", {}).get("unschedulable"))


def keeps_work_off(node: Object) -> bool:
    """Whether a cordon, our quarantine or a taint of another healer keeps new work off a Node."""
    return is_cordoned(node) or taint_value(node, KUBE_QUARANTINE) is not None or bool(kept_out_by_others(node))
