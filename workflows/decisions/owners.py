"""What an owner lets be done to its node: one table of rungs that do not exist, how it stands back, how a slot is given up.

docs/owners.md is written from it. Pure: who the owner is was read by an activity (`activities.owners`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from activities.inventory import Node
from activities.owners import Owner
from checks.model import Action

RUNGS = (Action.RESET_GPU, Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE)
"""Rungs that an owner can have an opinion on. REPLACE_NODE is a spare in the node's place."""


class GiveUp(StrEnum):
    """How the slot of a node that cannot be mended is given up, so that another instance takes it."""

    TERMINATE = "terminate the instance; launch another in its place"
    TERMINATE_IN_GROUP = "terminate it in its Auto Scaling group, whose desired capacity stays: the group launches another"
    DELETE_NODE_CLAIM = "delete its NodeClaim: Karpenter drains it, terminates it and launches what pods need"
    REPLACE_IN_HYPERPOD = "BatchReplaceClusterNodes: HyperPod puts another instance in its place"
    DRAIN_IN_SLURM = "drain it in Slurm: clustermgtd terminates the idle node, and launches another for a static one"
    BY_ITS_OWNER = "only its owner replaces it"


OWNER_LAUNCHES = (GiveUp.TERMINATE_IN_GROUP, GiveUp.DELETE_NODE_CLAIM)
"""Ways after which the owner itself launches another instance: Hotspare launches none beside it, and takes that one on."""


@dataclass(frozen=True)
class OwnerRules:
    """One row. `missing` are the rungs that do not exist, each with the reason; `source` is where that is described.

    `decrements`: the number of instances that the owner keeps falls by one with a slot that is given up, so none is launched.
    """

    stands_back: str
    give_up: GiveUp
    source: str
    decrements: bool = False
    missing: Mapping[Action, str] = field(default_factory=dict)


_AUTO = "EKS Auto Mode operates the instance alone: it cannot be logged in to, and EC2 refuses calls of others on it"
_HYPERPOD_STOP = "HyperPod has a reboot and a replacement, and no stop: EC2's calls do not reach its instances"
_HYPERPOD_SOFT = "HyperPod's documented reboot is BatchRebootClusterNodes; one from inside is not known to it"
_CLUSTERMGTD = "a node that is away for longer than SlurmdTimeout (180 s there) is DOWN, and clustermgtd terminates its instance"
_PCS_STOP = "AWS PCS counts an instance that is not running as gone, and launches another"

OWNERS: dict[Owner, OwnerRules] = {
    Owner.EC2: OwnerRules(
        stands_back="nobody is to be told",
        give_up=GiveUp.TERMINATE,
        source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html",
    ),
    Owner.GROUP: OwnerRules(
        stands_back="Standby: it has no switch of health checks for one instance",
        give_up=GiveUp.TERMINATE_IN_GROUP,
        source="https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-enter-exit-standby.html",
    ),
    Owner.NODE_GROUP: OwnerRules(
        stands_back="Standby in the group behind it; node auto repair off for the whole node group, where settings allow that",
        give_up=GiveUp.TERMINATE_IN_GROUP,
        source="https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html",
    ),
    Owner.KARPENTER: OwnerRules(
        stands_back="annotations karpenter.sh/do-not-repair and do-not-disrupt of the Node",
        give_up=GiveUp.DELETE_NODE_CLAIM,
        source="https://karpenter.sh/docs/concepts/disruption/#interruption",
        missing={Action.POWER_CYCLE: "Karpenter takes an instance that stops for lost: it drains the node and terminates it"},
    ),
    Owner.AUTO_MODE: OwnerRules(
        stands_back="nothing tells it to",
        give_up=GiveUp.BY_ITS_OWNER,
        source="https://docs.aws.amazon.com/eks/latest/userguide/automode-learn-instances.html",
        missing=dict.fromkeys(RUNGS, _AUTO),
    ),
    Owner.HYPERPOD: OwnerRules(
        stands_back="NodeRecovery = None of the cluster, which Hotspare reads and does not change",
        give_up=GiveUp.REPLACE_IN_HYPERPOD,
        source="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_BatchReplaceClusterNodes.html",
        missing={Action.SOFT_REBOOT: _HYPERPOD_SOFT, Action.POWER_CYCLE: _HYPERPOD_STOP},
    ),
    Owner.PARALLEL_CLUSTER: OwnerRules(
        stands_back="Slurm state FAIL instead of a drain",
        give_up=GiveUp.DRAIN_IN_SLURM,
        source="https://github.com/aws/aws-parallelcluster-node/blob/develop/src/slurm_plugin/clustermgtd.py",
        missing=dict.fromkeys((Action.SOFT_REBOOT, Action.REBOOT_NODE, Action.POWER_CYCLE), _CLUSTERMGTD),
    ),
    Owner.PCS: OwnerRules(
        stands_back="nothing for one node: a change of its health checks replaces every instance of the compute node group",
        give_up=GiveUp.BY_ITS_OWNER,
        source="https://docs.aws.amazon.com/pcs/latest/userguide/cng-instance-health-checks-configure.html",
        missing={Action.POWER_CYCLE: _PCS_STOP},
    ),
}
"""Every owner has its row."""


def missing_rung(owner: Owner, rung: Action) -> str:
    """Return why a rung does not exist for a node of this owner, empty where it does."""
    why = OWNERS[owner].missing.get(rung, "")
    return f"a node of {owner.value} has no such rung: {why}" if why else ""


def give_up_by_hand(owner: Owner, node: Node) -> str:
    """Return what a person types to give the slot of a retired node up, empty where there is no such command."""
    instance = f"--instance-id{'s' if owner is Owner.EC2 else ''} {node.instance_id}"
    commands = {
        GiveUp.TERMINATE: f"aws ec2 terminate-instances {instance}",
        GiveUp.TERMINATE_IN_GROUP: f"aws autoscaling exit-standby --auto-scaling-group-name {node.group} --instance-ids "
        f"{node.instance_id}; aws autoscaling terminate-instance-in-auto-scaling-group {instance} "
        "--no-should-decrement-desired-capacity",
        GiveUp.DELETE_NODE_CLAIM: "kubectl delete nodeclaim $(kubectl get nodeclaims -o json | jq -r "
        f"'.items[]|select(.status.providerID|endswith(\"{node.instance_id}\")).metadata.name')",
        GiveUp.REPLACE_IN_HYPERPOD: "aws sagemaker batch-replace-cluster-nodes --cluster-name CLUSTER --node-ids "
        f"{node.instance_id}",
        GiveUp.DRAIN_IN_SLURM: f"scontrol update nodename={node.name} state=drain reason=replace",
    }
    return commands.get(OWNERS[owner].give_up, "")


def owners_table() -> str:
    """Return the table as Markdown, for docs/owners.md."""
    lines = ["| owner | rungs that do not exist | stands back by | a slot is given up by | source |", "|---|---|---|---|---|"]
    for owner, rules in OWNERS.items():
        reasons: dict[str, list[str]] = {}
        for rung, why in rules.missing.items():
            reasons.setdefault(why, []).append(rung.value)
        missing = "; ".join(f"{', '.join(rungs)}: {why}" for why, rungs in reasons.items()) or "none"
        source = f"[{rules.source.split('/')[2]}]({rules.source})"
        lines.append(f"| {owner.value} | {missing} | {rules.stands_back} | {rules.give_up.value} | {source} |")
    return "\n".join(lines)
