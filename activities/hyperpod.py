"""SageMaker HyperPod as a provider of nodes: its own reboot and replacement, and whether it heals its nodes by itself.

It does so where NodeRecovery of the cluster is Automatic; then nobody else touches a node. Source: Amazon SageMaker AI Developer
Guide, "Automatic node recovery" and "Manually replace or reboot a node".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from activities import names
from activities.clock import Clock, SystemClock
from activities.ec2_messages import Ec2Client
from activities.errors import (
    CapabilityMissing,
    HotspareError,
    NotOurs,
    PreconditionFailed,
    ProviderBusy,
    Throttled,
    UnknownNode,
)
from activities.healers import Healer
from activities.inventory import Node
from activities.kubernetes import labels_of
from activities.kubernetes_healers import NodeObjects
from activities.message import Message
from activities.owners import Owner

KIND = Owner.HYPERPOD.value

BATCH = 25
"""Most nodes in one call. Source: Amazon SageMaker API reference, NodeIds of BatchRebootClusterNodes and its twin."""

AUTOMATIC = "Automatic"
"""NodeRecovery of a cluster that heals itself. Source: Amazon SageMaker API reference, DescribeCluster."""

HEALTH_LABEL = "sagemaker.amazonaws.com/node-health-status"
AT_WORK = ("Unschedulable", "UnschedulablePendingReplacement", "UnschedulablePendingReboot")
"""Values of the label while HyperPod tests, replaces or reboots a node. Source: Amazon SageMaker AI Developer Guide,
"Resilience-related Kubernetes labels"."""

CACHE_S = 60.0
"""How long the setting of the cluster is believed where it is only told. Hotspare default; before a step it is always read."""


class NodeRefused(Message):
    """A node that a batch call did not take: the error code, and the words."""

    instance_id: str
    code: str
    message: str = ""


class HyperPodClient(Protocol):
    """The calls of SageMaker HyperPod that Hotspare makes beyond those of an `Ec2Client`. Errors as there."""

    def node_recovery(self) -> str:
        """Return NodeRecovery of the cluster: Automatic, or None in words."""
        ...

    def reboot_nodes(self, instance_ids: Sequence[str]) -> list[NodeRefused]:
        """Begin to reboot nodes; returns those that were refused. Any number: it is cut into calls of `BATCH`."""
        ...

    def replace_nodes(self, instance_ids: Sequence[str]) -> list[NodeRefused]:
        """Begin to replace nodes, volumes and all; returns those that were refused."""
        ...


class HyperPodHealers:
    """`Healers`: HyperPod itself. It has no switch for a node; its cluster-wide one is a person's to set."""

    kind = KIND

    def __init__(self, hyperpod: HyperPodClient, nodes: NodeObjects | None, clock: Clock | None = None) -> None:
        """`nodes` are the Nodes of Kubernetes, where HyperPod runs it."""
        self._hyperpod = hyperpod
        self._nodes = nodes
        self._clock = clock or SystemClock()
        self._seen: tuple[float, str] | None = None

    def found(self, node: Node) -> list[Healer]:
        """Return HyperPod where it heals by itself, or is at work on this node; otherwise it leaves the node to us."""
        if self._recovery() == AUTOMATIC:
            owns = "SageMaker HyperPod heals this cluster by itself (NodeRecovery is Automatic) and reboots or replaces the node"
            return [Healer(kind=KIND, name="", owns=owns)]
        item = self._nodes.seen(node) if self._nodes else None
        status = labels_of(item).get(HEALTH_LABEL, "") if item else ""
        if status in AT_WORK:
            return [Healer(kind=KIND, name="", owns=f"SageMaker HyperPod is at work on it ({HEALTH_LABEL} is {status})")]
        return []

    def stand_back(self, node: Node, incident: str) -> str:
        """Refuse while HyperPod heals by itself: what we begin it would take for another fault."""
        self._seen = None
        owns = next((healer.owns for healer in self.found(node)), "")
        if owns:
            raise CapabilityMissing(
                f"{node.name}: {owns}. To have Hotspare heal it: aws sagemaker update-cluster --node-recovery None, with the "
                "cluster's name and instance groups"
            )
        return ""

    def release(self, node: Node, incident: str) -> str:
        """Nothing was done."""
        return ""

    def _recovery(self) -> str:
        now = self._clock.now()
        if self._seen is None or not 0 <= now - self._seen[0] < CACHE_S:
            self._seen = (now, self._hyperpod.node_recovery())
        return self._seen[1]


class HyperPodReplacer:
    """`Replacer`: HyperPod puts another instance in the place of a node that is given up; no drain is needed for it."""

    drain_replaces = True

    def __init__(self, hyperpod: HyperPodClient, ec2: Ec2Client) -> None:
        self._hyperpod = hyperpod
        self._ec2 = ec2

    def replace_by_drain(self, node: Node, owner: str) -> None:
        """Have the node replaced. NotOurs without this owner's quarantine; what HyperPod refuses is an error with its reason."""
        held = self._ec2.describe(node.instance_id).tags.get(names.TAG_QUARANTINE, "")
        if held != owner:
            raise NotOurs(f"{node.name} is quarantined by {held or 'nobody'}, not by {owner}; it is not replaced")
        for refused in self._hyperpod.replace_nodes([node.instance_id]):
            raise error_of(refused, f"replace {node.name}")


def error_of(refused: NodeRefused, what: str) -> HotspareError:
    """Return the error behind a node that a batch call refused: a wrong state passes by itself, another operation is not ours."""
    said = f"HyperPod: {what} ({refused.instance_id}): {refused.code}: {refused.message}"
    if refused.code == "InstanceIdNotFound":
        return UnknownNode(said)
    if refused.code == "InstanceIdInUse":
        return PreconditionFailed(f"{said}; another operation runs on it")
    return Throttled(said) if refused.code == "InvalidInstanceStatus" else ProviderBusy(said)
