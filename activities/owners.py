"""Whose a node is: who launched its instance, and replaces one that is gone.

The tags are written by the owners themselves. Sources: Amazon EC2 API reference, OperatorResponse; EKS User Guide, "Managed node
groups"; Karpenter, "NodeClasses" (tags of instances); AWS ParallelCluster, aws-parallelcluster-node; AWS PCS User Guide, "Tags".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Owner(StrEnum):
    """The owners that Hotspare tells apart."""

    EC2 = "plain EC2"
    GROUP = "Auto Scaling group"
    NODE_GROUP = "EKS managed node group"
    KARPENTER = "Karpenter"
    AUTO_MODE = "EKS Auto Mode"
    HYPERPOD = "SageMaker HyperPod"
    PARALLEL_CLUSTER = "AWS ParallelCluster"
    PCS = "AWS PCS"


OWNER_BY_TAG: tuple[tuple[str, Owner], ...] = (
    ("aws:pcs:compute-node-group-id", Owner.PCS),
    ("parallelcluster:cluster-name", Owner.PARALLEL_CLUSTER),
    ("eks:nodegroup-name", Owner.NODE_GROUP),
    ("karpenter.sh/nodepool", Owner.KARPENTER),
    ("aws:autoscaling:groupName", Owner.GROUP),
)
"""Tag -> owner, asked in this order: behind a managed node group stands an Auto Scaling group, whose tag is there too."""

OWNER_BY_PRINCIPAL = {"eks.amazonaws.com": Owner.AUTO_MODE, "sagemaker.amazonaws.com": Owner.HYPERPOD}
"""Who operates a managed instance, as DescribeInstances says: such instances are changed by their service alone."""

OWNER_BY_HEALER = {
    "EKS Auto Mode": Owner.AUTO_MODE,
    "SageMaker HyperPod": Owner.HYPERPOD,
    "EKS node auto repair": Owner.NODE_GROUP,
    "Karpenter": Owner.KARPENTER,
    "Auto Scaling group": Owner.GROUP,
}
"""Kind of a healer that was found at the node -> owner, asked in this order. It stands in for a tag that was taken off."""


def owner_by_tags(tags: Mapping[str, str], operator: str = "") -> Owner:
    """Return the owner of an instance by its tags, and by who operates it where a service of AWS does."""
    if operator in OWNER_BY_PRINCIPAL:
        return OWNER_BY_PRINCIPAL[operator]
    return next((owner for tag, owner in OWNER_BY_TAG if tags.get(tag)), Owner.EC2)


def owner_of(by_tags: str, healers: Sequence[str]) -> Owner:
    """Join what the inventory says with the kinds of healers that were found; a service that owns the whole node comes first."""
    known = next((owner for owner in Owner if owner.value == by_tags), Owner.EC2)
    found = next((owner for kind, owner in OWNER_BY_HEALER.items() if kind in healers), None)
    if found in (Owner.AUTO_MODE, Owner.HYPERPOD):
        return found
    return found if found is not None and known in (Owner.EC2, Owner.GROUP) else known
