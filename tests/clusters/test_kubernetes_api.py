"""The contract of Kubernetes, and of quarantine and drain there, on a real API server; and what only a real one does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from kubernetes.config import new_client_from_config

from activities.clients.kubernetes_api import KubernetesClient
from activities.clients.kubernetes_connection import connect
from activities.errors import AccessRefused, NodeUnreachable
from activities.kubernetes import CONFIG_MAP, DISRUPTION_BUDGET, JOB, NODE, POD, Access, labels_of
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from activities.names import KUBE_QUARANTINE
from activities.settings import AwsSettings
from activities.settings_jobs import KubernetesSettings
from tests.activities.kubernetes_contract import OURS, DrainContract, MarksContract, VerbsContract, seen
from tests.activities.kubernetes_world import GPU, NAMESPACE, KubeletClock, ListedNodes, World
from tests.clusters.loop_plane import OBSERVER, WORKER, Plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    # No kubelet renews these nodes: they stand as the tests say, for as long as a test takes.
    plane = Plane(tmp_path_factory.mktemp("plane"), node_grace_s=3600.0)
    yield plane
    plane.close()


@pytest.fixture
def world(plane: Plane) -> Iterator[World]:
    admin = plane.client("admin")

    def settled(budget: str) -> None:
        for _, item in admin.watch(DISRUPTION_BUDGET, NAMESPACE, fields=f"metadata.name={budget}", deadline_s=60):
            status = item.get("status", {})
            if status.get("observedGeneration") and status.get("expectedPods") == status.get("currentHealthy"):
                return
        raise TimeoutError(budget)

    world = World(admin, settled)
    yield world
    world.clear()
    admin.close()


@pytest.fixture
def worker(plane: Plane) -> Iterator[KubernetesClient]:
    """The product's client with the rights of its role."""
    client = plane.client(WORKER)
    yield client
    client.close()


