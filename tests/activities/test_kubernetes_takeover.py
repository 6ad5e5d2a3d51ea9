"""Jobs of Kubernetes that are taken over: suspended and started once, on exactly the nodes that are proven, or refused."""

from __future__ import annotations

import pytest

from activities.clients.fake_fleet import FakeFleet
from activities.errors import CapabilityMissing, NotOurs, PreconditionFailed
from activities.jobs.activities import JobActivities
from activities.jobs.kubernetes_kinds.job_set import JobSetKind
from activities.jobs.kubernetes_kinds.train_job import OVERRIDES, TrainJobKind
from activities.jobs.kubernetes_kinds.workload import Family, Placement
from activities.jobs.messages import ResumeJob
from activities.jobs.protocol import JobState
from activities.kubernetes import JOB, JOB_SET, NODE, POD, annotations_of, labels_of
from activities.kubernetes_taints import lease_value
from activities.names import (
    KUBE_HELD,
    KUBE_LEASE,
    KUBE_NODE_SET,
    KUBE_PLACED,
    KUBE_SPARE,
    KUBE_TOKEN,
)
from activities.quarantine import QuarantineMarks
from activities.settings_jobs import JobSettings
from tests.activities.conftest import attempt
from tests.activities.kubernetes_job_world import TRAIN, Jobs
from tests.activities.kubernetes_world import GPU, NAMESPACE


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def test_a_job_is_taken_over_by_suspension_and_started_once_on_exactly_the_named_nodes(jobs: Jobs) -> None:
    held = jobs.adapter.hold(TRAIN, "its controller has not managed")
    assert (held.state, held.ours, held.held_for) == (JobState.HELD, True, "its controller has not managed")
    jobs.starts_on("ip-n1", "ip-s1")
    jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    top = jobs.top()
    assert top["spec"]["suspend"] is False
    assert (annotations_of(top).get(KUBE_TOKEN), annotations_of(top).get(KUBE_HELD)) == ("token-1", None)
    assert KUBE_HELD not in labels_of(top)
    assert [node["metadata"]["name"] for node in jobs.api.list(NODE) if KUBE_PLACED in labels_of(node)] == ["ip-n1", "ip-s1"]
    pod = top["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert KUBE_PLACED in pod["nodeSelector"]
    assert (jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)) == (None, None)
    assert jobs.adapter.status(TRAIN).nodes == ["n1", "s1"]


def test_a_spare_on_which_a_job_starts_is_nobody_elses_until_a_rank_is_there(jobs: Jobs) -> None:
    jobs.adapter.hold(TRAIN, "its controller has not managed")
    seen: list[tuple[str | None, str | None]] = []

    def meanwhile() -> None:
        seen.append((jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)))
        jobs.starts_on("ip-n1", "ip-s1")
        jobs.controller()

    jobs.clock.meanwhile = meanwhile
    jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    assert seen == [(lease_value(TRAIN), None)]
    assert (jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)) == (None, None)


def test_a_lease_stays_where_no_rank_ever_came(jobs: Jobs) -> None:
    jobs.adapter.hold(TRAIN, "its controller has not managed")
    jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    assert jobs.taints(jobs.s1, KUBE_LEASE) == lease_value(TRAIN)
    jobs.adapter.take_back(TRAIN, jobs.s1)
    assert (jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)) == (None, "")
    assert KUBE_PLACED not in labels_of(jobs.nodes.get(jobs.s1))


def test_a_held_job_knows_its_nodes_when_all_events_are_forgotten(jobs: Jobs) -> None:
    jobs.adapter.hold(TRAIN, "its controller has not managed")
    assert jobs.world.pods() == []
    assert annotations_of(jobs.top())[KUBE_NODE_SET] == "ip-n1,ip-n2"
    found = jobs.adapter.find_on(jobs.n2)
    assert found is not None
    assert (found.job, found.state, found.nodes) == (TRAIN, JobState.HELD, ["n1", "n2"])
    assert jobs.adapter.find_on(jobs.s1) is None


def test_a_spare_for_a_job_that_was_taken_over_gets_the_label_that_its_ranks_ask_for(jobs: Jobs) -> None:
    jobs.adapter.hold(TRAIN, "its controller has not managed")
    jobs.starts_on("ip-n1", "ip-n2")
    jobs.adapter.resume(TRAIN, ["n1", "n2"], "token-1")
    jobs.controller()
    jobs.api.delete(POD, "train-workers-0-1-again", NAMESPACE, grace_s=0)
    jobs.rank("train-workers-0-1-third", "", "Pending")
    asked = {"spec": {"nodeSelector": {KUBE_PLACED: lease_value(TRAIN)}}}
    jobs.api.patch(POD, "train-workers-0-1-third", asked, NAMESPACE)
    jobs.adapter.supply(TRAIN, jobs.s1)
    assert labels_of(jobs.nodes.get(jobs.s1))[KUBE_PLACED] == lease_value(TRAIN)
    assert jobs.adapter.status(TRAIN).nodes == ["n1", "n2"]


