"""The lab on a real control plane: its nodes are Nodes, their pods are processes, its job is restarted by its real controller."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from activities.kubernetes import instance_id_of
from activities.names import KUBE_CHECKPOINT_STEP, KUBE_SPARE, KUBE_STEP
from infra.lab.faults import Fault
from infra.lab.kube.cluster import KubernetesCluster
from infra.lab.kube.kube_job import KubeJob
from infra.lab.kube.nodes import GPU, kube_name
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from infra.lab.processes import processes_with

pytestmark = pytest.mark.timeout(300)

PODS = "/api/v1/namespaces/default/pods"


class Reach:
    """A lab on Kubernetes and the administrator's view of it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        assert isinstance(lab.orchestrator, KubernetesCluster)
        self.plane = lab.orchestrator.plane

    async def node(self, name: str) -> dict[str, Any] | None:
        """The Node object of a lab node."""
        listed = await self.plane.request("GET", "/api/v1/nodes")
        wanted = self.lab.nodes[name].instance_id
        return next((one for one in listed["items"] if instance_id_of(one) == wanted), None)

    async def ready(self, name: str) -> str:
        """Status of the node's condition Ready."""
        found = await self.node(name)
        assert found is not None
        return str(next(one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready"))

    async def allocatable(self, name: str) -> str:
        """How many GPUs of the node can be had."""
        found = await self.node(name)
        assert found is not None
        return str(found["status"]["allocatable"][GPU])

    async def pod(self, name: str) -> dict[str, Any] | None:
        """A pod, None when it is gone."""
        listed = await self.plane.request("GET", f"{PODS}?fieldSelector=metadata.name%3D{name}")
        return next(iter(listed["items"]), None)

    async def phase(self, name: str) -> str:
        """Phase of a pod."""
        found = await self.pod(name)
        return str((found or {}).get("status", {}).get("phase"))

    async def run(self, name: str, script: str, node: str = "node-1", **spec: Any) -> None:
        """Make a pod that runs a shell script on a node."""
        container = {"name": "main", "image": "any", "command": ["/bin/sh", "-c", script], **spec.pop("container", {})}
        spec = {"restartPolicy": "Never", "nodeName": kube_name(self.lab.nodes[node]), **spec, "containers": [container]}
        await self.plane.request(
            "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": name}}, "spec": spec}
        )

    async def exit_code(self, name: str) -> int:
        """Exit code of a pod's container."""
        found = await self.pod(name)
        assert found is not None
        return int(found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])

    def file(self, path: str, node: str = "node-1") -> Path:
        """A file on a node."""
        return self.lab.nodes[node].root / path


async def until(look: Callable[[], Awaitable[object]], wanted: object = True) -> None:
    """Wait until a look at the cluster gives what is wanted; the last look is shown when it never does."""
    end = asyncio.get_running_loop().time() + 60
    seen = await look()
    while seen != wanted and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.1)
        seen = await look()
    assert seen == wanted


@asynccontextmanager
async def lab_of(folder: Path, **options: Any) -> AsyncIterator[Reach]:
    """Bring up a lab on Kubernetes."""
    sizes = {"nodes": 2, "spares": 1, "temporal": False, "boot_s": 0.5, "step_s": 0.05, "checkpoint_every": 5}
    async with Lab(LabOptions(folder=folder / "lab", orchestrator="kubernetes", **{**sizes, **options})) as lab:
        yield Reach(lab)


