"""Each activity that calls AWS, over nodes in memory and an EC2 that enforces IAM: what has to work under its role's policy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from activities import names
from activities.burn_in import GroupTest
from activities.capacity import LookAtSlot, StartNode
from activities.clients.asg_boto3 import AsgBoto3
from activities.clients.aws_session import session_of
from activities.clients.capacity_boto3 import CapacityBoto3
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.clients.eks_boto3 import EksBoto3
from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_job import FakeJob
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.host_key_trust import HostKeyTrust
from activities.clients.kubernetes_connection import described
from activities.clients.sqs_boto3 import SqsBoto3
from activities.clients.tag_inventory import TagInventory
from activities.ec2 import DisruptNode, InspectInstance, TagNode
from activities.eks_repair import LABEL
from activities.errors import AccessRefused
from activities.evidence_bundle import unpack
from activities.giving_up import AwaitGone, DrainForReplacement
from activities.healers import ReleaseHealers, StandBack
from activities.inventory import Inventory, ListNodes, Node, ResolveNode
from activities.jobs.messages import (
    AwaitController,
    AwaitProgress,
    AwaitRank,
    FindJob,
    HoldJob,
    LookAtJob,
    ResumeJob,
    SupplyOfNode,
)
from activities.jobs.protocol import JobStatus, RestartedBy
from activities.node import DeepTest
from activities.node_messages import CollectEvidence
from activities.nvsentinel import REBOOT_NODE
from activities.parity import CompareFleet
from activities.quarantine import LiftQuarantine, QuarantineNode
from activities.reconcile import FindTraces
from activities.settings import AwsSettings
from activities.spare_work import ClearSpare
from checks.model import Verdict
from infra.iam.table import FIND_NODES, LEARN_HOST_KEY, REACH_KUBERNETES, READ_EVENTS
from infra.lab.moto_instances import set_state
from infra.lab.options import REGION
from tests.activities.conftest import attempt

INCIDENT = "incident/c/i-1"


class HeadJob:
    """The job of a fleet, reached as the product does: over the head node, which is looked up each time."""

    def __init__(self, job: FakeJob, inventory: Inventory) -> None:
        self._job = job
        self._find_head: Callable[[], Node] = lambda: inventory.resolve("", "head")

    def find_on(self, node: Node) -> JobStatus | None:
        self._find_head()
        return self._job.find_on(node)

    def status(self, job: str) -> JobStatus:
        self._find_head()
        return self._job.status(job)

    def hold(self, job: str, reason: str) -> JobStatus:
        self._find_head()
        return self._job.hold(job, reason)

    def resume(self, job: str, nodes: list[str], token: str) -> None:
        self._find_head()
        self._job.resume(job, nodes, token)

    def settle(self, job: str, nodes: list[str]) -> None:
        self._job.settle(job, nodes)

    def supply(self, job: str, node: Node) -> None:
        self._job.supply(job, node)

    def take_back(self, job: str, node: Node) -> None:
        self._job.take_back(job, node)

    def leave(self, job: str, node: Node) -> None:
        self._job.leave(job, node)


class Rig:
    """The fleet's activities, over the EC2 client of one role in place of the fleet's own."""

    def __init__(self, ec2: Ec2Boto3, groups: AsgBoto3, aws: AwsSettings, cluster: str, folder: Path) -> None:
        self.fleet = FakeFleet(nodes=2, cluster=cluster)
        self.aws = aws
        self.job = self.fleet.job
        self.ec2 = ec2
        self.cluster = cluster
        self.inventory = TagInventory(ec2, cluster, cache_s=0.0)
        self.seen: dict[str, Node] = {}
        self.queue_url = ""
        fleet: Any = self.fleet
        fleet.ec2, fleet.inventory, fleet.job = ec2, self.inventory, HeadJob(self.job, self.inventory)
        fleet.capacity = CapacityBoto3(aws, "ssh")
        fleet.groups, fleet.eks, fleet.kubernetes = groups, EksBoto3(aws, "ssh"), FakeKubernetes()
        fleet.kubernetes.missing.add(REBOOT_NODE)
        nobody: Any = None
        self._activities = {activity.__name__: activity for activity in self.fleet.activities(nobody, folder)}

    def put_in_node_groups(self, **groups: str) -> None:
        """Make Nodes of Kubernetes of these nodes, each in its managed node group."""
        api: Any = self.fleet.kubernetes
        for name, group in groups.items():
            name = name.replace("_", "-")
            api.add_node(name, self.node(name).instance_id, **{LABEL: group})

    def stop(self, name: str) -> None:
        """Have an instance be stopped, by nobody who needs a permission."""
        set_state(self.node(name).instance_id, "stopped")

    def terminate(self, name: str) -> None:
        """Have an instance be terminated, by nobody who needs a permission."""
        set_state(self.node(name).instance_id, "terminated")

    def node(self, name: str) -> Node:
        """The inventory entry as a workflow has it: looked up before, by whoever may."""
        return self.seen[name]

    def run(self, activity: str, request: Any) -> Any:
        """Run an activity as an attempt of its own."""
        return attempt(left=timedelta(hours=1)).run(self._activities[activity], request)

    def disrupt(self, name: str, token: str) -> DisruptNode:
        boot_id = self.fleet.machines[name].boot_id
        return DisruptNode(node=self.node(name), boot_id=boot_id, token=token, quarantined_by=INCIDENT)


def brief(rig: Rig) -> None:
    rig.put_in_node_groups(node_1="repaired")
    seen = rig.run("brief", ResolveNode(cluster=rig.cluster, alias="node-1"))
    assert seen.node == rig.node("node-1")
    if seen.doubts:  # told, and no reason to know nothing of the node
        raise AccessRefused(seen.doubts[0])


def list_nodes(rig: Rig) -> None:
    assert len(rig.run("list_nodes", ListNodes(cluster=rig.cluster)).nodes) == 3


def resolve_node(rig: Rig) -> None:
    ask = ResolveNode(cluster=rig.cluster, alias=rig.node("node-1").ip)
    assert rig.run("resolve_node", ask).name == "node-1"


def instance_status(rig: Rig) -> None:
    assert rig.run("instance_status", InspectInstance(node=rig.node("node-1"))).state == "running"


def reboot_node(rig: Rig) -> None:
    assert rig.run("reboot_node", rig.disrupt("node-2", "t/reboot")).made_now


def soft_reboot_node(rig: Rig) -> None:
    assert rig.run("soft_reboot_node", rig.disrupt("node-2", "t/soft")).made_now


def power_cycle_node(rig: Rig) -> None:
    assert rig.run("power_cycle_node", rig.disrupt("node-2", "t/cycle")).made_now


def look_at_slot(rig: Rig) -> None:
    """What may not be read is unknown, and told."""
    slot = rig.run("look_at_slot", LookAtSlot(cluster=rig.cluster, node=rig.node("node-1")))
    if slot.unknown:
        raise AccessRefused(slot.unknown)
    assert (slot.reservation.reservation_id, slot.usable_elsewhere) == ("cr-1", 2)


def start_node(rig: Rig) -> None:
    rig.stop("node-2")
    ask = StartNode(node=rig.node("node-2"), token="t/start", quarantined_by=INCIDENT)
    assert rig.run("start_node", ask).made_now


def tag_node(rig: Rig) -> None:
    spare = rig.node("spare-1").instance_id
    lent = {names.TAG_LEASE: "replace/c/i-1", names.TAG_REPLACES: "i-1", names.TAG_ROLE: names.ROLE_WORKER}
    rig.run("tag_node", TagNode(instance_id=spare, set=lent, expect={names.TAG_LEASE: ""}, token="t/lease"))
    back = {names.TAG_ROLE: names.ROLE_SPARE, names.TAG_FATE: names.FATE_PROBATION}
    rig.run("tag_node", TagNode(instance_id=spare, set=back, remove=[names.TAG_LEASE, names.TAG_REPLACES]))


def stand_back(rig: Rig) -> None:
    rig.put_in_node_groups(node_1="repaired")
    assert "in Standby" in rig.run("stand_back", StandBack(node=rig.node("node-1"), incident=INCIDENT)).said


def release_healers(rig: Rig) -> None:
    rig.put_in_node_groups(node_2="paused")
    assert "back in service" in rig.run("release_healers", ReleaseHealers(node=rig.node("node-2"), incident=INCIDENT)).said


def quarantine_node(rig: Rig) -> None:
    ask = QuarantineNode(node=rig.node("node-1"), incident=INCIDENT, reason="XID 79")
    assert rig.run("quarantine_node", ask).owner == INCIDENT


def drain_for_replacement(rig: Rig) -> None:
    """The drain itself is Slurm's, and asks nothing of EC2."""
    fleet: Any = rig.fleet
    fleet.replace_by_drain = lambda node, owner: None
    ask = DrainForReplacement(node=rig.node("node-2"), incident=INCIDENT, evidence="s3://evidence/a-bundle.tar.gz")
    assert "drained" in rig.run("drain_for_replacement", ask).said