def test_a_worker_that_dies_before_the_ranks_are_bound_leaves_no_lease_behind(jobs: Jobs) -> None:
    activities = JobActivities(
        jobs.adapter, jobs.inventory, QuarantineMarks(FakeFleet().ec2, jobs.marks), JobSettings(), jobs.clock
    )
    request = ResumeJob(job=TRAIN, nodes=["n1", "s1"], token="token-1")
    jobs.adapter.hold(TRAIN, "its controller has not managed")

    def dies() -> None:
        raise SystemExit("the worker is killed")

    jobs.clock.meanwhile = dies
    with pytest.raises(SystemExit):
        jobs.adapter.resume(TRAIN, ["n1", "s1"], "token-1")
    assert jobs.taints(jobs.s1, KUBE_LEASE) == lease_value(TRAIN)
    jobs.clock.meanwhile = jobs.controller
    jobs.starts_on("ip-n1", "ip-s1")
    assert attempt(2).run(activities.resume_job, request).run_token == "token-1"
    assert (jobs.taints(jobs.s1, KUBE_LEASE), jobs.taints(jobs.s1, KUBE_SPARE)) == (None, None)
    assert jobs.adapter.status(TRAIN).ranks_on == ["n1", "s1"]


def test_a_node_that_another_job_has_leased_is_supplied_and_resumed_onto_by_nobody_else(jobs: Jobs) -> None:
    jobs.adapter.supply("default/jobset/train", jobs.s1)
    jobs.job_set(name="other")
    with pytest.raises(PreconditionFailed, match="leased to job default"):
        jobs.adapter.supply("default/jobset/other", jobs.s1)


def test_a_job_that_cannot_be_told_where_to_start_is_not_stopped(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = {"containers": [{"name": "rank", "resources": {"limits": {GPU: "8"}}}]}
    jobs.api.create(JOB, {"metadata": {"name": "plain"}, "spec": {"template": {"spec": pod}}}, NAMESPACE)
    monkeypatch.setattr(jobs.api, "version", lambda: "v1.35.2-eks-1a2b3c4")
    with pytest.raises(CapabilityMissing, match=r"before Kubernetes 1\.36.*v1\.35\.2.*JobSet"):
        jobs.adapter.hold("default/job/plain", "why")
    found = jobs.api.get(JOB, "plain", NAMESPACE)
    assert found is not None
    assert "suspend" not in found["spec"]
    assert jobs.adapter.hold(TRAIN, "a JobSet may be moved on every release").state is JobState.HELD


def test_a_job_that_somebody_else_suspended_is_neither_held_nor_resumed(jobs: Jobs) -> None:
    jobs.api.patch(JOB_SET, "train", {"spec": {"suspend": True}}, NAMESPACE)
    with pytest.raises(NotOurs, match="somebody else"):
        jobs.adapter.hold(TRAIN, "why")
    with pytest.raises(PreconditionFailed, match="not held by Hotspare"):
        jobs.adapter.resume(TRAIN, ["n1", "n2"], "token-1")


PLACEMENT = Placement(KUBE_PLACED, "lease", {"key": KUBE_LEASE, "operator": "Equal", "value": "lease", "effect": "NoSchedule"})


@pytest.mark.parametrize("field", OVERRIDES)
def test_a_train_job_is_placed_in_the_field_that_its_release_knows(field: str) -> None:
    theirs = {
        "podSpecOverrides": {"targetJobs": [{"name": "node"}], "nodeSelector": {"a": "b"}},
        "podTemplateOverrides": {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}},
        "runtimePatches": {"manager": "kueue.x-k8s.io/manager"},
    }[field]
    top = {"metadata": {"name": "train"}, "spec": {"suspend": True, field: [theirs]}}
    family, kind = Family(top, {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {}}}]}}), TrainJobKind()
    for _ in range(2):
        patch = kind.place(family, PLACEMENT)["spec"]
        kept = {"suspend": True, field: patch[field]}
        assert kept[field][0] == theirs
        assert len(kept[field]) == 2
        family = Family({**top, "spec": kept}, family.child)
        assert kind.placed(family, PLACEMENT)
    assert not kind.placed(Family({**top, "spec": {"suspend": True, field: [theirs]}}, family.child), PLACEMENT)


def test_a_train_job_whose_release_keeps_no_placement_stays_held_and_says_so(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.adapter.hold(TRAIN, "its controller has not managed")
    monkeypatch.setattr(JobSetKind, "place", lambda *_: {"spec": {"unknownField": None}})
    with pytest.raises(CapabilityMissing, match=r"did not keep them.*kubectl patch jobsets train"):
        jobs.adapter.resume(TRAIN, ["n1", "n2"], "token-1")
    assert jobs.adapter.status(TRAIN).state is JobState.HELD
