"""Nodes without SSH on a real control plane: agents from the DaemonSet report faults, Jobs pinned to nodes check them."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from activities.clients.agent_access import AgentAccessTo
from activities.clients.kube_launcher import KubeLauncher
from activities.clients.kubernetes_connection import connect
from activities.errors import CapabilityMissing, DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from activities.kubernetes import JOB, KubernetesApi
from activities.node_access import LOST, DetachedRun, NodeAccess
from activities.probing import ChecksArchive, Probe, ProbeWish
from activities.settings import AwsSettings
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import KubernetesSettings
from checks.archive import build_archive
from infra.lab.faults import Fault
from infra.lab.kube.cluster import KubernetesCluster
from infra.lab.lab import Lab
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from tests.workers.fakes import FakeGateway, FakeInventory, FakePager
from workers.intake.app import Intake
from workers.intake.delivery import Delivery
from workers.intake.server import bind, serve_intake
from workers.intake.token import TokenFile
from workers.intake.unknown import UnknownNodePager
from workers.sections import IntakeSettings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Cluster:
    """A lab whose nodes are reached by agent, and Hotspare's access to them."""

    def __init__(self, lab: Lab, api: KubernetesApi, access: AccessSettings, kubernetes: KubernetesSettings) -> None:
        self.lab, self.api, self.access_settings, self.namespace = lab, api, access, kubernetes.namespace
        self.kubernetes = kubernetes
        self.access_to = AgentAccessTo(api, access, kubernetes, lambda: pytest.fail("nobody logs in"))

    def node(self, name: str) -> Node:
        """The inventory entry of a lab node."""
        found = self.lab.nodes[name]
        return Node(
            instance_id=found.instance_id, name=name, ip=found.ip, host=found.dns, instance_type=found.instance_type, gpus=8
        )

    def access(self, name: str) -> NodeAccess:
        """The access to a lab node."""
        return self.access_to(self.node(name))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Two nodes."""
    options = LabOptions(
        folder=tmp_path_factory.mktemp("lab"), nodes=2, spares=0, temporal=False, orchestrator="kubernetes", access="agent"
    )
    async with Lab(options) as lab:
        table = tomllib.loads((lab.folder / "hotspare.toml").read_text())
        kubernetes = KubernetesSettings(**table["kubernetes"])
        api = await asyncio.to_thread(connect, kubernetes, AwsSettings(), lambda: pytest.fail("AWS is not asked"))
        yield Cluster(lab, api, AccessSettings(**table["access"]), kubernetes)
        api.close()


async def until_ended(access: NodeAccess, run_id: str) -> DetachedRun:
    """Poll until the run has a status."""
    while (run := await asyncio.to_thread(access.poll, run_id)).exit_status is None:
        assert run.known
        await asyncio.sleep(0.1)
    return run


async def until(true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def rebooted(cluster: Cluster, node: LabNode) -> None:
    """Restart a node, and wait until Kubernetes knows the new boot."""
    await node.reboot()
    access = cluster.access(node.name)

    def told() -> bool:
        try:
            return access.boot_id(5.0) == node.boot_id
        except NodeUnreachable:
            return False

    while not await asyncio.to_thread(told):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def test_a_command_runs_on_its_node_and_leaves_no_job(cluster: Cluster) -> None:
    access = cluster.access("node-1")
    answer = await asyncio.to_thread(access.run, ["sh", "-c", 'cat "$HOTSPARE_HOST_ROOT/etc/hostname"; exit 3'], 20.0)
    assert (answer.stdout, answer.exit_status) == ("node-1\n", 3)
    assert (await asyncio.to_thread(access.run, ["no-such-command"], 20.0)).exit_status == 127
    assert await asyncio.to_thread(cluster.api.list, JOB, cluster.namespace) == []


async def test_the_checks_answer_over_a_job_as_they_do_over_ssh(cluster: Cluster, tmp_path: Path) -> None:
    archive = build_archive()
    (tmp_path / "checks.tar.gz").write_bytes(archive.content)
    probe = Probe(ChecksArchive(tmp_path / "checks.tar.gz", archive.digest), cluster.access_settings)
    answer = await asyncio.to_thread(probe.run, cluster.access("node-1"), cluster.node("node-1"), ProbeWish())
    assert answer.boot_id == cluster.lab.nodes["node-1"].boot_id
    assert len(answer.gpus) == 8


async def test_a_run_that_takes_too_long_is_ended(cluster: Cluster) -> None:
    with pytest.raises(DeadlinePassed):
        await asyncio.to_thread(cluster.access("node-1").run, ["sleep", "600"], 1.0)


async def test_a_detached_run_is_started_once_and_ends_with_its_output(cluster: Cluster) -> None:
    access = cluster.access("node-1")
    command = ["all_reduce_perf", "-b", "1G", "-e", "1G", "-g", "8"]
    for _ in range(2):
        await asyncio.to_thread(access.start, "test/once", command, 60.0)
    run = await until_ended(access, "test/once")
    assert run.exit_status == 0
    assert "# Avg bus bandwidth" in run.output


async def test_a_killed_run_has_ended_and_stays_known(cluster: Cluster) -> None:
    access = cluster.access("node-1")
    await asyncio.to_thread(access.start, "test/killed", ["sleep", "600"], 600.0)
    await asyncio.to_thread(access.kill, "test/killed")
    assert (await until_ended(access, "test/killed")).exit_status not in (None, 0)


async def test_a_run_that_a_restart_ended_is_lost_and_the_new_boot_is_told(cluster: Cluster) -> None:
    node, access = cluster.lab.nodes["node-2"], cluster.access("node-2")
    before = await asyncio.to_thread(access.boot_id, 5.0)
    marker = node.root / "var/lib/hotspare/began"
    await asyncio.to_thread(access.start, "test/lost", ["sh", "-c", "touch began; sleep 600"], 600.0)
    await until(marker.exists)
    await rebooted(cluster, node)
    assert await asyncio.to_thread(access.boot_id, 5.0) != before
    assert (await until_ended(access, "test/lost")).exit_status == LOST


async def test_a_group_runs_as_pods_once_and_its_servers_and_keys_go_with_it(cluster: Cluster) -> None:
    launcher = KubeLauncher(cluster.api, cluster.access_to, cluster.access_settings, cluster.kubernetes, BurnInSettings())
    nodes = [cluster.node("node-1"), cluster.node("node-2")]
    for _ in range(2):
        await asyncio.to_thread(launcher.start, "group/1", nodes, 60.0)
    while (run := await asyncio.to_thread(launcher.poll, "group/1")).exit_status is None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert run.exit_status == 0, run.output
    assert "# Avg bus bandwidth" in run.output
    assert run.output.count("Rank ") == 16
    servers = [cluster.lab.nodes[name].root / "run/sshd/2222.json" for name in ("node-1", "node-2")]
    assert [server.exists() for server in servers] == [False, True]
    left = await asyncio.to_thread(cluster.api.list, JOB, cluster.namespace, labels="hotspare.dev/managed-group")
    assert len(left) == 1
    assert await kept_secret(cluster) == ["hotspare-intake"]


async def test_a_group_of_which_one_server_does_not_come_up_could_not_start_and_says_why(cluster: Cluster) -> None:
    server = cluster.lab.nodes["node-2"].root / "run/sshd/2222.json"
    server.unlink(missing_ok=True)
    server.mkdir(parents=True)  # where sshd would write that it listens
    launcher = KubeLauncher(cluster.api, cluster.access_to, cluster.access_settings, cluster.kubernetes, BurnInSettings())
    try:
        await asyncio.to_thread(launcher.start, "group/2", [cluster.node("node-1"), cluster.node("node-2")], 60.0)
        while (run := await asyncio.to_thread(launcher.poll, "group/2")).exit_status is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    finally:
        server.rmdir()
    assert run.exit_status != 0
    assert "connect to host node-2 port 2222: Connection refused" in run.output


async def kept_secret(cluster: Cluster) -> list[str]:
    """Names of the Secrets in Hotspare's namespace."""
    orchestrator = cluster.lab.orchestrator
    assert isinstance(orchestrator, KubernetesCluster)
    names = await orchestrator.plane.kubectl("--namespace", cluster.namespace, "get", "secrets", "-o", "name")
    return [name.removeprefix("secret/") for name in names.split()]


