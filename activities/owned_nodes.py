"""Nodes that a service of AWS repairs and replaces by itself, without a switch: Hotspare observes them and resumes their jobs.

Sources: https://docs.aws.amazon.com/eks/latest/userguide/automode.html and
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency.html
"""

from __future__ import annotations

from activities.errors import CapabilityMissing
from activities.healers import Healer
from activities.inventory import Node
from activities.kubernetes import Object, labels_of
from activities.kubernetes_healers import NodeObjects

COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
HYPERPOD_LABEL = "sagemaker.amazonaws.com/node-health-status"

AUTO_MODE = Healer(
    kind="EKS Auto Mode",
    name="",
    owns="EKS Auto Mode repairs and replaces its nodes by itself, and nothing tells it to leave one alone",
)
HYPERPOD = Healer(
    kind="SageMaker HyperPod",
    name="",
    owns="SageMaker HyperPod keeps the instance in an account of its own, where EC2's calls do not reach it; its own recovery "
    "reboots or replaces the node",
)


class OwnedNodes:
    """`Healers` that cannot be told."""

    kind = "owner"

    def __init__(self, nodes: NodeObjects, *, hyperpod_by_label: bool = True) -> None:
        """`hyperpod_by_label` is False where HyperPod itself is asked (`activities.hyperpod`)."""
        self._nodes = nodes
        self._left = () if hyperpod_by_label else (HYPERPOD,)

    def found(self, node: Node) -> list[Healer]:
        """Return who owns the node, by its labels."""
        item = self._nodes.seen(node)
        return [owner for owner in [owner_of(item)] if owner and owner not in self._left] if item else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Refuse, with the reason."""
        item = self._nodes.fresh(node)
        owner = owner_of(item) if item else None
        if owner is None or owner in self._left:
            return ""
        raise CapabilityMissing(f"{node.name}: {owner.owns}; Hotspare observes it and resumes jobs without it")

    def release(self, node: Node, incident: str) -> str:
        """Nothing was done."""
        return ""


def owner_of(item: Object) -> Healer | None:
    """Return who owns a Node, None where nobody does."""
    labels = labels_of(item)
    if labels.get(COMPUTE_TYPE) == "auto":
        return AUTO_MODE
    return HYPERPOD if HYPERPOD_LABEL in labels or labels.get(COMPUTE_TYPE) == "hyperpod" else None
