"""Every name that Hotspare writes outside itself: tags, search attributes, task queues, workflow ids, all on one prefix."""

from __future__ import annotations

from datetime import datetime

PREFIX = "hotspare"

# EC2 tags. `cluster` and `role` are set by whoever builds the cluster; the rest are ours to write and to remove.
TAG_CLUSTER = f"{PREFIX}:cluster"
TAG_ROLE = f"{PREFIX}:role"  # worker | spare | head
TAG_QUARANTINE = f"{PREFIX}:quarantine"  # value: id of the incident that owns the quarantine
TAG_LEASE = f"{PREFIX}:lease"  # value: id of the ReplaceNode workflow that uses this spare
TAG_REPLACES = f"{PREFIX}:replaces"  # value: instance id of the node that this one stands in for
TAG_FATE = f"{PREFIX}:fate"  # probation | retired
TAG_TOKEN = f"{PREFIX}:token"  # on an instance that Hotspare launched: the end of the token of that launch
TAG_STOOD_BACK = f"{PREFIX}:stood-back"  # value: id of the incident for which other healers stand back, and who they are
TAG_REPAIR_PAUSED = (
    f"{PREFIX}:repair-paused"  # on a node group of EKS: value: the incident for which its repair was first switched off
)
TAG_SPINE = f"{PREFIX}:spine"  # network spine or rack, where the owner tells it
TAG_NVLINK = f"{PREFIX}:nvlink-domain"  # UltraServer whose trays share NVLink (GB200, GB300), where the owner tells it
TAG_POOL = f"{PREFIX}:pool"  # pool whose fewest usable nodes are limited; without it the instance type is the pool
TAG_OPT_OUT = f"{PREFIX}:opt-out"  # value: why Hotspare leaves this node alone

# Kubernetes: labels, annotations and taints of nodes and pods, all under one domain.
KUBE = f"{PREFIX}.dev"
KUBE_QUARANTINE = f"{KUBE}/quarantine"  # taint NoSchedule, and annotation: the Mark (owner, reason, since) as JSON
KUBE_STOOD_BACK = f"{KUBE}/stood-back"  # annotation of a Node, with "-KIND": the incident, and what a healer's switch said before
KUBE_SPARE = f"{KUBE}/spare"  # taint NoSchedule on a spare that nobody has leased
KUBE_LEASE = f"{KUBE}/lease"  # taint NoSchedule, value: the job (hashed where long); only the pods of that job tolerate it
KUBE_TOKEN = f"{KUBE}/token"  # annotation of a job: token of the resume that made the present run
KUBE_HELD = f"{KUBE}/held"  # annotation of a job that we have suspended: the reason; and its label, to find it by
KUBE_NODE_SET = f"{KUBE}/node-set"  # annotation of a job that was taken over: the Nodes that it had, or has been started on
KUBE_PLACED = f"{KUBE}/placed"  # label of the Nodes on which a job that was taken over may run; value as that of its lease
KUBE_STEP = f"{KUBE}/step"  # annotation that a training program may write on its pod or job: the step it has done
KUBE_CHECKPOINT_STEP = f"{KUBE}/checkpoint-step"  # the same: step of its last complete checkpoint
KUBE_MANAGED_BY = f"{KUBE}/managed"  # label of everything that Hotspare creates in Kubernetes

AWS_TAG_GROUP = "aws:autoscaling:groupName"  # AWS writes it on every member of an Auto Scaling group

ROLE_WORKER, ROLE_SPARE, ROLE_HEAD = "worker", "spare", "head"
ROLE_NEW = "new"  # launched for the pool, and not tested yet: in no pool, and no worker
FATE_IN_SERVICE, FATE_PROBATION, FATE_RETIRED = "back in service", "probation", "retired"
FATE_REPLACED = "replaced"  # given up: its cluster terminated the instance and launches another
FATE_DRAINED = "drained"  # begins the value of the tag: by whom, and why; a spare that is leased to nobody any more
FATE_WITH_PERSON = "with a person"  # quarantined, and an incident ended without having settled the node's fate