async def test_what_an_agent_cannot_do_is_refused(cluster: Cluster) -> None:
    access = cluster.access("node-1")
    assert access.capabilities() == {"run", "start", "put"}
    with pytest.raises(CapabilityMissing, match="restarted through EC2"):
        access.run(["sudo", "-n", "reboot"], 5.0)
    with pytest.raises(CapabilityMissing):
        next(access.follow_kernel_log())


async def test_a_fault_line_reaches_the_intake_from_the_daemon_sets_agent(cluster: Cluster) -> None:
    table = tomllib.loads((cluster.lab.folder / "hotspare.toml").read_text())["intake"]
    settings = IntakeSettings(**{**table, "token_file": cluster.lab.folder / table["token_file"]})
    gateway, inventory = FakeGateway(), FakeInventory(cluster.node("node-1"), cluster.node("node-2"))
    pager = UnknownNodePager("lab", FakePager(), 1.0)
    taking = Intake(Delivery("lab", inventory, gateway, gateway, pager, settings), TokenFile(settings.token_file), settings)
    stop, listening = asyncio.Event(), bind(settings)
    serving = asyncio.ensure_future(serve_intake(taking, listening, stop))
    try:
        cluster.lab.nodes["node-1"].inject(Fault(xid=79, gpu=3))
        await until(lambda: bool(gateway.reports))
    finally:
        stop.set()
        await serving
        listening.close()
    instance_id, start = gateway.reports[0]
    assert instance_id == cluster.lab.nodes["node-1"].instance_id
    assert start.report
    assert (start.report.source, start.report.xid) == ("agent", 79)


async def test_a_node_that_is_down_is_unreachable_whatever_is_asked(cluster: Cluster) -> None:
    node, access = cluster.lab.nodes["node-2"], cluster.access("node-2")
    await node.stop()

    def silent() -> bool:
        try:
            access.boot_id(5.0)
        except NodeUnreachable:
            return True
        return False

    while not await asyncio.to_thread(silent):  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    asked: list[Callable[[], object]] = [
        lambda: access.run(["true"], 5.0),
        lambda: access.start("test/down", ["true"], 5.0),
        lambda: access.poll("test/down"),
        lambda: access.kill("test/down"),
    ]
    for ask in asked:
        with pytest.raises(NodeUnreachable):
            await asyncio.to_thread(ask)
