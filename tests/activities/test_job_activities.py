"""Jobs: found, held, resumed once and proved; never onto a quarantined node, and never against their own controller."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import FakeFault
from activities.clients.tag_inventory import TagInventory
from activities.jobs.activities import JobActivities
from activities.jobs.messages import AwaitProgress, AwaitRank, FindJob, HoldJob, ResumeJob
from activities.jobs.none import NoJobAdapter
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.names import ROLE_WORKER, TAG_ROLE
from activities.quarantine import HeadFileMarks, Mark, QuarantineActivities, QuarantineMarks, QuarantineNode
from activities.settings_jobs import JobSettings
from tests.activities.conftest import attempt

NODES = ["node-1", "node-2", "node-3", "node-4"]
SPARE_IN = ["node-1", "node-2", "node-3", "spare-1"]


@pytest.fixture
def marks(fleet: FakeFleet) -> QuarantineMarks:
    return QuarantineMarks(fleet.ec2, HeadFileMarks("head", fleet.access_to, fleet.inventory))


@pytest.fixture
def activities(fleet: FakeFleet, marks: QuarantineMarks) -> JobActivities:
    return JobActivities(fleet.job, fleet.inventory, marks, JobSettings(head="head"), fleet.clock)


def failure(call: Callable[[], Any]) -> ApplicationError:
    with pytest.raises(ApplicationError) as raised:
        call()
    return raised.value


def attach(fleet: FakeFleet, spare: str) -> None:
    """What a replacement does to the spare that it gives to a job."""
    fleet.ec2.set_tags(fleet.node(spare).instance_id, {TAG_ROLE: ROLE_WORKER})


def test_the_job_of_a_node_is_found_and_a_spare_has_none(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    found = surroundings.run(activities.find_job, FindJob(cluster="lab", node=fleet.node("node-2")))
    assert found.status is not None
    assert (found.status.job, found.status.nodes) == ("train", NODES)
    assert surroundings.run(activities.find_job, FindJob(cluster="lab", node=fleet.node("spare-1"))).status is None


def test_a_held_job_stays_stopped_and_holding_again_is_no_error(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    for _ in range(2):
        assert surroundings.run(activities.hold_job, HoldJob(job="train", reason="XID 79")).state is JobState.HELD
    assert fleet.count("job.hold") == 1
    assert fleet.machine("node-1").gpu_processes == 0


def test_a_job_goes_on_from_its_checkpoint_on_exactly_the_given_nodes(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    attach(fleet, "spare-1")
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    checkpoint = fleet.job.checkpoint_step
    resumed = surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=SPARE_IN, token="t1"))
    assert (resumed.state, resumed.nodes, resumed.run_token) == (JobState.RUNNING, SPARE_IN, "t1")
    wait = AwaitProgress(job="train", token="t1", beyond_step=checkpoint + 3, deadline_s=60.0)
    step = surroundings.run(activities.await_progress, wait).step
    assert step is not None
    assert step > checkpoint + 3
    assert fleet.count("job.resume") == 1


def test_a_resume_that_happened_is_not_made_again(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    for number in (1, 2, 3):
        attempt(number).run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1"))
    assert fleet.job.resumes == [("t1", NODES)]
    assert fleet.count("job.resume") == 1


def test_a_job_is_not_resumed_on_a_spare_that_is_back_in_the_pool(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    error = failure(lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=SPARE_IN, token="t1")))
    assert error.type == "PreconditionFailed"
    assert "spare-1 is back in the pool" in error.message
    assert fleet.job.resumes == []


def test_a_running_job_is_not_resumed(fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment) -> None:
    error = failure(lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1")))
    assert (error.type, error.non_retryable) == ("PreconditionFailed", True)
    assert fleet.job.resumes == []


def test_a_job_is_not_resumed_on_a_quarantined_node(
    fleet: FakeFleet, activities: JobActivities, marks: QuarantineMarks, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    mark = QuarantineNode(node=fleet.node("node-3"), incident="incident/lab/i-3", reason="slow")
    surroundings.run(QuarantineActivities(marks).quarantine_node, mark)
    error = failure(lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1")))
    assert error.type == "PreconditionFailed"
    assert "node-3 is quarantined by incident/lab/i-3" in error.message
    assert fleet.job.resumes == []


def test_one_mark_of_a_quarantine_is_enough_to_keep_a_job_off(
    fleet: FakeFleet, activities: JobActivities, marks: QuarantineMarks, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    marks.set_tag(fleet.node("node-4"), "incident/lab/i-4")
    assert (
        "node-4"
        in failure(lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1"))).message
    )


@pytest.mark.parametrize("by", [RestartedBy.CONTROLLER, RestartedBy.IN_JOB])
def test_a_job_with_a_controller_of_its_own_is_neither_held_nor_resumed(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment, by: RestartedBy
) -> None:
    fleet.job.restarted_by = by
    for call in (
        lambda: surroundings.run(activities.hold_job, HoldJob(job="train", reason="x")),
        lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1")),
    ):
        assert failure(call).type == "NotOurs"
    assert (fleet.count("job.hold"), fleet.count("job.resume")) == (0, 0)


@pytest.mark.parametrize("by", [RestartedBy.CONTROLLER, RestartedBy.IN_JOB])
def test_a_job_with_a_controller_is_left_alone_without_a_failure_where_that_is_asked_for(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment, by: RestartedBy
) -> None:
    fleet.job.restarted_by = by
    request = HoldJob(job="train", reason="x", unless_controlled=True)
    left = surroundings.run(activities.hold_job, request)
    assert (left.state, left.ours, fleet.count("job.hold")) == (JobState.RUNNING, False, 0)
    fleet.job.restarted_by = RestartedBy.HOTSPARE
    assert surroundings.run(activities.hold_job, request).state is JobState.HELD


def test_steps_of_an_earlier_run_prove_nothing(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    wait = AwaitProgress(job="train", token="t1", beyond_step=0, deadline_s=60.0)
    assert failure(lambda: surroundings.run(activities.await_progress, wait)).type == "DeadlinePassed"


def test_the_counter_that_a_new_run_still_shows_of_the_run_before_proves_nothing(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run before stood at step 17 past its checkpoint of 10; the new one is released, and has not come to its first step."""
    looks = iter([17, 17, 17, None, 17, 10, 10, 11, 12])
    view = JobStatus(job="train", state=JobState.RUNNING, nodes=NODES, checkpoint_step=10, run_token="t1")
    monkeypatch.setattr(fleet.job, "status", lambda job: view.model_copy(update={"step": next(looks)}))
    wait = AwaitProgress(job="train", token="t1", beyond_step=10, deadline_s=600.0)
    assert surroundings.run(activities.await_progress, wait).step == 11
    assert list(looks) == [12]


