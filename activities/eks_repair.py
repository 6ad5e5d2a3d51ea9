"""EKS node auto repair as another healer: it has one switch for a whole managed node group, and none for a node.

It acts on AcceleratedHardwareReady=False after 10 minutes, in the middle of a re-test, and on the other conditions after 30.
Source: https://docs.aws.amazon.com/eks/latest/userguide/node-repair.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from activities import names
from activities.clock import Clock, SystemClock, beat
from activities.ec2 import Ec2Client
from activities.effects import refuse_if_late
from activities.errors import CapabilityMissing, DeadlinePassed, FinalError, HotspareError, NotOurs, PreconditionFailed
from activities.healers import Healer
from activities.inventory import Node
from activities.kubernetes import labels_of
from activities.kubernetes_healers import NodeObjects
from activities.stood_back import StoodBack

KIND = "EKS node auto repair"
LABEL = "eks.amazonaws.com/nodegroup"
EKS_TAG_CLUSTER, EKS_TAG_GROUP = "eks:cluster-name", "eks:nodegroup-name"
"""EKS writes them on the instances of managed node groups."""

CHANGE_DEADLINE_S = 120.0
"""From UpdateNodegroupConfig to a group that shows it. Hotspare default: EKS changes a group's configuration in seconds."""

CHANGE_POLL_S = 3.0
"""Seconds between looks at it. Hotspare default."""

CACHE_S = 60.0
"""How long a node group's setting is believed where it is only told. Hotspare default; before a step it is always read."""


@dataclass(frozen=True)
class NodeGroup:
    """A managed node group: its ARN, its nodeRepairConfig as EKS has it, its tags, and what EKS finds wrong with its health."""

    arn: str
    repair: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    issues: tuple[str, ...] = ()

    @property
    def repairs(self) -> bool:
        """Whether node auto repair is on. Source: botocore, NodeRepairConfig: it is off unless enabled says otherwise."""
        return bool(self.repair.get("enabled"))

    @property
    def paused(self) -> bool:
        """Whether we have switched it off."""
        return names.TAG_REPAIR_PAUSED in self.tags

    def users(self) -> set[str]:
        """Keys of the tags of those for whom it is off."""
        return {key for key in self.tags if key.startswith(f"{names.TAG_STOOD_BACK}:")}


class EksClient(Protocol):
    """The calls of Amazon EKS that Hotspare makes. Errors as for `Ec2Client`; what it refuses is BadInput."""

    def node_group(self, cluster: str, group: str) -> NodeGroup: ...

    def set_repair(self, cluster: str, group: str, config: dict[str, Any]) -> None:
        """Change nodeRepairConfig. Raises ProviderBusy while the group is being changed by somebody else."""
        ...

    def tag(self, arn: str, tags: dict[str, str]) -> None: ...

    def untag(self, arn: str, keys: list[str]) -> None: ...


