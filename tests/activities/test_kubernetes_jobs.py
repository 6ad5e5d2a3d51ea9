"""Jobs of Kubernetes over its verbs in memory: whose node it is, who gets a leased one, and what is held and by whom."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from activities.clients.fake_access import FakeAccess
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.errors import BadInput, CapabilityMissing, NotOurs, PreconditionFailed, ProviderBusy
from activities.inventory import Node
from activities.jobs.kubernetes import KUEUE_QUEUE, PLACED, KubernetesJobs
from activities.jobs.progress import ProgressCommand
from activities.jobs.protocol import JobState, RestartedBy
from activities.kubernetes import EVENT, JOB_SET, NODE, POD, Object, annotations_of, labels_of
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.kubernetes_taints import taint_value
from activities.names import KUBE_CHECKPOINT_STEP, KUBE_HELD, KUBE_LEASE, KUBE_SPARE, KUBE_STEP, KUBE_TOKEN
from activities.quarantine import Mark
from activities.settings import JobSettings, KubernetesSettings
from tests.activities.kubernetes_world import GPU, NAMESPACE, KubeletClock, ListedNodes, World

TRAIN = "default/jobset/train"
SET_LABEL = "jobset.sigs.k8s.io/jobset-name"


class Jobs:
    """A JobSet of two ranks on n1 and n2, and the spare s1."""

    def __init__(self) -> None:
        self.api = FakeKubernetes()
        self.world = World(self.api)
        self.n1, self.n2, self.s1 = (self.world.node(name) for name in ("n1", "n2", "s1"))
        self.api.patch(NODE, "ip-s1", {"spec": {"taints": [{"key": KUBE_SPARE, "effect": "NoSchedule"}]}})
        self.inventory = ListedNodes(self.n1, self.n2, self.s1)
        self.nodes = KubernetesNodes(self.api)
        self.marks = KubernetesMarks(self.nodes, self.inventory, GPU)
        settings, clock = JobSettings(), KubeletClock(self.world)
        progress = ProgressCommand(self._no_head, settings)
        self.adapter = KubernetesJobs(self.api, self.nodes, self.inventory, progress, KubernetesSettings(), settings, clock)
        self.job_set()
        self.rank("train-workers-0-0-aaaaa", "ip-n1")
        self.rank("train-workers-0-1-bbbbb", "ip-n2")

    def _no_head(self) -> FakeAccess:
        raise AssertionError("no command is configured")

    def job_set(self, **spec: object) -> None:
        pod = {"containers": [{"name": "rank", "command": ["train"], "resources": {"limits": {GPU: "8"}}}]}
        job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
        whole = {"failurePolicy": {"maxRestarts": 5}, "replicatedJobs": [{"name": "workers", "template": {"spec": job}}]}
        self.api.create(JOB_SET, {"metadata": {"name": "train"}, "spec": {**whole, **spec}}, NAMESPACE)

    def rank(self, name: str, node: str, phase: str = "Running", job_set: str = "train") -> None:
        spec: Object = {"containers": [{"name": "rank", "resources": {"limits": {GPU: "8"}}}]}
        meta = {"name": name, "labels": {SET_LABEL: job_set}, "annotations": {KUBE_STEP: "120", KUBE_CHECKPOINT_STEP: "100"}}
        self.api.create(POD, {"metadata": meta, "spec": {**spec, **({"nodeName": node} if node else {})}}, NAMESPACE)
        self.api.patch(POD, name, {"status": {"phase": phase}}, NAMESPACE, subresource="status")

    def top(self) -> Object:
        found = self.api.get(JOB_SET, "train", NAMESPACE)
        assert found is not None
        return found

    def taints(self, node: Node, key: str) -> str | None:
        return taint_value(self.nodes.get(node), key)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def test_a_running_job_is_found_by_its_pod_with_its_counters_and_its_budget(jobs: Jobs) -> None:
    status = jobs.adapter.find_on(jobs.n1)
    assert status is not None
    assert (status.job, status.state, status.nodes, status.ranks_on) == (TRAIN, JobState.RUNNING, ["n1", "n2"], ["n1", "n2"])
    assert (status.step, status.checkpoint_step, status.restarts_left) == (120, 100, 5)
    assert (status.restarted_by, status.controller) == (RestartedBy.CONTROLLER, "JobSet train")
    assert jobs.adapter.find_on(jobs.s1) is None


def test_a_job_whose_pod_waits_is_found_by_where_the_scheduler_had_sent_it(jobs: Jobs) -> None:
    jobs.api.delete(POD, "train-workers-0-1-bbbbb", NAMESPACE, grace_s=0)
    jobs.rank("train-workers-0-1-ccccc", "", "Pending")
    event = {
        "metadata": {"name": "bound"},
        "reason": "Scheduled",
        "message": f"Successfully assigned {NAMESPACE}/train-workers-0-1-bbbbb to ip-n2",
    }
    jobs.api.create(EVENT, event, NAMESPACE)
    status = jobs.adapter.find_on(jobs.n2)
    assert status is not None
    assert (status.nodes, status.ranks_on) == (["n1", "n2"], ["n1"])
    assert "1 pod" in status.waits_for


def test_a_job_with_a_pod_on_a_silent_node_is_not_known_to_be_stopped(jobs: Jobs) -> None:
    jobs.api.delete(POD, "train-workers-0-0-aaaaa", NAMESPACE, grace_s=0)
    jobs.world.status("ip-n2", ready=False)
    assert jobs.adapter.status(TRAIN).state is JobState.UNKNOWN


def test_a_job_that_is_complete_needs_no_node(jobs: Jobs) -> None:
    done = {"status": {"conditions": [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted"}]}}
    jobs.api.patch(JOB_SET, "train", done, NAMESPACE, subresource="status")
    assert jobs.adapter.find_on(jobs.n1) is None
    assert jobs.adapter.status(TRAIN).ended.startswith("complete")


def test_a_supplied_spare_is_leased_to_this_job_whose_waiting_ranks_alone_tolerate_it(jobs: Jobs) -> None:
    jobs.rank("train-workers-0-1-ccccc", "", "Pending")
    jobs.rank("other-workers-0-0-ddddd", "", "Pending", job_set="other")
    for _ in range(2):
        jobs.adapter.supply(TRAIN, jobs.s1)
    lease = jobs.taints(jobs.s1, KUBE_LEASE)
    assert lease is not None
    assert jobs.taints(jobs.s1, KUBE_SPARE) is None
    tolerations = {pod["metadata"]["name"]: pod["spec"].get("tolerations") for pod in jobs.api.list(POD, NAMESPACE)}
    ours = {"key": KUBE_LEASE, "operator": "Equal", "value": lease, "effect": "NoSchedule"}
    assert [name for name, found in tolerations.items() if ours in (found or [])] == ["train-workers-0-1-ccccc"]
    jobs.api.patch(POD, "train-workers-0-1-ccccc", {"spec": {"nodeName": "ip-s1"}, "status": {"phase": "Running"}}, NAMESPACE)
    jobs.api.patch(POD, "train-workers-0-1-ccccc", {"status": {"phase": "Running"}}, NAMESPACE, subresource="status")
    jobs.adapter.supply(TRAIN, jobs.s1)
    assert jobs.taints(jobs.s1, KUBE_LEASE) is None


def test_a_spare_that_is_taken_back_is_a_free_spare(jobs: Jobs) -> None:
    jobs.adapter.supply(TRAIN, jobs.s1)
    jobs.adapter.take_back(TRAIN, jobs.s1)
    assert (jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)) == (None, "")


def test_a_quarantined_node_is_supplied_to_nobody(jobs: Jobs) -> None:
    jobs.marks.write(jobs.s1, Mark(owner="incident/lab/i-s1", reason="XID 79", since=datetime(2026, 1, 1, tzinfo=UTC)))
    with pytest.raises(PreconditionFailed, match="incident/lab/i-s1"):
        jobs.adapter.supply(TRAIN, jobs.s1)


def test_ranks_leave_by_eviction_and_a_budget_that_forbids_it_is_named(jobs: Jobs) -> None:
    jobs.world.budget("ranks", {SET_LABEL: "train"}, max_unavailable=0)
    with pytest.raises(ProviderBusy, match="ranks"):
        jobs.adapter.leave(TRAIN, jobs.n2)
    assert len(jobs.world.pods()) == 2


def test_ranks_on_a_silent_node_are_deleted_only_where_the_node_is_ours(jobs: Jobs) -> None:
    jobs.world.status("ip-n2", ready=False)
    jobs.adapter.leave(TRAIN, jobs.n2)
    assert "train-workers-0-1-bbbbb" in jobs.world.pods()
    jobs.marks.write(jobs.n2, Mark(owner="incident/lab/i-n2", reason="XID 79", since=datetime(2026, 1, 1, tzinfo=UTC)))
    jobs.adapter.leave(TRAIN, jobs.n2)
    assert jobs.world.pods() == ["train-workers-0-0-aaaaa"]


def test_a_job_is_taken_over_by_suspension_and_started_once_on_exactly_the_named_nodes(jobs: Jobs) -> None:
    for name in jobs.world.pods():
        jobs.api.delete(POD, name, NAMESPACE, grace_s=0)
    held = jobs.adapter.hold(TRAIN, "its controller has not managed")
    assert (held.state, held.ours, held.held_for) == (JobState.HELD, True, "its controller has not managed")
    jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    jobs.adapter.resume(TRAIN, ["n1", "n2"], "token-1")
    top = jobs.top()
    assert top["spec"]["suspend"] is False
    assert (annotations_of(top).get(KUBE_TOKEN), annotations_of(top).get(KUBE_HELD)) == ("token-1", None)
    assert [node["metadata"]["name"] for node in jobs.api.list(NODE) if PLACED in labels_of(node)] == ["ip-n1", "ip-s1"]
    pod = top["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert PLACED in pod["nodeSelector"]


def test_a_job_that_somebody_else_suspended_is_neither_held_nor_resumed(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"spec": {"suspend": True}}, NAMESPACE)
    with pytest.raises(NotOurs, match="somebody else"):
        jobs.adapter.hold(TRAIN, "why")
    with pytest.raises(PreconditionFailed, match="not held by Hotspare"):
        jobs.adapter.resume(TRAIN, ["n1", "n2"], "token-1")


def test_suspend_is_never_written_where_kueue_owns_it(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"metadata": {"labels": {KUEUE_QUEUE: "gpus"}}}, NAMESPACE)
    with pytest.raises(CapabilityMissing, match=r"spec\.active"):
        jobs.adapter.hold(TRAIN, "why")
    assert "suspend" not in jobs.top()["spec"]


def test_a_job_that_does_not_restart_is_told_with_the_setting_that_mends_it(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"spec": {"failurePolicy": {"maxRestarts": 0}}}, NAMESPACE)
    assert any("maxRestarts" in words for words in jobs.adapter.status(TRAIN).warnings)


def test_a_name_that_is_no_job_says_what_a_job_is_called(jobs: Jobs) -> None:
    with pytest.raises(BadInput, match="namespace/kind/name"):
        jobs.adapter.status("train")
