"""Least privilege in Kubernetes: operations work with what the manifests grant, and without any one grant a named one fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.errors import HotspareError
from tests.activities.rbac import OBSERVER, RUN, WORKER, Grant, documents, grants_of
from tests.activities.rbac_cases import CASES, Desk

HOME = "hotspare"
"""Namespace of what Hotspare creates."""

NEEDED_BY: dict[str, dict[Grant, str]] = {
    OBSERVER: {
        Grant("nodes", "get"): "find_a_node",
        Grant("nodes", "list"): "find_a_node",
        Grant("pods", "list"): "find_the_job_of_a_node",
        Grant("events", "list"): "find_a_job_whose_pod_waits",
        Grant("leases.coordination.k8s.io", "get"): "see_that_a_kubelet_is_silent",
        Grant("jobs.batch", "get"): "look_at_a_Job",
        Grant("jobs.batch", "list"): "find_a_held_Job",
        Grant("jobsets.jobset.x-k8s.io", "get"): "look_at_a_JobSet",
        Grant("jobsets.jobset.x-k8s.io", "list"): "find_a_held_JobSet",
        Grant("pytorchjobs.kubeflow.org", "get"): "look_at_a_PyTorchJob",
        Grant("pytorchjobs.kubeflow.org", "list"): "find_a_held_PyTorchJob",
        Grant("trainjobs.trainer.kubeflow.org", "get"): "look_at_a_TrainJob",
        Grant("trainjobs.trainer.kubeflow.org", "list"): "find_a_held_TrainJob",
        Grant("workloads.kueue.x-k8s.io", "list"): "see_whether_kueue_decides",
        Grant("rebootnodes.janitor.dgxc.nvidia.com", "list"): "find_other_healers",
        Grant("deployments.apps", "list"): "have_karpenter_stand_back",
        Grant("nodeclaims.karpenter.sh", "list"): "give_a_node_back_to_karpenter",
    },
    WORKER: {
        Grant("nodes", "patch"): "quarantine",
        Grant("pods/eviction", "create"): "move_ranks_off",
        Grant("pods", "patch"): "supply_a_spare",
        Grant("pods", "delete"): "drain",
        Grant("jobs.batch", "patch"): "hold_a_Job",
        Grant("jobsets.jobset.x-k8s.io", "patch"): "hold_a_JobSet",
        Grant("pytorchjobs.kubeflow.org", "patch"): "hold_a_PyTorchJob",
        Grant("trainjobs.trainer.kubeflow.org", "patch"): "hold_a_TrainJob",
        Grant("nodeclaims.karpenter.sh", "delete"): "give_a_node_back_to_karpenter",
        Grant("jobs.batch", "create", HOME): "run_on_a_node",
        Grant("jobs.batch", "delete", HOME): "run_on_a_node",
        Grant("configmaps", "get", HOME): "put_a_file_on_a_node",
        Grant("configmaps", "create", HOME): "put_a_file_on_a_node",
        Grant("secrets", "create", HOME): "run_on_a_group",
        Grant("secrets", "delete", HOME): "run_on_a_group",
        Grant("mpijobs.kubeflow.org", "create", HOME): "run_on_a_group_as_an_mpi_job",
        Grant("mpijobs.kubeflow.org", "get", HOME): "run_on_a_group_as_an_mpi_job",
        Grant("mpijobs.kubeflow.org", "patch", HOME): "run_on_a_group_as_an_mpi_job",
    },
}
"""Subject -> what it is granted itself -> the operation that cannot do without. Workers have what observers have besides."""

ROWS = [(subject, grant) for subject, rows in NEEDED_BY.items() for grant in rows]


@pytest.mark.parametrize("case", CASES)
def test_an_operation_works_with_the_grants_of_a_worker(case: str, tmp_path: Path) -> None:
    desk = Desk(grants_of(WORKER), tmp_path)
    CASES[case](desk)
    assert desk.api.refused == set()


@pytest.mark.parametrize(("subject", "grant"), ROWS, ids=lambda one: str(one).replace("hotspare:", ""))
def test_without_one_grant_a_named_operation_fails(subject: str, grant: Grant, tmp_path: Path) -> None:
    desk = Desk(grants_of(WORKER) - {grant}, tmp_path)
    with pytest.raises((HotspareError, ApplicationError, AssertionError)):
        CASES[NEEDED_BY[subject][grant]](desk)
    assert desk.api.refused == {(grant.resource, grant.verb)}


def test_nothing_is_granted_that_no_operation_needs() -> None:
    assert grants_of(OBSERVER) == set(NEEDED_BY[OBSERVER])
    assert grants_of(WORKER) == {grant for rows in NEEDED_BY.values() for grant in rows}


def test_who_looks_changes_nothing(tmp_path: Path) -> None:
    assert {grant.verb for grant in grants_of(OBSERVER)} <= {"get", "list"}
    desk = Desk(grants_of(OBSERVER), tmp_path)
    looks = [name for name in CASES if name.startswith(("find", "look", "see"))]
    for name in looks:
        CASES[name](Desk(grants_of(OBSERVER), tmp_path))
    for name in CASES.keys() - set(looks):
        desk = Desk(grants_of(OBSERVER), tmp_path)
        with pytest.raises((HotspareError, ApplicationError)):
            CASES[name](desk)
        assert desk.api.refused


def test_a_service_account_of_a_worker_has_what_its_group_has() -> None:
    assert grants_of("hotspare") == grants_of(WORKER)
    assert grants_of("hotspare-observe") == grants_of(OBSERVER)


def test_a_run_on_a_node_reads_and_writes_configmaps_and_the_agent_has_no_access_at_all() -> None:
    assert grants_of(RUN) == {Grant("configmaps", verb, HOME) for verb in ("get", "create", "patch")}
    assert grants_of("hotspare-agent") == set()
    accounts = {one["metadata"]["name"]: one for one in documents() if one["kind"] == "ServiceAccount"}
    assert accounts["hotspare-agent"]["automountServiceAccountToken"] is False