def await_gone(rig: Rig) -> None:
    rig.terminate("node-2")
    rig.run("await_gone", AwaitGone(node=rig.node("node-2"), deadline_s=60.0))


def lift_quarantine(rig: Rig) -> None:
    rig.run("lift_quarantine", LiftQuarantine(node=rig.node("node-2"), incident=INCIDENT))


def collect_evidence(rig: Rig) -> None:
    """A part that is refused is told in the bundle, and costs no other part."""
    ask = CollectEvidence(node=rig.node("node-1"), incident=INCIDENT, token="t/evidence", no_nvml=False)
    kept = rig.run("collect_evidence", ask)
    parts = {part["name"]: part for part in unpack(Path(urlsplit(kept.uri).path).read_bytes()).parts}
    refused = [parts[name] for name in ("instance.json", "status-checks.json", "console.txt") if parts[name]["state"] != "taken"]
    assert "dmesg.txt" in kept.items
    if refused:
        raise AccessRefused(refused[0]["why"])


def find_traces(rig: Rig) -> None:
    found = rig.run("find_traces", FindTraces(cluster=rig.cluster))
    assert [trace.node.name for trace in found.nodes] == ["node-2"]


def deep_test(rig: Rig) -> None:
    result = rig.run("deep_test", DeepTest(node=rig.node("spare-1"), run_id="deep/1"))
    assert result.verdict is Verdict.OK, result