class EksRepairHealers:
    """`Healers` of managed node groups. The record is on the group: a tag for each node for whose sake its repair is off.

    Whoever takes the last of these tags away switches the repair on again, and looks once more whether anybody has come since.
    """

    kind = KIND

    def __init__(
        self,
        eks: EksClient,
        ec2: Ec2Client,
        nodes: NodeObjects,
        cluster: str,
        *,
        may_pause: bool,
        clock: Clock | None = None,
    ) -> None:
        """`cluster` is EKS's name of it; empty: by EKS's tag on instances. `may_pause`: whole groups may be changed."""
        self._eks = eks
        self._ec2 = ec2
        self._nodes = nodes
        self._cluster = cluster
        self._may_pause = may_pause
        self._record = StoodBack(ec2)
        self._clock = clock or SystemClock()
        self._seen: dict[str, tuple[float, bool]] = {}  # what was read; a failure is not kept

    def found(self, node: Node) -> list[Healer]:
        """Return the repair of the node's group, unless it is known to be off, and not by us; where it is not read, in doubt."""
        group = self._group_of(node, fresh=False)
        if not group:
            return []
        read_at, minds = self._seen.get(group, (-CACHE_S, True))
        healer = Healer(kind=KIND, name=f"of node group {group}")
        if not 0 <= self._clock.now() - read_at < CACHE_S:
            try:
                minds = self._minds(node, group)
            except HotspareError as error:  # before a step it is asked again
                return [healer.model_copy(update={"doubt": f"cannot tell whether node auto repair is on in {group}: {error}"})]
        return [healer] if minds else []

    def stand_back(self, node: Node, incident: str) -> str:
        """Switch the repair of the node's group off, where that is permitted and nobody has yet."""
        group = self._group_of(node, fresh=True)
        if not group:
            return ""
        cluster = self._cluster_of(node)
        seen = self._eks.node_group(cluster, group)
        if not seen.repairs and not seen.paused:
            return f"node auto repair is off in node group {group}"
        if not self._may_pause:
            raise PreconditionFailed(_only_for_all(cluster, group, node))
        key = _key(node)
        if seen.tags.get(key, incident) != incident:
            raise NotOurs(f"node auto repair of {group} is off for {seen.tags[key]}; {incident} leaves that as it is")
        self._record.add(node, incident, KIND)
        refuse_if_late()
        if key not in seen.tags:
            self._eks.tag(seen.arn, {key: incident})
        try:
            self._switch_off(cluster, group, incident)
        except FinalError:
            self._forget(cluster, group, node, incident)
            raise
        return f"node auto repair is off in the whole node group {group} until the last incident there has ended"

    def release(self, node: Node, incident: str) -> str:
        """Take our tag away; with the last one the repair of the group is on again, as it was."""
        if KIND not in self._record.kinds(node, incident):
            return ""
        group = self._group_of(node, fresh=True) or self._ec2.describe(node.instance_id).tags.get(EKS_TAG_GROUP, "")
        if not group:
            raise PreconditionFailed(
                f"{node.name} is in no node group any more; take the tag {_key(node)} from its former group, and with the last "
                "of these tags switch node auto repair on again"
            )
        cluster = self._cluster_of(node)
        self._forget(cluster, group, node, incident)
        left = self._eks.node_group(cluster, group)
        if left.users():
            return f"node auto repair stays off in node group {group}: {len(left.users())} other incidents there"
        return f"node auto repair is {'on' if left.repairs else 'off'} in node group {group}"

    def _forget(self, cluster: str, group: str, node: Node, incident: str) -> None:
        seen = self._eks.node_group(cluster, group)
        refuse_if_late()
        if _key(node) in seen.tags:
            self._eks.untag(seen.arn, [_key(node)])
        self._switch_on_if_last(cluster, group)
        self._record.remove(node, incident, KIND)

    def _switch_off(self, cluster: str, group: str, incident: str) -> None:
        seen = self._eks.node_group(cluster, group)
        if not seen.repairs:
            return
        refuse_if_late()
        self._eks.tag(seen.arn, {names.TAG_REPAIR_PAUSED: incident})
        self._eks.set_repair(cluster, group, {**seen.repair, "enabled": False})
        self._await(cluster, group, on=False)

    def _switch_on_if_last(self, cluster: str, group: str) -> None:
        seen = self._eks.node_group(cluster, group)
        if seen.users() or not seen.paused:
            return
        if not seen.repairs:
            refuse_if_late()
            self._eks.set_repair(cluster, group, {**seen.repair, "enabled": True})
            self._await(cluster, group, on=True)
        came = self._eks.node_group(cluster, group)
        if came.users():  # between our look and the switch: it believes that the repair is off
            self._switch_off(cluster, group, came.tags[names.TAG_REPAIR_PAUSED])
            return
        refuse_if_late()
        self._eks.untag(seen.arn, [names.TAG_REPAIR_PAUSED])

    def _await(self, cluster: str, group: str, *, on: bool) -> None:
        deadline = self._clock.now() + CHANGE_DEADLINE_S
        while self._eks.node_group(cluster, group).repairs is not on:
            if self._clock.now() >= deadline:
                raise DeadlinePassed(f"node group {group} does not show its changed node auto repair; see its updates in EKS")
            beat(f"node group {group} is being changed")
            self._clock.wait(CHANGE_POLL_S)

    def _minds(self, node: Node, group: str) -> bool:
        seen = self._eks.node_group(self._cluster_of(node), group)
        minds = seen.repairs or seen.paused
        self._seen[group] = (self._clock.now(), minds)
        return minds

    def _group_of(self, node: Node, *, fresh: bool) -> str:
        item = self._nodes.fresh(node) if fresh else self._nodes.seen(node)
        return labels_of(item).get(LABEL, "") if item else ""

    def _cluster_of(self, node: Node) -> str:
        name = self._cluster or self._ec2.describe(node.instance_id).tags.get(EKS_TAG_CLUSTER, "")
        if not name:
            raise CapabilityMissing(
                f"which EKS cluster {node.name} is in is not known; set kubernetes.eks_cluster in the settings"
            )
        return name


def _key(node: Node) -> str:
    return f"{names.TAG_STOOD_BACK}:{node.instance_id}"


def _only_for_all(cluster: str, group: str, node: Node) -> str:
    return (
        f"node auto repair of EKS is on in node group {group} and would replace {node.name} in the middle of a repair; it has no "
        "switch for one node. Set healers.pause_node_group_repair = true to have Hotspare switch it off for the whole group "
        "while it repairs, or switch it off: "
        f"aws eks update-nodegroup-config --cluster-name {cluster} --nodegroup-name {group} --node-repair-config enabled=false"
    )
