"""Doctor on Kubernetes, the job, owners, places of our own parts and an open Temporal; and how its lines are shown."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode, ServiceClient

from activities.clients.fake_kubernetes import FakeKubernetes
from activities.errors import AccessRefused
from activities.inventory import Node
from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from activities.kubernetes import POD, Access, Kind
from activities.owners import Owner
from activities.settings_access import AccessSettings
from activities.settings_jobs import JobSettings, KubernetesSettings
from checks.model import Verdict
from tests.workers.fakes import node
from workers.cli import health_open
from workers.cli.health import Line, overall
from workers.cli.health_job import check_job, lines_of
from workers.cli.health_kubernetes import check_kubernetes, questions
from workers.cli.health_kubernetes import lines_of as kubernetes_lines
from workers.cli.health_nodes import check_head
from workers.cli.health_open import answers_outside, check_open, own_addresses
from workers.cli.health_owners import check_owners
from workers.cli.health_places import addresses_of, check_places
from workers.cli.health_shown import NODES_SHOWN, shown
from workers.settings import Settings
from workflows.decisions.settings import Mode, PolicySettings

IN_CLUSTER = KubernetesSettings(source="in-cluster", namespace="healing")
ACTS = Settings(policy=PolicySettings(mode=Mode.ACT), kubernetes=IN_CLUSTER)
NODES = [node(1), node(2)]


def worst(lines: Iterable[Line]) -> Line:
    """The line that decides."""
    return max(lines, key=lambda line: line.verdict.exit_status)


def api_with(*nodes: Node) -> FakeKubernetes:
    """A cluster that has these nodes."""
    api = FakeKubernetes()
    for one in nodes:
        api.add_node(one.name, one.instance_id)
    return api


class Wired:
    """A wiring with as much as these looks ask for."""

    def __init__(self, *, kubernetes: FakeKubernetes | None = None, jobs: Any = None, inventory: Any = None) -> None:
        self.kubernetes = kubernetes
        self.jobs = jobs
        self.inventory = inventory


# Kubernetes.


def test_every_right_is_asked_for_and_all_there_is_well() -> None:
    lines = kubernetes_lines(ACTS, api_with(*NODES), NODES)
    assert overall(lines) is Verdict.OK
    assert any("2 nodes known there" in line.text for line in lines)


@pytest.mark.parametrize(
    ("refused", "verdict", "words"),
    [
        (Access("patch", Kind("v1", "nodes", "nodes")), Verdict.CRITICAL, "patch nodes"),
        (Access("create", Kind("v1", "pods", "pods"), "", "eviction"), Verdict.CRITICAL, "create pods/eviction"),
        (Access("list", Kind("jobset.x-k8s.io/v1", "jobsets", "jobsets")), Verdict.WARN, "list jobsets.jobset.x-k8s.io"),
    ],
)
def test_a_right_that_lacks_is_named_as_kubectl_would(refused: Access, verdict: Verdict, words: str) -> None:
    api = api_with(*NODES)
    api.refused = {refused}
    line = worst(kubernetes_lines(ACTS, api, NODES))
    assert (line.verdict, words in line.text) == (verdict, True)
    assert "rbac.yaml" in line.do


def test_an_observed_cluster_is_not_asked_for_rights_to_change_and_pods_need_their_namespace() -> None:
    changes = {"patch", "create", "delete"}
    assert not {one.verb for one in questions(Settings(kubernetes=IN_CLUSTER))} & changes
    agents = ACTS.model_copy(update={"access": AccessSettings(kind="agent")})
    assert {one.namespace for one in questions(agents)} == {"", "healing"}
    assert {one.namespace for one in questions(ACTS)} == {""}


def test_a_node_that_kubernetes_does_not_know_is_named() -> None:
    line = worst(kubernetes_lines(ACTS, api_with(NODES[0]), NODES))
    assert (line.verdict, "no Node for node-2" in line.text) == (Verdict.WARN, True)


async def test_an_api_that_is_away_is_critical_and_no_kubernetes_is_no_line() -> None:
    api = api_with()
    api.down = True
    [line] = await check_kubernetes(ACTS, Wired(kubernetes=api), NODES)  # type: ignore[arg-type]
    assert line.verdict is Verdict.CRITICAL
    assert await check_kubernetes(Settings(), Wired(), NODES) == []  # type: ignore[arg-type]


# The job.

HEALTHY = JobStatus(job="train", state=JobState.RUNNING, nodes=["node-1", "node-2"], step=120, checkpoint_step=100)


class Jobs:
    """A job system with one job."""

    def __init__(self, status: JobStatus | None) -> None:
        self.status = status
        self.asked: list[str] = []

    def find_on(self, one: Node) -> JobStatus | None:
        self.asked.append(one.name)
        return self.status


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({}, Verdict.OK, ""),
        ({"checkpoint_step": None}, Verdict.WARN, "checkpoint_step"),
        ({"step": None}, Verdict.WARN, "job.progress"),
        ({"restarts_left": 2}, Verdict.WARN, "backoffLimit"),
        ({"restarts_left": 9}, Verdict.OK, ""),
        ({"warnings": ["its pods have restartPolicy Never"]}, Verdict.WARN, "change the job"),
        ({"state": JobState.UNKNOWN}, Verdict.UNKNOWN, "job.status"),
    ],
)
def test_what_keeps_a_job_from_coming_back_is_told(change: dict[str, Any], verdict: Verdict, words: str) -> None:
    line = worst(lines_of(Settings(), HEALTHY.model_copy(update=change)))
    assert (line.verdict, words in line.do) == (verdict, True)


def test_who_restarts_the_job_is_said() -> None:
    controlled = HEALTHY.model_copy(update={"restarted_by": RestartedBy.CONTROLLER, "controller": "JobSet train"})
    assert "JobSet train restarts it" in lines_of(Settings(), controlled)[0].text
    assert "Hotspare restarts it" in lines_of(Settings(), HEALTHY)[0].text


class Refused:
    """An inventory that AWS does not let us read."""

    def resolve(self, cluster: str, alias: str) -> Node:
        raise AccessRefused("EC2: describe instances: UnauthorizedOperation")


async def test_a_head_node_that_may_not_be_looked_up_is_told_as_such() -> None:
    settings = Settings(job=JobSettings(adapter="command", head="head"))
    lines = await check_head(settings, Wired(inventory=Refused()))  # type: ignore[arg-type]
    assert [(line.part, line.verdict) for line in lines] == [("head node", Verdict.CRITICAL)]
    assert "UnauthorizedOperation" in lines[0].text
    assert "AWS access" in lines[0].do


async def test_each_job_is_asked_for_once_and_none_is_no_proof() -> None:
    settings = Settings(job=JobSettings(adapter="command"))
    jobs = Jobs(HEALTHY)
    lines = await check_job(settings, Wired(jobs=jobs), NODES)  # type: ignore[arg-type]
    assert ([line.part for line in lines], jobs.asked) == (["job train"], ["node-1"])
    [line] = await check_job(settings, Wired(jobs=Jobs(None)), NODES)  # type: ignore[arg-type]
    assert (line.verdict, line.can_tell) == (Verdict.UNKNOWN, False)


# Owners.


def test_owners_are_told_with_the_rungs_that_are_not_there() -> None:
    owned = [
        node(1),
        *(node(n).model_copy(update={"owner": Owner.AUTO_MODE.value}) for n in (2, 3)),
        node(4).model_copy(update={"owner": Owner.PCS.value}),
        node(9, "head"),
    ]
    lines = check_owners(owned)
    assert [line.verdict for line in lines] == [Verdict.WARN, Verdict.OK, Verdict.OK]
    assert lines[0].text == "2 nodes of EKS Auto Mode; nothing may be done to them"
    assert any("POWER_CYCLE" in line.text for line in lines[1:])


# Places.


@pytest.mark.parametrize("alias", ["node-2", "node-2.cluster.internal", "10.0.0.2"])
async def test_a_part_that_runs_on_a_node_is_named(monkeypatch: pytest.MonkeyPatch, alias: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: alias)
    lines = await check_places(Settings(), Wired(), None, NODES)  # type: ignore[arg-type]
    assert [line.text for line in lines] == ["this process runs on node-2, which Hotspare may restart"]
    head = [NODES[0], NODES[1].model_copy(update={"role": "head"})]
    assert overall(await check_places(Settings(), Wired(), None, head)) is Verdict.OK  # type: ignore[arg-type]


async def test_pods_of_temporal_on_a_node_are_critical_and_agents_belong_there() -> None:
    api = api_with(*NODES)
    for name, label, component, place in (
        ("temporal-history-0", "temporal", "history", "node-1"),
        ("postgresql-0", "postgresql", "", "elsewhere"),
        ("hotspare-agent-x", "hotspare", "agent", "node-2"),
    ):
        labels = {"app.kubernetes.io/name": label, "app.kubernetes.io/component": component}
        api.put(POD, {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": place}}, "default")
    lines = await check_places(ACTS, Wired(kubernetes=api), None, NODES)  # type: ignore[arg-type]
    assert [(line.verdict, line.text) for line in lines] == [
        (Verdict.CRITICAL, "pod temporal-history-0 (temporal) runs on node-1, which Hotspare may restart")
    ]


def test_a_name_that_nobody_knows_has_no_address() -> None:
    assert addresses_of("no-such-host.invalid") == []
    assert "127.0.0.1" in addresses_of("localhost")


# Temporal, open or not.


async def test_a_server_on_loopback_alone_is_open_to_nobody_else(client: Client) -> None:
    line = await check_open(client)
    assert (line.verdict, "this machine alone" in line.text) == (Verdict.OK, True)


async def test_a_server_that_answers_from_outside_without_credentials_is_told(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outside(port: int, addresses: Sequence[str]) -> str:
        return "127.0.0.1"

    monkeypatch.setattr(health_open, "answers_outside", outside)
    line = await check_open(client)
    assert (line.verdict, "without credentials" in line.text) == (Verdict.WARN, True)
    assert "mTLS" in line.do


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RPCError("who are you", RPCStatusCode.UNAUTHENTICATED, b""), Verdict.OK),
        (RuntimeError("transport error: certificate required"), Verdict.OK),
        (RPCError("busy", RPCStatusCode.RESOURCE_EXHAUSTED, b""), Verdict.UNKNOWN),
    ],
)
async def test_a_server_that_refuses_who_shows_nothing_is_well(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: Verdict
) -> None:
    async def outside(port: int, addresses: Sequence[str]) -> str:
        return "127.0.0.1"

    async def refuse(config: object) -> ServiceClient:
        raise error

    monkeypatch.setattr(health_open, "answers_outside", outside)
    monkeypatch.setattr(ServiceClient, "connect", refuse)
    assert (await check_open(client)).verdict is verdict


async def test_a_port_of_this_machine_is_found_where_it_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await answers_outside(port, ["127.0.0.1"]) == "127.0.0.1"
    assert await answers_outside(port, ["127.0.0.1"]) == ""
    assert not any(health_open.is_loopback(address) for address in own_addresses())


# How it looks.


def test_thousands_of_nodes_are_a_screenful_and_the_ill_ones_are_named() -> None:
    well = [Line(f"node n{n}", Verdict.OK, "reached and probed, 8 GPUs") for n in range(2000)]
    ill = [Line(f"node i{n}", Verdict.UNKNOWN, "no answer", "try it") for n in range(NODES_SHOWN + 5)]
    one = [Line("node c", Verdict.CRITICAL, "gpu_lost", "report it")]
    kept = shown([*well[:1000], *ill, *one, *well[1000:]])
    assert len(kept) == NODES_SHOWN + 3
    texts = {line.text for line in kept}
    assert {"2000 reached and probed", "and 5 more like these", "gpu_lost"} <= texts


def test_what_cannot_be_told_spoils_no_verdict_and_what_could_not_be_read_does() -> None:
    nobody = Line("AWS permissions", Verdict.UNKNOWN, "cannot tell", "allow it", can_tell=False)
    assert overall([nobody]) is Verdict.OK
    assert overall([nobody, Line("node x", Verdict.UNKNOWN, "no answer", "try")]) is Verdict.UNKNOWN