QUEUE_WORKFLOWS = PREFIX
QUEUE_AWS = f"{PREFIX}-aws"
QUEUE_K8S = f"{PREFIX}-k8s"
QUEUE_SSH = f"{PREFIX}-ssh"
QUEUE_SSH_SLOW = f"{PREFIX}-ssh-slow"
QUEUE_NOTIFY = f"{PREFIX}-notify"

# Search attributes: name -> Temporal type. Healing never depends on them.
SEARCH_ATTRIBUTES = {
    "HotspareCluster": "Keyword",
    "HotspareNode": "Keyword",
    "HotsparePhase": "Keyword",
    "HotspareFault": "Keyword",
    "HotspareOutcome": "Keyword",
    "HotspareJob": "Keyword",
    "HotspareCodes": "KeywordList",
    "HotspareWaitsForPerson": "Bool",
}

WORKFLOW_REMEDIATE_NODE = "RemediateNode"
WORKFLOW_RECOVER_JOB = "RecoverJob"
WORKFLOW_BURN_IN = "BurnIn"
WORKFLOW_REPLACE_NODE = "ReplaceNode"
WORKFLOW_QUALIFY_SPARE = "QualifySpare"
WORKFLOW_PROVISION_SPARE = "ProvisionSpare"
WORKFLOW_CLUSTER = "Cluster"
WORKFLOW_SWEEP = "Sweep"
WORKFLOW_STORM = "Storm"
WORKFLOW_RECONCILE = "Reconcile"


def incident_id(cluster: str, instance_id: str) -> str:
    """Workflow id of the one incident that a node can have open."""
    return f"incident/{cluster}/{instance_id}"


def is_kept_out(fate: str) -> bool:
    """Whether the value of a fate tag keeps a spare out of the pool: it is retired, or a person has drained it."""
    return fate == FATE_RETIRED or fate.startswith(FATE_DRAINED)


def is_incident(owner: str) -> bool:
    """Whether the value of a quarantine tag names an incident."""
    return owner.startswith("incident/")


def is_replacement(owner: str) -> bool:
    """Whether the value of a lease tag names a replacement."""
    return owner.startswith("replace/")


def job_id(cluster: str, job: str) -> str:
    """Workflow id of the recovery of a job."""
    return f"job/{cluster}/{job}"


def burn_in_id(cluster: str, key: str) -> str:
    """Workflow id of a burn-in; `key` names who asked and which round."""
    return f"burn-in/{cluster}/{key}"


def replace_id(cluster: str, replaced_instance_id: str) -> str:
    """Workflow id of the replacement of a node."""
    return f"replace/{cluster}/{replaced_instance_id}"


def qualify_id(cluster: str, instance_id: str) -> str:
    """Workflow id of the test of a spare that waits in the pool."""
    return f"qualify/{cluster}/{instance_id}"


def provision_id(cluster: str, token: str) -> str:
    """Workflow id of one launch for the pool; `token` names the wish, or the instance that is given up for it."""
    return f"spare/{cluster}/{token}"


def cluster_id(cluster: str) -> str:
    """Workflow id of Cluster, the single writer of slots, leases and freezes."""
    return f"cluster/{cluster}"


def storm_id(cluster: str, kind: str, began: datetime) -> str:
    """Workflow id of one event that shows on many nodes."""
    return f"storm/{cluster}/{kind}/{began:%Y%m%dT%H%M%S}"


def owner_in(value: str) -> str:
    """Return the incident that the value of the tag of healers that stand back names, empty if there is no such tag."""
    return value.split(" ", 1)[0]


def unresolved_id(cluster: str, alias: str) -> str:
    """Workflow id under which a machine's report about an unknown node is recorded."""
    return f"unresolved/{cluster}/{alias}"


TEST_EVENT = "doctor-test-"
"""Begin of the name under which a test event is observed, with the test's id behind it. No node is called so."""


def sweep_schedule_id(cluster: str) -> str:
    """Id of the Schedule that starts sweeps."""
    return f"sweep/{cluster}"


def reconcile_schedule_id(cluster: str) -> str:
    """Id of the Schedule that looks for what was left behind."""
    return f"reconcile/{cluster}"
