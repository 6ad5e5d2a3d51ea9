"""Messages between workflows, and the words a person says to them. What activities send too lives in `activities.incidents`.

Messages to and from Cluster are in `workflows.cluster_messages`.
"""

from __future__ import annotations

from datetime import datetime

from activities.incidents import NodeOut, StormMember
from activities.inventory import Node
from activities.message import Message
from activities.owners import Owner
from checks.model import Verdict


class StartReplacement(Message):
    """Input of ReplaceNode. By hand only `node` is needed. `supplies`: the job's controller starts ranks on what it is given.

    `impact` is how many GPUs wait: who waits with more gets a spare first. `wait_s`: how long one that may come
    back to the pool is waited for, where nothing else can be done meanwhile.
    """

    node: str
    cluster: str = ""
    incident: str = ""
    job: str = ""
    reason: str = "asked for by hand"
    unwanted: list[str] = []
    supplies: bool = False
    impact: int = 0
    wait_s: float = 0.0


class Replacement(Message):
    """Result of ReplaceNode, and what it tells its incident when the spare is ready."""

    replaced: str
    spare: Node | None = None
    ready: bool = False
    reason: str = ""


class StartProvision(Message):
    """Input of ProvisionSpare. By hand `instance_type` is needed; `in_place_of` a retired node, by any alias, that goes for it.

    `incident` owns that node's quarantine, and was opened at `since` for a fault of `fault_class`; it tells `node` and `owned_by`
    too, since an owner may have ended the instance meanwhile. `approved`: a slot that others may take is risked.
    """

    instance_type: str = ""
    cluster: str = ""
    zone: str = ""
    in_place_of: str = ""
    incident: str = ""
    approved: bool = False
    reason: str = "asked for by hand"
    fault_class: str = ""
    since: datetime | None = None
    node: Node | None = None
    owned_by: Owner = Owner.EC2


class Provisioned(Message):
    """Result of ProvisionSpare: the new spare, or why there is none."""

    outcome: str
    spare: str = ""
    because: list[str] = []


class StartQualification(Message):
    """Input of QualifySpare. By hand only `node` is needed."""

    node: str
    cluster: str = ""
    reason: str = "asked for by hand"


class Qualification(Message):
    """Result of QualifySpare."""

    spare: str
    verdict: Verdict
    because: list[str] = []


class StartBurnIn(Message):
    """Input of BurnIn: the nodes of the group, by any alias. Those in `fresh` are new to the job: tried before the group is.

    `every_pair`: go on where the group passes, until each node was tried beside each other.
    """

    cluster: str = ""
    nodes: list[str]
    fresh: list[str] = []
    reason: str = "asked for by hand"
    every_pair: bool = False


class GroupRun(Message):
    """One group run of a burn-in as people see it: of which round it is and why, and how it ended. Without a verdict it runs."""

    round: int
    nodes: list[str]
    rail: int | None = None
    why: str = ""
    verdict: Verdict | None = None
    cause: str = ""
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    evidence: str = ""


class NodeVerdict(Message):
    """Burn-in's verdict on one node."""

    instance_id: str
    node_name: str
    verdict: Verdict
    cause: str
    evidence: str = ""
    busbw_gbs: float | None = None


class BurnInReport(Message):
    """Burn-in's answer: the group's verdict, the bad nodes and paths, and how many runs and rounds it took.

    `corrupt` are bad nodes, by name, whose runs gave wrong results; `next` is what a person does about it.
    """

    verdict: Verdict
    cause: str
    because: list[str] = []
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    nodes: list[NodeVerdict] = []
    bad_paths: list[list[str]] = []
    runs: int = 0
    rounds: int = 0
    corrupt: list[str] = []
    next: str = ""


class StartRecovery(Message):
    """Input of RecoverJob."""

    cluster: str
    job: str
    node_out: NodeOut | None = None


class StartStorm(Message):
    """Input of Storm: the node that was first seen in it."""

    cluster: str = ""
    member: StormMember | None = None


class StormReport(Message):
    """Result of Storm: who showed it, what was done once, and which nodes still show a fault of their own afterwards."""

    nodes: list[str] = []
    jobs: list[str] = []
    story: list[str] = []
    still_ill: list[str] = []


class StartSweep(Message):
    """Input of Sweep."""

    cluster: str = ""


class StartReconcile(Message):
    """Input of Reconcile."""

    cluster: str = ""


class Word(Message):
    """What a person says to an incident. `by` is who; `step` says which step is meant, empty for the present one."""

    by: str
    reason: str = ""
    step: str = ""


class IncidentReport(Message):
    """Result of RemediateNode: outlives the workers, and is what an operator reads first in the UI."""

    outcome: str
    node: str = ""
    fault: str = ""
    story: list[str] = []
    job: str = ""
    lost_minutes: float | None = None
    fate: str = ""
