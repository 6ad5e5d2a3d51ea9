"""The adapter of Kubernetes jobs on the real controllers: supplied, left, taken over and started on exactly the proven nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from activities.clients.fake_fleet import FakeFleet
from activities.errors import CapabilityMissing, PreconditionFailed
from activities.jobs.activities import JobActivities
from activities.jobs.messages import AwaitProgress, HoldJob, ResumeJob
from activities.jobs.protocol import JobState
from activities.kubernetes import JOB, annotations_of, labels_of
from activities.names import KUBE_HELD, KUBE_LEASE, KUBE_NODE_SET, KUBE_PLACED, KUBE_SPARE
from activities.quarantine import QuarantineMarks
from activities.settings_jobs import JobSettings
from tests.activities.conftest import attempt
from tests.activities.kubernetes_world import NAMESPACE
from tests.clusters.kube_jobs_rig import Rig, World

pytestmark = pytest.mark.timeout(300)
ALL = ("Job", "JobSet", "PyTorchJob", "TrainJob")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("jobs"))
    yield rig
    rig.close()


@pytest.fixture
def make(rig: Rig) -> Iterator[Callable[[str], World]]:
    """Make a world with a running job of a kind; it is cleared away afterwards."""
    made: list[World] = []

    def start(kind: str) -> World:
        made.append(rig.world(kind))
        made[-1].start()
        return made[-1]

    yield start
    for world in made:
        world.clear()


@pytest.mark.parametrize("kind", ALL)
def test_a_spare_that_is_supplied_is_used_by_the_controller_in_the_place_of_a_node_that_is_left(
    make: Callable[[str], World], kind: str
) -> None:
    world = make(kind)
    kept, bad, spare = *world.workers, world.spares[0]
    found = world.adapter.find_on(bad)
    assert found is not None
    assert (found.job, found.state, found.nodes) == (world.job, JobState.RUNNING, sorted([kept.name, bad.name]))
    assert world.adapter.find_on(spare) is None

    world.quarantine(bad)
    world.left(bad)
    waiting = world.adapter.status(world.job)
    assert bad.name in waiting.nodes, waiting
    status = world.supplied(spare)
    assert sorted(status.nodes) == sorted([kept.name, spare.name])
    assert (world.taint(spare, KUBE_LEASE), world.taint(spare, KUBE_SPARE)) == (None, None)
    assert world.running_on() == sorted([kept.name, spare.name])


@pytest.mark.parametrize("kind", ALL)
def test_a_job_is_taken_over_and_trains_on_exactly_the_named_nodes_and_a_later_spare_is_used_too(
    make: Callable[[str], World], kind: str
) -> None:
    world = make(kind)
    (kept, bad), (spare, later) = world.workers, world.spares
    world.steps(120, 100)
    world.quarantine(bad)
    activities = JobActivities(
        world.adapter,
        world.inventory,
        QuarantineMarks(FakeFleet().ec2, world.marks),
        JobSettings(poll_s=0.2, progress_deadline_s=60),
    )
    around = attempt(1)
    held = around.run(activities.hold_job, HoldJob(job=world.job, reason="its controller has not managed", take_over=True))
    assert (held.state, held.ranks_on, held.nodes) == (JobState.HELD, [], sorted([kept.name, bad.name]))
    assert annotations_of(world.top())[KUBE_NODE_SET] == ",".join(sorted(world.kube_names[one.name] for one in (kept, bad)))
    found = world.adapter.find_on(bad)
    assert found is not None
    assert found.state is JobState.HELD

    request = ResumeJob(job=world.job, nodes=[kept.name, spare.name], token="token-1")
    around.run(activities.resume_job, request)
    assert around.run(activities.resume_job, request).run_token == "token-1"
    world.until(lambda: world.running_on() == sorted([kept.name, spare.name]), world.seen)
    world.steps(101, 100)
    around.on_heartbeat = lambda *_: world.steps(102, 100)
    proof = AwaitProgress(job=world.job, token="token-1", beyond_step=100)
    assert around.run(activities.await_progress, proof).step == 102
    assert KUBE_HELD not in annotations_of(world.top()) | labels_of(world.top())
    assert (world.taint(spare, KUBE_LEASE), world.taint(spare, KUBE_SPARE)) == (None, None)

    world.quarantine(spare)
    world.left(spare)
    assert spare.name in world.adapter.status(world.job).nodes
    world.supplied(later)
    assert world.running_on() == sorted([kept.name, later.name])
    assert world.taint(later, KUBE_LEASE) is None


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_a_spare_that_is_taken_back_is_used_by_nobody(make: Callable[[str], World], kind: str) -> None:
    world = make(kind)
    bad, spare = world.workers[1], world.spares[0]
    world.adapter.supply(world.job, spare)
    assert world.taint(spare, KUBE_LEASE)
    world.adapter.take_back(world.job, spare)
    assert (world.taint(spare, KUBE_LEASE), world.taint(spare, KUBE_SPARE)) == (None, "")
    world.quarantine(bad)
    world.left(bad)
    world.until(lambda: "cannot be scheduled" in world.adapter.status(world.job).waits_for, world.seen)
    assert spare.name not in world.running_on()


def test_a_job_is_not_resumed_onto_a_node_that_is_quarantined(make: Callable[[str], World]) -> None:
    world = make("Job")
    kept, bad = world.workers
    world.quarantine(bad)
    world.adapter.hold(world.job, "its controller has not managed")
    with pytest.raises(PreconditionFailed, match=f"{bad.name} is quarantined by incident/lab/"):
        world.adapter.resume(world.job, [kept.name, bad.name], "token-1")
    assert KUBE_PLACED not in labels_of(world.kube_nodes.get(bad))
    assert world.adapter.status(world.job).state is JobState.HELD


def test_a_kubernetes_that_does_not_move_a_job_that_has_started_is_recognised(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    gate = "MutableSchedulingDirectivesForSuspendedJobs=false,MutablePodResourcesForSuspendedJobs=false"
    rig = Rig(tmp_path_factory.mktemp("older"), feature_gates=gate)
    try:
        world = rig.world("Job")
        world.start()
        world.adapter.hold(world.job, "its controller has not managed")
        with pytest.raises(CapabilityMissing, match="Make it a JobSet"):
            world.adapter.resume(world.job, [node.name for node in world.workers], "token-1")
        assert world.adapter.status(world.job).state is JobState.HELD
        found = world.admin.get(JOB, world.name, NAMESPACE)
        assert found is not None
        assert KUBE_HELD in annotations_of(found)
    finally:
        rig.close()