class TestVerbs(VerbsContract):
    def test_a_list_of_several_pages_is_whole(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("activities.clients.kubernetes_api.PAGE", 2)
        for number in range(5):
            world.node(f"n{number}")
        assert [node["metadata"]["name"] for node in world.api.list(NODE)] == [f"ip-n{number}" for number in range(5)]
        assert {node["kind"] for node in world.api.list(NODE)} == {"Node"}


class TestMarks(MarksContract):
    """With the rights of the worker role."""

    def marks(self, world: World, *nodes: Any, api: Any = None) -> KubernetesMarks:
        return KubernetesMarks(KubernetesNodes(api or self.worker), ListedNodes(*nodes), GPU)

    @pytest.fixture(autouse=True)
    def _as_worker(self, worker: KubernetesClient) -> None:
        self.worker = worker


class TestDrain(DrainContract):
    """With the rights of the worker role; the world around it is the administrator's."""

    @pytest.fixture(autouse=True)
    def _as_worker(self, worker: KubernetesClient) -> None:
        self.drains_as = worker


def test_who_observes_changes_nothing(plane: Plane, world: World) -> None:
    node = world.node("n1")
    world.pod("p1", "ip-n1")
    observer = plane.client(OBSERVER)
    marks = KubernetesMarks(KubernetesNodes(observer), ListedNodes(node), GPU)
    assert marks.read(node) is None
    with pytest.raises(AccessRefused, match=r"infra/kubernetes"):
        marks.write(node, OURS)
    with pytest.raises(AccessRefused):
        observer.evict("p1", NAMESPACE)
    with pytest.raises(AccessRefused):
        observer.delete(POD, "p1", NAMESPACE)
    observer.close()
    assert KUBE_QUARANTINE not in str(seen(world.api, "ip-n1"))


def test_the_worker_may_do_what_it_does_and_nothing_beside(worker: KubernetesClient) -> None:
    may = [Access("patch", NODE), Access("create", POD, subresource="eviction"), Access("delete", POD), Access("patch", JOB)]
    may += [Access("create", JOB, "hotspare"), Access("create", CONFIG_MAP, "hotspare")]
    may_not = [
        Access("delete", NODE),
        Access("create", POD),
        Access("create", JOB, NAMESPACE),
        Access("get", CONFIG_MAP, "kube-system"),
    ]
    assert [worker.allowed(question) for question in may] == [True] * len(may)
    assert [worker.allowed(question) for question in may_not] == [False] * len(may_not)


def test_a_token_that_is_not_known_is_refused(plane: Plane, tmp_path: Path) -> None:
    text = plane.real.kubeconfig(WORKER).read_text().replace(plane.real.token(WORKER), "unknown")
    file = tmp_path / "config"
    file.write_text(text)
    client = KubernetesClient(new_client_from_config(str(file), persist_config=False), 20.0)
    with pytest.raises(AccessRefused, match="token is not known"):
        client.list(NODE)
    client.close()


class Eks(BaseHTTPRequestHandler):
    """Answers DescribeCluster with where the control plane is."""

    answer: ClassVar[bytes] = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_eks_cluster_is_found_by_name_and_believed_by_its_certificate(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server knows no tokens of AWS; that it refuses ours shows that it was reached, verified and sent one."""
    authority = base64.b64encode(plane.real.ca_file.read_bytes()).decode()
    Eks.answer = json.dumps({"cluster": {"endpoint": plane.real.url, "certificateAuthority": {"data": authority}}}).encode()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), Eks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        aws = AwsSettings(region="us-east-1", endpoint_url=f"http://127.0.0.1:{server.server_port}")
        client = connect(KubernetesSettings(source="eks", eks_cluster="lab"), aws, lambda: boto3.session.Session())
        with pytest.raises(AccessRefused, match="token is not known there") as refused:
            client.list(NODE)
        client.close()
        server.shutdown()
    assert "k8s-aws-v1" not in str(refused.value)


class TestRestarts:
    """The API server goes and comes back. These are last, because controllers find it again only after a while."""

    def test_a_watch_outlasts_a_restart_of_the_api_server(self, plane: Plane, world: World) -> None:
        world.node("n1")
        events = world.api.watch(NODE, fields="metadata.name=ip-n1", deadline_s=120)
        assert next(events)[0] == "ADDED"
        plane.do(plane.real.restart_api_server())
        world.api.patch(NODE, "ip-n1", {"metadata": {"labels": {"after": "restart"}}})
        assert any(labels_of(item).get("after") == "restart" for kind, item in events if kind)
        events.close()  # type: ignore[attr-defined]

    def test_a_watch_tells_of_what_went_while_it_saw_nothing(self, plane: Plane, world: World) -> None:
        world.node("n1")
        world.pod("p1", "ip-n1")
        events = world.api.watch(POD, NAMESPACE, deadline_s=120)
        assert next(events)[0] == "ADDED"
        world.api.delete(POD, "p1", NAMESPACE, grace_s=0)
        plane.do(plane.real.restart_api_server())
        assert next(kind for kind, item in events if kind == "DELETED") == "DELETED"
        events.close()  # type: ignore[attr-defined]

    def test_an_api_server_that_is_away_does_not_answer_in_words(self, plane: Plane, world: World) -> None:
        plane.do(plane.real.stop_api_server())
        try:
            with pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1.*does not answer"):
                world.api.list(NODE)
        finally:
            plane.do(plane.real.start_api_server())
        assert world.api.version().startswith("v1.")

    def test_an_api_server_that_restarts_in_the_middle_only_takes_time(self, plane: Plane, world: World) -> None:
        contract = DrainContract()
        node = contract.quarantined(world)
        world.pod("rank-0", "ip-n1")
        clock = KubeletClock(world, alive=False)
        away = iter([True])

        def meanwhile() -> None:
            if next(away, False):
                plane.do(plane.real.stop_api_server())
            elif clock.at == 3.0:
                plane.do(plane.real.start_api_server())
            elif clock.at > 3.0:
                world.kubelets_end()

        clock.meanwhile = meanwhile
        assert "1 pod moved" in contract.drain(world, node, clock).said
        assert world.pods() == []

    def test_a_watch_that_has_expired_begins_anew(self, plane: Plane, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.node("n1")
        plane.do(plane.real.restart_api_server())
        client, lists = world.api, []
        assert isinstance(client, KubernetesClient)
        real = client._list

        def list_all(*selectors: Any) -> Any:
            items, version = real(*selectors)
            lists.append(version)
            return items, "1" if len(lists) == 1 else version  # "1": before its start, which it does not remember

        monkeypatch.setattr(client, "_list", list_all)
        events = client.watch(NODE, fields="metadata.name=ip-n1", deadline_s=60)
        assert [next(events)[0] for _ in range(2)] == ["ADDED", "ADDED"]
        client.patch(NODE, "ip-n1", {"metadata": {"labels": {"a": "1"}}})
        assert any(labels_of(item).get("a") == "1" for kind, item in events if kind == "MODIFIED")
        assert len(lists) == 2
        events.close()  # type: ignore[attr-defined]
