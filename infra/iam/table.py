"""The one table of permissions: worker role, what it does there, and the AWS actions that this needs. Nothing else is granted.

A test runs every row under the policy of its role, and once more without each of its actions.
"""

from __future__ import annotations

from activities import names

DESCRIBE, STATUS = "ec2:DescribeInstances", "ec2:DescribeInstanceStatus"
CONSOLE = "ec2:GetConsoleOutput"
REBOOT, STOP, START = "ec2:RebootInstances", "ec2:StopInstances", "ec2:StartInstances"
TAG, UNTAG = "ec2:CreateTags", "ec2:DeleteTags"
MEMBERS, GROUPS = "autoscaling:DescribeAutoScalingInstances", "autoscaling:DescribeAutoScalingGroups"
RESERVATIONS = "ec2:DescribeCapacityReservations"
ENTER, EXIT = "autoscaling:EnterStandby", "autoscaling:ExitStandby"

EKS_CLUSTER, NODE_GROUP = "eks:DescribeCluster", "eks:DescribeNodegroup"
RECEIVE, TAKE_OFF = "sqs:ReceiveMessage", "sqs:DeleteMessage"
PAUSE_REPAIR = "eks:UpdateNodegroupConfig"
TAG_GROUP, UNTAG_GROUP = "eks:TagResource", "eks:UntagResource"

LEARN_HOST_KEY = "learn_host_key"
"""Not an activity: what every SSH connection does that meets an unknown host key (access.learn_host_keys)."""
FIND_NODES = "find_nodes"
"""Not an activity: how watcher and intake know the nodes."""
READ_EVENTS = "read_events"
"""Not an activity: the intake takes events off the queue of the cluster (intake.event_queue)."""
REACH_KUBERNETES = "reach_kubernetes"
"""Not an activity: what every process does once that speaks to Kubernetes with kubernetes.source = "eks"."""

PERMISSIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "control": {},
    "aws": {
        "brief": (DESCRIBE, NODE_GROUP),
        "compare_fleet": (DESCRIBE,),
        "list_nodes": (DESCRIBE,),
        "resolve_node": (DESCRIBE,),
        "instance_status": (STATUS,),
        "await_gone": (DESCRIBE,),
        "reboot_node": (DESCRIBE, REBOOT),
        "soft_reboot_node": (DESCRIBE,),
        "power_cycle_node": (DESCRIBE, STOP, START),
        "look_at_slot": (DESCRIBE, RESERVATIONS),
        "start_node": (DESCRIBE, START),
        "tag_node": (DESCRIBE, TAG, UNTAG),
        "stand_back": (DESCRIBE, TAG, MEMBERS, GROUPS, ENTER, NODE_GROUP, PAUSE_REPAIR, TAG_GROUP),
        "release_healers": (DESCRIBE, TAG, UNTAG, MEMBERS, GROUPS, EXIT, NODE_GROUP, PAUSE_REPAIR, UNTAG_GROUP),
        LEARN_HOST_KEY: (CONSOLE,),
        REACH_KUBERNETES: (EKS_CLUSTER,),
    },
    "k8s": {REACH_KUBERNETES: (EKS_CLUSTER,)},
    "ssh": {
        "quarantine_node": (DESCRIBE, TAG),
        "drain_for_replacement": (DESCRIBE,),
        "lift_quarantine": (DESCRIBE, UNTAG),
        "collect_evidence": (DESCRIBE, STATUS, CONSOLE),
        "find_traces": (DESCRIBE,),
        "deep_test": (DESCRIBE,),
        "clear_spare": (DESCRIBE,),
        "group_test": (DESCRIBE,),
        "find_job": (DESCRIBE,),
        "look_at_job": (DESCRIBE,),
        "await_controller": (DESCRIBE,),
        "hold_job": (DESCRIBE,),
        "resume_job": (DESCRIBE,),
        "await_progress": (DESCRIBE,),
        "await_rank": (DESCRIBE,),
        LEARN_HOST_KEY: (CONSOLE,),
        REACH_KUBERNETES: (EKS_CLUSTER,),
    },
    "notify": {},
    "watcher": {FIND_NODES: (DESCRIBE,), LEARN_HOST_KEY: (CONSOLE,)},
    "intake": {FIND_NODES: (DESCRIBE,), READ_EVENTS: (RECEIVE, TAKE_OFF)},
    "observe": {
        FIND_NODES: (DESCRIBE,),
        "brief": (DESCRIBE, NODE_GROUP),
        "instance_status": (STATUS,),
        LEARN_HOST_KEY: (CONSOLE,),
        READ_EVENTS: (RECEIVE, TAKE_OFF),
        REACH_KUBERNETES: (EKS_CLUSTER,),
    },
}
"""Role -> activity -> actions. What a role serves and is not named here makes no call to AWS.

A bucket for evidence bundles needs more of role ssh: docs/evidence.md.
"""

_ON_HYPERPOD = ("DescribeCluster", "DescribeClusterNode", "ListClusterNodes", "ListTags")
HYPERPOD: dict[str, tuple[str, ...]] = {
    "aws": (*_ON_HYPERPOD, "AddTags", "DeleteTags", "BatchRebootClusterNodes", "BatchReplaceClusterNodes"),
    "ssh": (*_ON_HYPERPOD, "AddTags", "DeleteTags"),
    "watcher": _ON_HYPERPOD,
    "intake": _ON_HYPERPOD,
    "observe": _ON_HYPERPOD,
}
"""Role -> actions of SageMaker in place of those of EC2, where aws.provider is "hyperpod"; on the one cluster, by its ARN."""

WITHOUT_AWS = {
    "aws": ("close_host_incident", "differences_told", "load_freezes", "note_clean_runs", "note_spare_test", "save_freezes"),
    "k8s": ("drain_node",),
    "ssh": ("await_boot", "examine", "reset_gpu", "take_back_node"),
}
"""Activities of roles with permissions that ask nothing of AWS, once the host key of the node is known."""

TAGS_OF_GROUPS = (f"{names.TAG_STOOD_BACK}:*", names.TAG_REPAIR_PAUSED)
"""Keys of the tags that role `aws` writes on managed node groups of EKS and removes from them."""

TAGS_WRITTEN: dict[str, tuple[str, ...]] = {
    "aws": (names.TAG_FATE, names.TAG_LEASE, names.TAG_REPLACES, names.TAG_ROLE, names.TAG_STOOD_BACK),
    "ssh": (names.TAG_QUARANTINE,),
}
"""Role -> keys of the tags that it writes and removes."""


def actions_of(role: str) -> tuple[str, ...]:
    """Every action that a role needs, sorted."""
    return tuple(sorted({action for actions in PERMISSIONS[role].values() for action in actions}))
