"""Jobs in a queue of Kueue: seen on every level, told what became of them, and never suspended."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities.clients.fake_fleet import FakeFleet
from activities.errors import CapabilityMissing
from activities.jobs.activities import JobActivities
from activities.jobs.kubernetes_kueue import KUEUE_QUEUE
from activities.jobs.messages import AwaitController
from activities.kubernetes import JOB_SET, KUEUE_WORKLOAD, POD
from activities.quarantine import QuarantineMarks
from activities.settings_jobs import JobSettings
from tests.activities.conftest import attempt
from tests.activities.kubernetes_job_world import TRAIN, Jobs
from tests.activities.kubernetes_world import NAMESPACE


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def test_suspend_is_never_written_where_kueue_owns_it(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"metadata": {"labels": {KUEUE_QUEUE: "gpus"}}}, NAMESPACE)
    with pytest.raises(CapabilityMissing, match=r"spec\.active"):
        jobs.adapter.hold(TRAIN, "why")
    assert "suspend" not in jobs.top()["spec"]


@pytest.mark.parametrize("level", ["pod", "owner"])
def test_kueues_queue_is_seen_on_every_level_with_what_became_of_the_job(jobs: Jobs, level: str) -> None:
    label = {"metadata": {"labels": {KUEUE_QUEUE: "gpus"}}}
    kind, name = (POD, "train-workers-0-0-aaaaa") if level == "pod" else (JOB_SET, "train")
    jobs.api.patch(kind, name, label, NAMESPACE)
    jobs.api.patch(POD, "train-workers-0-1-bbbbb", {"spec": {"nodeName": None}}, NAMESPACE)
    jobs.says("train-workers-0-1-bbbbb", "Pending")
    assert "no Workload" in jobs.adapter.status(TRAIN).waits_for
    jobs.kueue_says(Admitted=("True", "Admitted", ""), Evicted=("True", "NodeFailures", "node n2 failed"))
    status = jobs.adapter.status(TRAIN)
    assert status.controller == "JobSet train (in Kueue's queue gpus)"
    assert "1 pod" in status.waits_for
    assert "Workload jobset-train is admitted since" in status.waits_for
    assert "evicted at 2026-01-01T00:00:00Z (NodeFailures: node n2 failed)" in status.waits_for
    jobs.kueue_says(QuotaReserved=("False", "Pending", "insufficient unused quota"), Requeued=("True", "BackoffFinished", ""))
    assert "is not admitted (Pending: insufficient unused quota)" in jobs.adapter.status(TRAIN).waits_for


def test_a_job_that_works_waits_for_nothing_of_kueue(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"metadata": {"labels": {KUEUE_QUEUE: "gpus"}}}, NAMESPACE)
    jobs.kueue_says(Admitted=("True", "Admitted", ""))
    assert jobs.adapter.status(TRAIN).waits_for == ""


def test_a_job_that_kueue_or_another_has_without_a_label_is_not_suspended_either(jobs: Jobs) -> None:
    jobs.kueue_says(Admitted=("True", "Admitted", ""))
    with pytest.raises(CapabilityMissing, match="queue of Kueue"):
        jobs.adapter.hold(TRAIN, "why")
    jobs.api.delete(KUEUE_WORKLOAD, "jobset-train", NAMESPACE)
    jobs.api.patch(JOB_SET, "train", {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, NAMESPACE)
    with pytest.raises(CapabilityMissing, match=r"managed by kueue\.x-k8s\.io/multikueue"):
        jobs.adapter.hold(TRAIN, "why")
    owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "wrap", "uid": "1", "controller": True}
    changed = {"spec": {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}, "metadata": {"ownerReferences": [owner]}}
    jobs.api.patch(JOB_SET, "train", changed, NAMESPACE)
    with pytest.raises(CapabilityMissing, match="belongs to AppWrapper wrap"):
        jobs.adapter.hold(TRAIN, "why")
    assert "suspend" not in jobs.top()["spec"]


def test_a_wait_for_a_job_that_kueue_does_not_admit_ends_with_what_kueue_says(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"metadata": {"labels": {KUEUE_QUEUE: "gpus"}}}, NAMESPACE)
    for name in jobs.world.pods():
        jobs.api.delete(POD, name, NAMESPACE, grace_s=0)
    jobs.kueue_says(Evicted=("True", "NodeFailures", "node n2 failed"), QuotaReserved=("False", "Pending", "insufficient quota"))
    activities = JobActivities(
        jobs.adapter, jobs.inventory, QuarantineMarks(FakeFleet().ec2, jobs.marks), JobSettings(), jobs.clock
    )
    with pytest.raises(ApplicationError) as raised:
        attempt(1).run(activities.await_controller, AwaitController(job=TRAIN, beyond_step=100, deadline_s=60))
    assert raised.value.type == "DeadlinePassed"
    assert "it is STOPPED at step None; it waits: Kueue: Workload jobset-train was evicted" in raised.value.message
    assert "insufficient quota" in raised.value.message
