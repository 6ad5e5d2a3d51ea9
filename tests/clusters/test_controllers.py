"""The real job controllers make pods, and make them again: what the adapters of the job systems stand on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from infra.lab.kube.components import wait_for
from infra.lab.kube.control_plane import ControlPlane, KubectlFailed

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PODS = "/api/v1/namespaces/default/pods"
_ready = asyncio.Lock()


async def _with_controllers(plane: ControlPlane) -> None:
    """Start the controllers and four nodes, for the first test of this file that asks."""
    async with _ready:
        if not (plane.folder / "trainer.log").exists():
            await plane.add_kwok_nodes(4, taint=False)
            await plane.controllers.start_jobset()
            await plane.controllers.start_training_operator()
            await plane.controllers.start_trainer()


def _template(name: str) -> dict[str, Any]:
    container = {"name": name, "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {"spec": {"containers": [container]}}


async def _running(plane: ControlPlane, selector: str) -> list[dict[str, Any]]:
    listed = await plane.request("GET", f"{_PODS}?labelSelector={selector}")
    return [pod for pod in listed["items"] if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]


async def _fail(plane: ControlPlane, pod: str) -> None:
    patch = json.dumps({"status": {"phase": "Failed", "reason": "Evicted"}})
    await plane.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "--patch", patch)


async def test_a_jobset_is_restarted_as_a_whole_when_one_pod_fails(control_plane: ControlPlane) -> None:
    await _with_controllers(control_plane)
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": _template("rank")}
    job["template"]["spec"]["restartPolicy"] = "Never"  # type: ignore[index]
    spec = {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [{"name": "ranks", "replicas": 2, "template": {"spec": job}}]}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}, "spec": spec}
    await control_plane.apply(json.dumps(jobset | {"metadata": {"name": "train", "namespace": "default"}}))
    selector = "jobset.sigs.k8s.io/jobset-name=train"

    async def two_pods() -> bool:
        return len(await _running(control_plane, selector)) == 2

    await wait_for("the pods of the JobSet", two_pods)
    first = await _running(control_plane, selector)
    assert len({pod["spec"]["nodeName"] for pod in first}) == 2
    await _fail(control_plane, first[0]["metadata"]["name"])
    old = {pod["metadata"]["uid"] for pod in first}

    async def all_new() -> bool:
        uids = {pod["metadata"]["uid"] for pod in await _running(control_plane, selector)}
        return len(uids) == 2 and not uids & old

    await wait_for("the pods of the restarted JobSet", all_new)
    assert await control_plane.kubectl("get", "jobset", "train", "-o", "jsonpath={.status.restarts}") == "1"
    await control_plane.kubectl("delete", "jobset", "train", "--wait=false")


async def test_the_webhook_of_jobset_refuses_what_its_validation_refuses(control_plane: ControlPlane) -> None:
    await _with_controllers(control_plane)
    job = {"spec": {"template": _template("rank")}}
    policy = {"operator": "All", "targetReplicatedJobs": ["absent"]}
    spec = {"replicatedJobs": [{"name": "ranks", "template": job}], "successPolicy": policy}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    with pytest.raises(KubectlFailed, match="denied the request"):
        await control_plane.apply(json.dumps(jobset | {"metadata": {"name": "wrong", "namespace": "default"}}))


async def test_a_pytorchjob_gets_its_failed_worker_back(control_plane: ControlPlane) -> None:
    await _with_controllers(control_plane)
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": _template("pytorch")}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "torch", "namespace": "default"}}
    worker = replica | {"restartPolicy": "ExitCode"}
    await control_plane.apply(json.dumps(job | {"spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": worker}}}))
    selector = "training.kubeflow.org/job-name=torch"

    async def both_run() -> bool:
        return len(await _running(control_plane, selector)) == 2

    await wait_for("the pods of the PyTorchJob", both_run)
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await _running(control_plane, selector)}
    await control_plane.kubectl("delete", "pod", "torch-worker-0")

    async def replaced() -> bool:
        now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await _running(control_plane, selector)}
        return set(now) == set(old) and now["torch-worker-0"] != old["torch-worker-0"]

    await wait_for("another worker", replaced)
    await control_plane.kubectl("delete", "pytorchjob", "torch", "--wait=false")


async def test_a_trainjob_is_carried_out_by_a_jobset(control_plane: ControlPlane) -> None:
    await _with_controllers(control_plane)
    node = {"name": "node", "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}}}
    node["template"]["spec"] = {"template": _template("node")}  # type: ignore[index]
    runtime = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime"}
    runtime |= {"metadata": {"name": "lab", "namespace": "default", "labels": {"trainer.kubeflow.org/framework": "torch"}}}  # type: ignore[dict-item]
    spec = {"mlPolicy": {"numNodes": 2, "torch": {"numProcPerNode": 8}}, "template": {"spec": {"replicatedJobs": [node]}}}
    await control_plane.apply(json.dumps(runtime | {"spec": spec}))
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "v2", "namespace": "default"}}
    reference = {"name": "lab", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    await control_plane.apply_once_admitted(json.dumps(job | {"spec": {"runtimeRef": reference}}))

    async def two_nodes() -> bool:
        return len(await _running(control_plane, "jobset.sigs.k8s.io/jobset-name=v2")) == 2

    await wait_for("the pods of the TrainJob", two_nodes)
    owner = await control_plane.kubectl("get", "jobset", "v2", "-o", "jsonpath={.metadata.ownerReferences[0].kind}")
    assert owner == "TrainJob"


async def test_a_job_in_a_queue_of_kueue_starts_when_it_is_admitted(control_plane: ControlPlane) -> None:
    await _with_controllers(control_plane)
    await control_plane.controllers.start_kueue()
    version = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    flavor = {"name": "gpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 16}]}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}
    queue = {"name": "lab", "namespace": "default"}
    for manifest in (
        {"kind": "ResourceFlavor", "metadata": {"name": "gpu"}},
        {"kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
        {"kind": "LocalQueue", "metadata": queue, "spec": {"clusterQueue": "all"}},
    ):
        await control_plane.apply(json.dumps(version | manifest))
    template = _template("rank")
    template["spec"]["restartPolicy"] = "Never"
    metadata = {"name": "queued", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lab"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    await control_plane.apply(json.dumps(job))

    async def runs() -> bool:
        return len(await _running(control_plane, "job-name=queued")) == 1

    await wait_for("the pod of the admitted Job", runs)
    admitted = 'jsonpath={.items[*].status.conditions[?(@.type=="Admitted")].status}'
    assert await control_plane.kubectl("get", "workloads.kueue.x-k8s.io", "-o", admitted) == "True"
