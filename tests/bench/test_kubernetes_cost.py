"""What a look at a job costs the Kubernetes API: requests, bytes and time, on a real API server with 1,000 nodes.

Measures and prints; asserts that a look at a small job reads neither all nodes nor all events, and what it found. Nodes are as
large as those of EKS (50 image names: 10 kB). There are no controllers: nodes, pods and events are written as these would have
them. `HOTSPARE_BENCH_NODES` makes another number of nodes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from activities.clients.kubernetes_api import KubernetesClient
from activities.clients.kubernetes_http import KubernetesHttp
from activities.inventory import Node
from activities.kubernetes import EVENT, JOB, NODE, POD, Object
from infra.lab.kube.assets import missing
from tests.activities.kubernetes_world import GPU, NAMESPACE
from tests.clusters.kube_jobs_rig import adapter_for, job_manifest
from tests.clusters.loop_plane import WORKER, Plane

NODES = int(os.environ.get("HOTSPARE_BENCH_NODES", "1000"))
SMALL, LARGE = 8, NODES // 2
IMAGES = [
    {"names": [f"111122223333.dkr.ecr.us-east-1.amazonaws.com/{'image' * 25}:{number}"], "sizeBytes": 1} for number in range(50)
]
WRITERS = 4
AT = "2026-01-01T00:00:00Z"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")
pytestmark = [
    pytest.mark.skipif(bool(missing(*PROGRAMS)), reason="the programs of a control plane are absent: make kube-assets"),
    pytest.mark.timeout(1800),
]


@dataclass
class Counted:
    """What went over the wire since the last look."""

    paths: list[str] = field(default_factory=list)
    bytes: int = 0

    def of_the_whole_cluster(self) -> list[str]:
        """The lists of all nodes, or of all events of a namespace or more."""
        return [path for path in self.paths if path.endswith(("/nodes", "/events"))]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count the requests of the product's client."""
    seen = Counted()
    real = KubernetesHttp._open

    def opened(self: KubernetesHttp, method: str, path: str, *rest: Any) -> Any:
        answer = real(self, method, path, *rest)
        seen.paths.append(path)
        read = answer.stream

        def stream(*arguments: Any, **named: Any) -> Iterator[bytes]:
            for chunk in read(*arguments, **named):
                seen.bytes += len(chunk)
                yield chunk

        answer.stream = stream  # type: ignore[method-assign]
        return answer

    monkeypatch.setattr(KubernetesHttp, "_open", opened)
    return seen


def test_a_look_at_a_job_reads_what_it_is_about(tmp_path: Path, counted: Counted) -> None:
    plane = Plane(tmp_path, controller_manager=False)
    admin, client = plane.client("admin"), plane.client(WORKER)
    try:
        nodes = [Node(instance_id=f"i-{number:05d}", name=f"node-{number}", gpus=8) for number in range(NODES)]
        small, large, free = nodes[:SMALL], nodes[SMALL : SMALL + LARGE], nodes[SMALL + LARGE :]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda node: admin.create(NODE, _node(node)), nodes))
            for name, ranks in (("small", small), ("large", large)):
                admin.create(JOB, {"metadata": {"name": name}, **job_manifest(len(ranks))}, NAMESPACE)
                list(pool.map(lambda place, name=name: _rank(admin, name, *place), enumerate(ranks)))
        adapter = adapter_for(client, nodes)

        print(f"\n{NODES} nodes, jobs of {SMALL} and {LARGE} ranks, {len(admin.list(EVENT, NAMESPACE))} events")
        _measure("all nodes, as one list", counted, lambda: client.list(NODE))
        _measure("all nodes, out of the server's memory", counted, lambda: client.list(NODE, cached=True))
        _measure("the scheduler's events", counted, lambda: client.list(EVENT, NAMESPACE, fields="reason=Scheduled"))
        found = _measure("find_on, first look", counted, lambda: adapter.find_on(small[0]))
        assert found is not None
        assert len(found.nodes) == SMALL
        seen = _measure("status of the small job", counted, lambda: adapter.status(f"{NAMESPACE}/job/small"))
        assert len(seen.ranks_on or []) == SMALL
        assert not counted.of_the_whole_cluster()
        _measure("find_on of a node of it", counted, lambda: adapter.find_on(small[1]))
        assert not counted.of_the_whole_cluster()
        _measure("status of the large job", counted, lambda: adapter.status(f"{NAMESPACE}/job/large"))
        seen = _measure("the same again within 10 s", counted, lambda: adapter.status(f"{NAMESPACE}/job/large"))
        assert not counted.of_the_whole_cluster()
        assert len(seen.nodes) == LARGE
        assert _measure("find_on of a node without a job", counted, lambda: adapter.find_on(free[0])) is None
        assert _measure("the same of another one at once", counted, lambda: adapter.find_on(free[1])) is None
        assert not counted.of_the_whole_cluster()
    finally:
        admin.close()
        client.close()
        plane.close()


def _measure(what: str, counted: Counted, look: Callable[[], Any]) -> Any:
    counted.paths.clear()
    counted.bytes = 0
    began = time.perf_counter()
    found = look()
    took = time.perf_counter() - began
    print(f"{what:40} {len(counted.paths):3} requests  {counted.bytes / 1000:9.0f} kB  {took * 1000:7.0f} ms")
    return found


def _node(node: Node) -> Object:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": AT, "lastTransitionTime": AT}
    status = {"conditions": [ready], "images": IMAGES, "capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}
    return {
        "metadata": {"name": f"ip-{node.name}"},
        "spec": {"providerID": f"aws:///us-east-1a/{node.instance_id}"},
        "status": status,
    }


def _rank(admin: KubernetesClient, job: str, number: int, node: Node) -> None:
    """A running rank of a Job, and the scheduler's event about it."""
    name = f"{job}-{number}-abcde"
    labels = {"batch.kubernetes.io/job-name": job, "job-name": job}
    pod = {**job_manifest(1)["spec"]["template"]["spec"], "nodeName": f"ip-{node.name}", "automountServiceAccountToken": False}
    admin.create(POD, {"metadata": {"name": name, "labels": labels}, "spec": pod}, NAMESPACE)
    container = {
        "name": "pytorch",
        "ready": True,
        "restartCount": 0,
        "image": "none",
        "imageID": "",
        "state": {"running": {"startedAt": AT}},
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": AT}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
    admin.patch(POD, name, {"status": status}, NAMESPACE, subresource="status")
    event = {
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": name},
        "reason": "Scheduled",
        "message": f"Successfully assigned {NAMESPACE}/{name} to ip-{node.name}",
    }
    admin.create(EVENT, event, NAMESPACE)