def clear_spare(rig: Rig) -> None:
    assert not rig.run("clear_spare", ClearSpare(node=rig.node("spare-1"))).evicted


def group_test(rig: Rig) -> None:
    rig.job.hold("train", "test")
    ask = GroupTest(cluster=rig.cluster, run_id="burn/1", nodes=[rig.node("node-1"), rig.node("spare-1")])
    assert rig.run("group_test", ask).verdict is Verdict.OK


def find_job(rig: Rig) -> None:
    assert rig.run("find_job", FindJob(cluster=rig.cluster, node=rig.node("node-1"))).status.job == "train"


def look_at_job(rig: Rig) -> None:
    assert rig.run("look_at_job", LookAtJob(job="train")).job == "train"


def await_controller(rig: Rig) -> None:
    rig.job.restarted_by = RestartedBy.CONTROLLER
    ask = AwaitController(job="train", supply=["spare-1"], beyond_step=0, deadline_s=600.0)
    rig.run("await_controller", ask)
    assert rig.job.supplied == ["spare-1"]


def take_back_node(rig: Rig) -> None:
    rig.run("take_back_node", SupplyOfNode(job="train", node=rig.node("spare-1")))


def hold_job(rig: Rig) -> None:
    rig.run("hold_job", HoldJob(job="train", reason="XID 79"))


def resume_job(rig: Rig) -> None:
    rig.job.hold("train", "test")
    assert rig.run("resume_job", ResumeJob(job="train", nodes=["node-1"], token="t/1")).run_token == "t/1"


def await_progress(rig: Rig) -> None:
    rig.job.hold("train", "test")
    rig.job.resume("train", ["node-1", "spare-1"], "t/1")
    rig.run("await_progress", AwaitProgress(job="train", token="t/1", beyond_step=0, deadline_s=600.0))


def await_rank(rig: Rig) -> None:
    rig.run("await_rank", AwaitRank(job="train", node_name="node-1", deadline_s=600.0))


def compare_fleet(rig: Rig) -> None:
    ids = [node.instance_id for node in rig.seen.values()]
    assert rig.run("compare_fleet", CompareFleet(cluster=rig.cluster, instance_ids=ids)).token


def read_events(rig: Rig) -> None:
    queue = SqsBoto3(rig.aws, rig.queue_url, "ssh")
    (event,) = queue.receive()
    assert event.body == "an event"
    queue.done(event)


def learn_host_key(rig: Rig) -> None:
    def read_console(instance_id: str, now: bool) -> str:
        return rig.ec2.console_output(instance_id, latest=now)

    assert HostKeyTrust(Path("/nonexistent"), read_console).keys_of(rig.node("node-1").instance_id)


def reach_kubernetes(rig: Rig) -> None:
    address, certificate = described("train", REGION, rig.aws, session_of(rig.aws, "ssh"))
    assert address
    assert certificate


def find_nodes(rig: Rig) -> None:
    assert {node.name for node in rig.inventory.list("")} == {"node-1", "node-2", "spare-1", "head"}
    assert rig.inventory.resolve("", rig.node("node-2").ip).name == "node-2"


CASES: dict[str, Callable[[Rig], None]] = {
    **{
        case.__name__: case
        for case in (
            brief,
            list_nodes,
            resolve_node,
            instance_status,
            reboot_node,
            soft_reboot_node,
            power_cycle_node,
            look_at_slot,
            start_node,
            tag_node,
            stand_back,
            release_healers,
            quarantine_node,
            drain_for_replacement,
            await_gone,
            lift_quarantine,
            collect_evidence,
            find_traces,
            deep_test,
            clear_spare,
            group_test,
            find_job,
            look_at_job,
            await_controller,
            take_back_node,
            hold_job,
            resume_job,
            await_progress,
            await_rank,
            compare_fleet,
        )
    },
    LEARN_HOST_KEY: learn_host_key,
    READ_EVENTS: read_events,
    FIND_NODES: find_nodes,
    REACH_KUBERNETES: reach_kubernetes,
}
