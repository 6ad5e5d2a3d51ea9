"""Jobs of Kubernetes over its verbs in memory: whose node it is, which ranks work, and who gets a leased one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.errors import BadInput, PreconditionFailed, ProviderBusy
from activities.jobs.protocol import JobState, RestartedBy
from activities.kubernetes import EVENT, JOB_SET, POD
from activities.names import (
    KUBE_LEASE,
    KUBE_SPARE,
    KUBE_STEP,
)
from activities.quarantine import Mark
from tests.activities.kubernetes_job_world import SET_LABEL, TRAIN, Jobs
from tests.activities.kubernetes_world import GPU, NAMESPACE


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


def test_a_step_counter_is_missed_only_while_every_rank_works(jobs: Jobs) -> None:
    for name in jobs.world.pods():
        jobs.api.patch(POD, name, {"metadata": {"annotations": {KUBE_STEP: None}}}, NAMESPACE)
    missed = "no step counter"
    assert any(missed in words for words in jobs.adapter.status(TRAIN).warnings)
    jobs.says("train-workers-0-1-bbbbb", state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=1)
    assert not any(missed in words for words in jobs.adapter.status(TRAIN).warnings)


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
    jobs.api.patch(POD, "train-workers-0-1-ccccc", {"spec": {"nodeName": "ip-s1"}}, NAMESPACE)
    jobs.says("train-workers-0-1-ccccc", state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=1)
    jobs.adapter.supply(TRAIN, jobs.s1)
    assert jobs.taints(jobs.s1, KUBE_LEASE) == lease
    jobs.says("train-workers-0-1-ccccc")
    jobs.adapter.supply(TRAIN, jobs.s1)
    assert jobs.taints(jobs.s1, KUBE_LEASE) is None


def ago(seconds: float) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    ("told", "probe", "counts"),
    [
        ({}, False, True),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}, False, False),
        ({"running_for_s": 1, "restartCount": 3}, False, False),
        ({"running_for_s": 60, "restartCount": 3}, False, True),
        ({"ready": False}, True, False),
        ({"ready": False}, False, True),
        ({"name": "another"}, False, False),
    ],
    ids=["runs", "back-off", "started again", "long since", "not ready", "no probe", "not told of"],
)
def test_a_rank_counts_where_its_container_works(jobs: Jobs, told: dict[str, Any], probe: bool, counts: bool) -> None:
    if "running_for_s" in told:  # counted when the test runs, which may be long after it was collected
        told = {**told, "state": {"running": {"startedAt": ago(told["running_for_s"])}}}
        del told["running_for_s"]
    container = {"name": "rank", "resources": {"limits": {GPU: "8"}}, **({"readinessProbe": {"exec": {}}} if probe else {})}
    jobs.api.patch(POD, "train-workers-0-1-bbbbb", {"spec": {"containers": [container]}}, NAMESPACE)
    jobs.says("train-workers-0-1-bbbbb", **told)
    status = jobs.adapter.status(TRAIN)
    assert status.runs_on("n2") is counts
    assert status.may_have_ranks_on("n2")
    assert status.runs_on("n1")


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


def test_a_job_that_does_not_restart_is_told_with_the_setting_that_mends_it(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"spec": {"failurePolicy": {"maxRestarts": 0}}}, NAMESPACE)
    assert any("maxRestarts" in words for words in jobs.adapter.status(TRAIN).warnings)


def test_a_name_that_is_no_job_says_what_a_job_is_called(jobs: Jobs) -> None:
    with pytest.raises(BadInput, match="namespace/kind/name"):
        jobs.adapter.status("train")