async def test_lab_nodes_are_nodes_that_follow_what_happens_to_their_machine(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as reach:
        lab = reach.lab
        node, spare = await reach.node("node-1"), await reach.node("spare-1")
        assert node is not None
        assert spare is not None
        assert node["metadata"]["name"].endswith(".ec2.internal")
        assert node["spec"]["providerID"] == f"aws:///us-east-1a/{lab.nodes['node-1'].instance_id}"
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "p5.48xlarge"
        assert node["status"]["nodeInfo"]["bootID"] == lab.nodes["node-1"].boot_id
        assert [taint["key"] for taint in spare["spec"]["taints"]] == [KUBE_SPARE]
        assert await reach.node("head") is None
        for name in ("node-1", "node-2", "spare-1"):
            await until(lambda name=name: reach.ready(name), "True")  # type: ignore[misc]

        await lab.inject("node-2", Fault(xid=79, cure="reboot"))
        await until(lambda: reach.allocatable("node-2"), "7")
        boot = lab.nodes["node-2"].boot_id
        await lab.nodes["node-2"].stop()
        await until(lambda: reach.ready("node-2"), "Unknown")
        await lab.nodes["node-2"].start()
        await until(lambda: reach.ready("node-2"), "True")
        await until(lambda: reach.allocatable("node-2"), "8")
        after = await reach.node("node-2")
        assert after is not None
        assert after["status"]["nodeInfo"]["bootID"] == lab.nodes["node-2"].boot_id != boot

        await lab.inject("node-1", Fault(hang=True))
        await until(lambda: reach.ready("node-1"), "Unknown")
        await lab.cure("node-1")
        await until(lambda: reach.ready("node-1"), "True")

        await lab.nodes["spare-1"].terminate()
        await until(lambda: reach.node("spare-1"), None)


async def test_a_pod_is_a_process_with_its_status_exit_code_environment_and_files(tmp_path: Path) -> None:
    async with lab_of(tmp_path, nodes=1, spares=0) as reach:
        account = "/var/run/secrets/kubernetes.io/serviceaccount"
        reach.file("data").mkdir()
        await reach.plane.request(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "said"}, "data": {"word": "hello"}},
        )
        await reach.run(
            "writes",
            f'echo "$WORD $LABEL $NODE $ROOT" >/host/data/out; cat {account}/token >/host/data/token; '
            f"test -s {account}/ca.crt && exit 3",
            volumes=[{"name": "host", "hostPath": {"path": "/"}}],
            container={
                "env": [
                    {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "said", "key": "word"}}},
                    {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "ROOT", "value": "/host"},
                ],
                "volumeMounts": [{"name": "host", "mountPath": "/host"}],
            },
        )
        await until(lambda: reach.phase("writes"), "Failed")
        assert await reach.exit_code("writes") == 3
        node = reach.lab.nodes["node-1"]
        assert reach.file("data/out").read_text().split() == ["hello", "writes", kube_name(node), str(node.root)]
        assert reach.file("data/token").read_text().count(".") == 2

        await reach.run("ends", "exit 0")
        await until(lambda: reach.phase("ends"), "Succeeded")
        await reach.run("absent", "", container={"command": ["no-such-program"]})
        await until(lambda: reach.phase("absent"), "Failed")
        assert await reach.exit_code("absent") == 128
        again = 'test -e "$HOME/second" || { touch "$HOME/second"; exit 1; }'
        await reach.run("retries", again, restartPolicy="OnFailure")
        await until(lambda: reach.phase("retries"), "Succeeded")
        found = await reach.pod("retries")
        assert found is not None
        assert found["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_deleted_pod_has_its_grace_and_then_no_process(tmp_path: Path) -> None:
    async with lab_of(tmp_path, nodes=1, spares=0) as reach:
        polite = 'trap "touch $HOME/told; exit 0" TERM; touch $HOME/up; while :; do sleep 0.05; done'
        await reach.run("polite", polite, terminationGracePeriodSeconds=30)
        await reach.run("stubborn", 'trap "" TERM; setsid sleep 1000 & sleep 1000', terminationGracePeriodSeconds=1)
        await until(lambda: reach.phase("polite"), "Running")
        await until(lambda: reach.phase("stubborn"), "Running")
        found = await reach.pod("stubborn")
        assert found is not None
        marker = f"LAB_POD_UID={found['metadata']['uid']}".encode()
        assert processes_with(marker)
        await until(lambda: _there(reach.file("home/hotspare/up")))
        for name in ("polite", "stubborn"):
            await reach.plane.request("DELETE", f"{PODS}/{name}")
        await until(lambda: reach.pod("polite"), None)
        assert reach.file("home/hotspare/told").exists()
        await until(lambda: reach.pod("stubborn"), None)
        assert processes_with(marker) == []


async def _there(path: Path) -> bool:
    return path.exists()


async def test_pods_of_a_node_that_went_down_are_told_of_when_it_is_back_and_an_api_server_may_restart(tmp_path: Path) -> None:
    async with lab_of(tmp_path, nodes=1, spares=0) as reach:
        await reach.run("lost", "sleep 1000")
        await until(lambda: reach.phase("lost"), "Running")
        await reach.plane.stop_api_server()
        await reach.lab.nodes["node-1"].reboot()
        await reach.plane.start_api_server()
        await until(lambda: reach.phase("lost"), "Failed")
        assert await reach.exit_code("lost") == 137
        await reach.run("next", "exit 0")
        await until(lambda: reach.phase("next"), "Succeeded")


async def test_a_node_with_a_lost_gpu_takes_no_pod_that_asks_for_all(tmp_path: Path) -> None:
    async with lab_of(tmp_path, nodes=1, spares=0) as reach:
        gpus = {"resources": {"limits": {GPU: 8}}}
        await reach.run("works", "sleep 1000", container=gpus)
        await until(lambda: reach.phase("works"), "Running")
        assert [one["name"] for one in reach.lab.nodes["node-1"].gpu_state()["processes"]] == ["sh"]
        await reach.lab.inject("node-1", Fault(xid=79, cure="reboot"))
        await until(lambda: reach.phase("works"), "Failed")
        assert await reach.exit_code("works") == 137
        await until(lambda: reach.allocatable("node-1"), "7")
        await reach.run("refused", "sleep 1000", container=gpus)
        await until(lambda: reach.phase("refused"), "Failed")
        found = await reach.pod("refused")
        assert found is not None
        assert found["status"]["reason"] == "UnexpectedAdmissionError"


@pytest.mark.parametrize("kind", ["Job", "JobSet", "PyTorchJob", "TrainJob"])
async def test_the_job_is_restarted_by_its_controller_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    async with lab_of(tmp_path, job_kind=kind) as reach:
        job = reach.lab.job
        assert isinstance(job, KubeJob)
        await job.start()
        await job.wait_for_checkpoint(5)
        assert job.status()["state"] == "RUNNING"
        assert sorted(job.status()["nodes"]) == ["node-1", "node-2"]
        await until(lambda: _annotated(reach))
        await reach.lab.inject("node-2", Fault(xid=94, cure="reboot"))  # kills the rank, leaves the node
        async with asyncio.timeout(120):
            await job.wait_for_resumes(1)
            checkpoint = job.checkpoint_step
            await job.wait_for_step(checkpoint + 1)
        status = job.status()
        assert status["restarted_by"] == "controller"
        assert checkpoint >= 5
        assert len(status["resumes"]) == 1
        assert sorted(status["resumes"][0]["nodes"]) == ["node-1", "node-2"]


async def _annotated(reach: Reach) -> bool:
    listed = await reach.plane.request("GET", PODS)
    annotations = [pod["metadata"].get("annotations") or {} for pod in listed["items"]]
    return any(int(one.get(KUBE_STEP, 0)) >= int(one.get(KUBE_CHECKPOINT_STEP, 0)) > 0 for one in annotations)


async def test_a_rank_whose_node_is_gone_is_evicted_and_started_on_a_node_that_is_free(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as reach:
        job = reach.lab.job
        assert isinstance(job, KubeJob)
        await job.start()
        await job.wait_for_checkpoint(5)
        await reach.lab.nodes["node-2"].stop()
        await job.wait_for_state("STOPPED")
        spare = kube_name(reach.lab.nodes["spare-1"])
        await reach.plane.kubectl("taint", "node", spare, f"{KUBE_SPARE}:NoSchedule-")
        async with asyncio.timeout(150):
            await job.wait_for_resumes(1)
            await job.wait_for_step(job.checkpoint_step + 1)
        assert sorted(job.status()["nodes"]) == ["node-1", "spare-1"]


async def test_nodes_without_machines_stand_beside_those_of_the_lab(tmp_path: Path) -> None:
    async with lab_of(tmp_path, nodes=1, spares=0, kwok_nodes=20) as reach:
        await reach.lab.job.start()
        listed = await reach.plane.request("GET", "/api/v1/nodes")
        assert len(listed["items"]) == 21
        assert reach.lab.job.status()["nodes"] == ["node-1"]


async def test_a_lab_on_kubernetes_comes_up_and_goes_down_as_a_process(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    up = await _hotspare("lab", "up", "--orchestrator", "kubernetes", "--nodes", "1", "--spares", "0", "--folder", str(folder))
    try:
        status = json.loads(await _hotspare("lab", "status", "--json", "--folder", str(folder)))
        assert status["job"]["state"] == "RUNNING"
        assert status["orchestrator"]["job_kind"] == "Job"
        assert "KUBECONFIG=" in up
    finally:
        await _hotspare("lab", "down", "--folder", str(folder))
    assert processes_with(f"HOME={folder / 'kubernetes'}".encode()) == []


async def _hotspare(*arguments: str) -> str:
    """Run a command to its end and return what it printed; it has to succeed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workers.launch",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "300"},
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    return printed
