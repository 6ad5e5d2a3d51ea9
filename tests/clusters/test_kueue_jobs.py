"""Jobs in a queue of the real Kueue: supplied like any other, never suspended by us, and what Kueue did with them is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from activities.errors import CapabilityMissing
from activities.jobs.kubernetes_kueue import KUEUE_QUEUE, kueue_workload
from activities.jobs.kubernetes_workloads import Workloads
from activities.jobs.protocol import JobState
from activities.kubernetes import KUEUE_WORKLOAD, Kind, Object
from activities.names import KUBE_HELD, KUBE_LEASE
from tests.activities.kubernetes_world import GPU, NAMESPACE
from tests.clusters.kube_jobs_rig import Rig, World

pytestmark = pytest.mark.timeout(300)

_VERSION = "kueue.x-k8s.io/v1beta2"
_FLAVOR = Kind(_VERSION, "resourceflavors", "ResourceFlavor", namespaced=False)
_QUEUE = Kind(_VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
_LOCAL_QUEUE = Kind(_VERSION, "localqueues", "LocalQueue")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("kueue"))
    rig.controllers_for("JobSet")
    rig.plane.do(rig.plane.real.controllers.start_kueue())
    flavor = {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": 16}]}
    group = {"coveredResources": [GPU], "flavors": [flavor]}
    rig.admin.create(_FLAVOR, {"metadata": {"name": "gpu"}})
    rig.admin.create(_QUEUE, {"metadata": {"name": "all"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}})
    rig.admin.create(_LOCAL_QUEUE, {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "all"}}, NAMESPACE)
    yield rig
    rig.close()


@pytest.fixture(params=["Job", "JobSet"])
def world(rig: Rig, request: pytest.FixtureRequest) -> Iterator[World]:
    """A job of two ranks in the queue `lab`, whose quota it fills."""
    world = rig.world(request.param)
    world.start(labels={KUEUE_QUEUE: "lab"})
    yield world
    world.clear()


def workload(world: World) -> Object:
    """What Kueue has made for the job, as the product finds it."""
    found = kueue_workload(world.client, Workloads(world.client, GPU).get(world.job))
    assert found is not None
    return found


def test_a_spare_is_used_while_kueue_keeps_the_job_admitted(world: World) -> None:
    kept, bad, spare = *world.workers, world.spares[0]
    status = world.adapter.status(world.job)
    assert "in Kueue's queue lab" in status.controller
    assert status.waits_for == ""
    world.quarantine(bad)
    world.left(bad)
    world.until(lambda: "it keeps its quota" in world.adapter.status(world.job).waits_for, world.seen)
    world.supplied(spare)
    assert world.running_on() == sorted([kept.name, spare.name])
    assert world.taint(spare, KUBE_LEASE) is None
    world.until(lambda: world.adapter.status(world.job).waits_for == "", world.seen)


def test_a_job_that_kueue_has_is_not_suspended_and_what_kueue_did_is_told(world: World) -> None:
    name = workload(world)["metadata"]["name"]
    with pytest.raises(CapabilityMissing, match=rf"Workload {name} is admitted since .*spec\.active"):
        world.adapter.hold(world.job, "its controller has not managed")
    assert KUBE_HELD not in world.top()["metadata"].get("annotations", {})
    assert not world.top()["spec"].get("suspend")

    world.admin.patch(KUEUE_WORKLOAD, name, {"spec": {"active": False}}, NAMESPACE)
    world.until(lambda: "is not admitted" in world.adapter.status(world.job).waits_for, world.seen)
    world.until(lambda: world.adapter.status(world.job).state is JobState.STOPPED, world.seen)
    waits = world.adapter.status(world.job).waits_for
    assert f"Workload {name} is stopped (spec.active is false)" in waits
    assert "was evicted at" in waits
    world.admin.patch(KUEUE_WORKLOAD, name, {"spec": {"active": True}}, NAMESPACE)
    world.until(lambda: world.adapter.status(world.job).state is JobState.RUNNING, world.seen)


def test_a_job_for_which_the_quota_does_not_do_says_so(world: World) -> None:
    other = world.rig.world(world.kind.name, workers=1, spares=0)
    try:
        other.create(labels={KUEUE_QUEUE: "lab"})
        other.until(lambda: "insufficient" in other.adapter.status(other.job).waits_for, other.seen)
        assert other.adapter.status(other.job).state is JobState.STOPPED
    finally:
        other.clear()