def test_a_counter_that_rose_before_the_run_stood_still_is_seen_to_rise_again(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([(JobState.RUNNING, 11), (JobState.UNKNOWN, 12), (JobState.RUNNING, 12), (JobState.RUNNING, 13)])
    view = JobStatus(job="train", state=JobState.RUNNING, nodes=NODES, checkpoint_step=10, run_token="t1")
    monkeypatch.setattr(
        fleet.job, "status", lambda job: view.model_copy(update=dict(zip(("state", "step"), next(looks), strict=True)))
    )
    wait = AwaitProgress(job="train", token="t1", beyond_step=10, deadline_s=600.0)
    assert surroundings.run(activities.await_progress, wait).step == 13


@pytest.mark.parametrize(("said", "ends_s"), [(None, 1800.0), (60.0, 60.0)])
def test_progress_has_the_time_of_its_message_or_else_of_the_settings(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment, said: float | None, ends_s: float
) -> None:
    wait = AwaitProgress(job="train", token="t1", beyond_step=0, deadline_s=said)
    assert f"within {ends_s:.0f} s" in failure(lambda: surroundings.run(activities.await_progress, wait)).message


def test_a_run_that_dies_again_is_told_at_once(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1"))
    looks = 0

    def die_soon(*details: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            fleet.inject("node-2", FakeFault(xid=79))

    surroundings.on_heartbeat = die_soon
    wait = AwaitProgress(job="train", token="t1", beyond_step=10_000, deadline_s=3600.0)
    error = failure(lambda: surroundings.run(activities.await_progress, wait))
    assert error.type == "PreconditionFailed"
    assert "stopped again" in error.message


def test_a_rank_on_the_spare_proves_that_it_is_used(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    wait = AwaitRank(job="train", node_name="spare-1", deadline_s=60.0)
    assert failure(lambda: surroundings.run(activities.await_rank, wait)).type == "DeadlinePassed"
    attach(fleet, "spare-1")
    surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=SPARE_IN, token="t1"))
    assert surroundings.run(activities.await_rank, wait).state is JobState.RUNNING


def test_without_an_adapter_no_job_is_found_and_none_is_driven(
    fleet: FakeFleet, marks: QuarantineMarks, surroundings: ActivityEnvironment
) -> None:
    activities = JobActivities(NoJobAdapter(), fleet.inventory, marks, JobSettings())
    assert surroundings.run(activities.find_job, FindJob(cluster="lab", node=fleet.node("node-1"))).status is None
    assert failure(lambda: surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))).type == "CapabilityMissing"


def test_a_mark_that_was_lifted_a_moment_ago_keeps_nobody_off_though_the_inventory_still_shows_it(
    fleet: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    inventory = TagInventory(fleet.ec2, "lab", cache_s=3600.0)
    marks = QuarantineMarks(fleet.ec2, HeadFileMarks("head", fleet.access_to, inventory))
    activities = JobActivities(fleet.job, inventory, marks, JobSettings(head="head"), fleet.clock)
    node = fleet.node("node-3")
    marks.set_tag(node, "incident/lab/i-3")
    assert inventory.resolve("lab", "node-3").quarantine == "incident/lab/i-3"
    marks.remove_tag(node)
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1"))
    assert fleet.job.resumes == [("t1", NODES)]


def test_a_file_that_was_written_a_moment_ago_keeps_the_job_off_though_the_inventory_does_not_show_it(
    fleet: FakeFleet, surroundings: ActivityEnvironment
) -> None:
    inventory = TagInventory(fleet.ec2, "lab", cache_s=3600.0)
    marks = QuarantineMarks(fleet.ec2, HeadFileMarks("head", fleet.access_to, inventory))
    activities = JobActivities(fleet.job, inventory, marks, JobSettings(head="head"), fleet.clock)
    inventory.list("lab")
    marks.write_mark(fleet.node("node-2"), Mark(owner="incident/lab/i-2", reason="slow", since=datetime.now(UTC)))
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    error = failure(lambda: surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1")))
    assert "node-2 is quarantined by incident/lab/i-2" in error.message


def test_the_head_node_is_looked_at_once_however_many_nodes_a_job_has(
    fleet: FakeFleet, activities: JobActivities, surroundings: ActivityEnvironment
) -> None:
    surroundings.run(activities.hold_job, HoldJob(job="train", reason="x"))
    surroundings.run(activities.resume_job, ResumeJob(job="train", nodes=NODES, token="t1"))
    assert (fleet.count("run.quarantine_list", "head"), fleet.count("run.quarantine_read", "head")) == (1, 0)
