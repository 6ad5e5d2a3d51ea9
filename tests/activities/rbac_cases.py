"""What Hotspare does in Kubernetes, one operation at a time, each with nothing but the grants that it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from activities.clients.agent_access import AgentAccessTo
from activities.clients.fake_fleet import FakeFleet
from activities.clients.kube_launcher import KubeLauncher
from activities.clients.mpijob_launcher import MpiJobLauncher
from activities.draining import DrainNode
from activities.errors import NodeUnreachable
from activities.inventory import Node
from activities.jobs.kubernetes import KubernetesJobs
from activities.jobs.progress import ProgressCommand
from activities.karpenter import DEPLOYMENT, LABEL, KarpenterHealers
from activities.karpenter_claims import NODE_CLAIM, KarpenterClaims
from activities.kubernetes import (
    EVENT,
    JOB,
    JOB_SET,
    LEASE,
    NODE,
    POD,
    PYTORCH_JOB,
    SECRET,
    TRAIN_JOB,
    Kind,
    labels_of,
)
from activities.kubernetes_drain import KubernetesDrainer
from activities.kubernetes_healers import NodeObjects
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.names import KUBE_HELD, KUBE_NODE_SET
from activities.nvsentinel import OPT_OUT, NvSentinelHealers
from activities.settings import HealerSettings
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import JobSettings, KubernetesSettings
from activities.stood_back import StoodBack
from tests.activities.conftest import attempt
from tests.activities.kubernetes_contract import OURS
from tests.activities.kubernetes_job_world import TRAIN, Jobs
from tests.activities.kubernetes_world import GPU, NAMESPACE
from tests.activities.rbac import Grant, GuardedKubernetes

ACCESS = AccessSettings(kind="agent", agent_image="checks:1", agent_tools_image="tools:1", agent_start_s=0.01)
SETTINGS = KubernetesSettings(source="kubeconfig", drain_mode="delete_after_timeout")
GROUP = [Node(instance_id="i-n1", name="n1", gpus=8), Node(instance_id="i-n2", name="n2", gpus=8)]


class Desk:
    """The product over a job of two ranks, as somebody with these grants."""

    def __init__(self, grants: Iterable[Grant], folder: Path) -> None:
        self.jobs, self.folder = Jobs(), folder
        self.world, self.admin = self.jobs.world, self.jobs.api
        self.api = GuardedKubernetes(self.admin, grants)
        self.nodes = KubernetesNodes(self.api)
        self.marks = KubernetesMarks(self.nodes, self.jobs.inventory, GPU)
        settings, self.clock = JobSettings(), self.jobs.clock
        progress = ProgressCommand(self._no_head, settings)
        self.adapter = KubernetesJobs(self.api, self.nodes, self.jobs.inventory, progress, SETTINGS, settings, self.clock)
        self.access_to = AgentAccessTo(self.api, ACCESS, SETTINGS, self._no_head)
        self.launcher = KubeLauncher(self.api, self.access_to, ACCESS, SETTINGS, BurnInSettings())

    def _no_head(self) -> Any:
        raise AssertionError("no head node is asked")

    def workload(self, kind: Kind) -> str:
        """Make a job of a kind that is held and had n1; returns its name for the adapter."""
        notes = {KUBE_HELD: "by us", KUBE_NODE_SET: "ip-n1"}
        meta = {"name": "held", "annotations": notes, "labels": {KUBE_HELD: "yes"}}
        self.admin.create(kind, {"metadata": meta, "spec": {"suspend": True, "runPolicy": {"suspend": True}}}, NAMESPACE)
        return f"{NAMESPACE}/{kind.name.lower()}/held"

    def running(self, kind: Kind) -> str:
        """Make a job of a kind without pods, which is not suspended."""
        pods = {"template": {"spec": {"containers": [{"name": "rank", "command": ["train"]}]}}}
        spec = {**pods, "parallelism": 1, "completions": 1, "pytorchReplicaSpecs": {"Worker": {"replicas": 1, **pods}}}
        self.admin.create(kind, {"metadata": {"name": "runs"}, "spec": spec}, NAMESPACE)
        return f"{NAMESPACE}/{kind.name.lower()}/runs"

    def without_pods(self) -> None:
        """Let every pod be gone."""
        for name in self.world.pods():
            self.admin.delete(POD, name, NAMESPACE, grace_s=0)

    def put_into_kubernetes(self, node: Node, **labels: str) -> Node:
        """Make the Node of an instance that EC2 knows."""
        gpus, ready = 8, True
        self.admin.add_node("ip-ours", node.instance_id, gpus=gpus, ready=ready, **labels)
        return node

    def install_karpenter(self) -> None:
        """Install Karpenter 1.15, which obeys."""
        container = {"image": "karpenter:1.15.0", "env": [{"name": "FEATURE_GATES", "value": "NodeRepair=true"}]}
        meta = {"name": "karpenter", "labels": {"app.kubernetes.io/name": "karpenter"}}
        self.admin.put(DEPLOYMENT, {"metadata": meta, "spec": {"template": {"spec": {"containers": [container]}}}}, "karpenter")


def find_a_node(desk: Desk) -> None:
    assert desk.nodes.name(desk.jobs.n1) == "ip-n1"
    assert desk.marks.read(desk.jobs.n1) is None


def quarantine(desk: Desk) -> None:
    desk.marks.write(desk.jobs.n1, OURS)
    assert desk.marks.read(desk.jobs.n1) == OURS


def find_the_job_of_a_node(desk: Desk) -> None:
    found = desk.adapter.find_on(desk.jobs.n1)
    assert found is not None
    assert found.job == TRAIN


def find_a_job_whose_pod_waits(desk: Desk) -> None:
    desk.admin.delete(POD, "train-workers-0-1-bbbbb", NAMESPACE, grace_s=0)
    words = f"Successfully assigned {NAMESPACE}/train-workers-0-1-bbbbb to ip-n2"
    desk.admin.create(EVENT, {"metadata": {"name": "bound"}, "reason": "Scheduled", "message": words}, NAMESPACE)
    assert desk.adapter.find_on(desk.jobs.n2) is not None


def see_whether_kueue_decides(desk: Desk) -> None:
    desk.admin.patch(JOB_SET, "train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}, NAMESPACE)
    desk.jobs.kueue_says(Admitted=("True", "Admitted", "by gpus"))
    assert "Kueue" in desk.adapter.status(TRAIN).controller


def find_held(kind: Kind) -> Callable[[Desk], None]:
    """Find a held job by its node: it has no pods, so the jobs themselves are looked through."""

    def find(desk: Desk) -> None:
        desk.without_pods()
        name = desk.workload(kind)
        found = desk.adapter.find_on(desk.jobs.n1)
        assert found is not None
        assert found.job == name

    return find


def look_at(kind: Kind) -> Callable[[Desk], None]:
    """Look at a job by its name."""

    def look(desk: Desk) -> None:
        name = desk.workload(kind)
        assert desk.adapter.status(name).held_for == "by us"

    return look


def hold(kind: Kind) -> Callable[[Desk], None]:
    """Suspend a job."""

    def suspend(desk: Desk) -> None:
        assert desk.adapter.hold(desk.running(kind), "XID 79").held_for == "XID 79"

    return suspend


def supply_a_spare(desk: Desk) -> None:
    desk.jobs.rank("train-workers-0-1-ccccc", "", "Pending")
    desk.adapter.supply(TRAIN, desk.jobs.s1)


def move_ranks_off(desk: Desk) -> None:
    desk.adapter.leave(TRAIN, desk.jobs.n1)
    assert "train-workers-0-0-aaaaa" not in desk.world.pods()


def move_ranks_off_a_silent_node(desk: Desk) -> None:
    KubernetesMarks(KubernetesNodes(desk.admin), desk.jobs.inventory, GPU).write(desk.jobs.n1, OURS)
    desk.world.status("ip-n1", ready=False)
    desk.adapter.leave(TRAIN, desk.jobs.n1)
    assert "train-workers-0-0-aaaaa" not in desk.world.pods()


def drain(desk: Desk) -> None:
    """One pod goes by eviction, and one that a budget holds is deleted at the deadline."""
    desk.marks.write(desk.jobs.n1, OURS)
    desk.world.pod("db-0", "ip-n1", labels={"app": "db"})
    desk.world.budget("keep", {"app": "db"})
    drainer = KubernetesDrainer(desk.api, desk.nodes, SETTINGS, desk.clock)
    attempt().run(drainer.drain, DrainNode(node=desk.jobs.n1, incident=OURS.owner, reason="XID 79"))
    assert desk.world.pods() == ["train-workers-0-1-bbbbb"]


def have_karpenter_stand_back(desk: Desk) -> None:
    desk.install_karpenter()
    fleet, nodes = FakeFleet(), NodeObjects(desk.api)
    node = desk.put_into_kubernetes(fleet.node("node-1"), **{LABEL: "gpus"})
    healers = KarpenterHealers(desk.api, nodes, StoodBack(fleet.ec2), HealerSettings())
    assert "neither repairs" in attempt().run(healers.stand_back, node, OURS.owner)


def give_a_node_back_to_karpenter(desk: Desk) -> None:
    ours = FakeFleet().node("node-1")
    status = {"providerID": f"aws:///us-east-1a/{ours.instance_id}"}
    desk.admin.put(NODE_CLAIM, {"metadata": {"name": "gpus-1", "labels": {LABEL: "gpus"}}, "status": status})
    attempt().run(KarpenterClaims(desk.api).give_up, ours, decrement=False)
    assert desk.admin.list(NODE_CLAIM) == []


def have_nvsentinel_stand_back(desk: Desk) -> None:
    fleet, nodes = FakeFleet(), NodeObjects(desk.api)
    node = desk.put_into_kubernetes(fleet.node("node-1"))
    healers = NvSentinelHealers(desk.api, nodes, StoodBack(fleet.ec2))
    attempt().run(healers.stand_back, node, OURS.owner)
    found = desk.admin.get(NODE, "ip-ours")
    assert labels_of(found or {})[OPT_OUT.key] == "false"


def find_other_healers(desk: Desk) -> None:
    healers = NvSentinelHealers(desk.api, NodeObjects(desk.api), StoodBack(FakeFleet().ec2))
    assert [one.doubt for one in healers.found(desk.jobs.n1)] == [""]


def see_that_a_kubelet_is_silent(desk: Desk) -> None:
    old = (datetime.now(UTC) - timedelta(seconds=40)).isoformat()
    desk.admin.put(LEASE, {"metadata": {"name": "ip-n1"}, "spec": {"renewTime": old}}, "kube-node-lease")
    with contextlib.suppress(NodeUnreachable):
        desk.access_to(desk.jobs.n1).boot_id(5.0)
        raise AssertionError("it counts as one that answers")


def run_on_a_node(desk: Desk) -> None:
    """A command of which nobody takes care: its Job is made, looked at, and taken away."""
    with contextlib.suppress(NodeUnreachable):
        desk.access_to(desk.jobs.n1).run(["true"], 5.0)
        raise AssertionError("nobody ran it")
    assert desk.admin.list(JOB) == []


def run_detached_on_a_node(desk: Desk) -> None:
    access = desk.access_to(desk.jobs.n1)
    access.start("deep-test/1", ["all_reduce_perf"], 60.0)
    assert access.poll("deep-test/1").known
    access.kill("deep-test/1")


def put_a_file_on_a_node(desk: Desk) -> None:
    file = desk.folder / "checks.tar.gz"
    file.write_bytes(b"checks")
    for _ in range(2):
        desk.access_to(desk.jobs.n1).put(file, "digest")


def run_on_a_group(desk: Desk) -> None:
    desk.launcher.start("burn-in/1", [desk.jobs.n1, desk.jobs.n2], 60.0)
    desk.launcher.kill("burn-in/1")
    assert len(desk.admin.list(JOB)) == 1
    assert desk.admin.list(SECRET) == []


def run_on_a_group_as_an_mpi_job(desk: Desk) -> None:
    launcher = MpiJobLauncher(desk.api, desk.access_to, ACCESS, SETTINGS, BurnInSettings())
    launcher.start("burn-in/1", [desk.jobs.n1, desk.jobs.n2], 60.0)
    assert launcher.poll("burn-in/1").known
    launcher.kill("burn-in/1")


KINDS = {"Job": JOB, "JobSet": JOB_SET, "PyTorchJob": PYTORCH_JOB, "TrainJob": TRAIN_JOB}

CASES: dict[str, Callable[[Desk], None]] = {
    **{
        case.__name__: case
        for case in (
            find_a_node,
            quarantine,
            find_the_job_of_a_node,
            find_a_job_whose_pod_waits,
            see_whether_kueue_decides,
            supply_a_spare,
            move_ranks_off,
            move_ranks_off_a_silent_node,
            drain,
            have_karpenter_stand_back,
            give_a_node_back_to_karpenter,
            have_nvsentinel_stand_back,
            find_other_healers,
            see_that_a_kubelet_is_silent,
            run_on_a_node,
            run_detached_on_a_node,
            put_a_file_on_a_node,
            run_on_a_group,
            run_on_a_group_as_an_mpi_job,
        )
    },
    **{f"find_a_held_{name}": find_held(kind) for name, kind in KINDS.items()},
    **{f"look_at_a_{name}": look_at(kind) for name, kind in KINDS.items()},
    **{f"hold_a_{name}": hold(kind) for name, kind in KINDS.items()},
}
