"""Group runs in Kubernetes, by Jobs and by MPIJobs on Kubeflow's real training operator, with the rights of the manifests."""

from __future__ import annotations

import asyncio
import signal
import tomllib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.testing import ActivityEnvironment

from activities.burn_in import BurnInLauncher
from activities.clients.agent_access import AgentAccessTo
from activities.clients.kube_launcher import KubeLauncher
from activities.clients.kubernetes_connection import connect
from activities.clients.mpijob_launcher import MpiJobLauncher, mpi_job_name
from activities.inventory import Node
from activities.kubernetes import NODE, POD, KubernetesApi
from activities.leftovers import Leftovers
from activities.settings import AwsSettings
from activities.settings_access import AccessSettings
from activities.settings_burn_in import BurnInSettings
from activities.settings_jobs import KubernetesSettings
from checks.model import RUN_VARIABLE
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.activities.launcher_contract import LONG, LauncherContract, ended, until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
NAMES = ("node-1", "node-2")


class KubeWorld:
    """Two nodes of a lab that is reached by agent."""

    kind: type[KubeLauncher] | type[MpiJobLauncher] = KubeLauncher

    def __init__(self, lab: Lab, api: KubernetesApi, access: AccessSettings, kubernetes: KubernetesSettings) -> None:
        self.lab, self.api, self.access, self.kubernetes = lab, api, access, kubernetes
        self.access_to = AgentAccessTo(api, access, kubernetes, lambda: pytest.fail("nobody logs in"))
        self.nodes = [self._entry(name) for name in NAMES]

    def _entry(self, name: str) -> Node:
        found = self.lab.nodes[name]
        return Node(
            instance_id=found.instance_id, name=name, ip=found.ip, host=found.dns, instance_type=found.instance_type, gpus=8
        )

    def launcher(self, *, program: str = "", iterations: int = 20) -> BurnInLauncher:
        usual = BurnInSettings().command
        command = [program or "all_reduce_perf" if word == "all_reduce_perf" else word for word in usual[:-1]]
        settings = BurnInSettings(command=[*command, str(iterations)])
        return self.kind(self.api, self.access_to, self.access, self.kubernetes, settings)

    def working(self) -> set[str]:
        return {name for name, node in self.lab.nodes.items() if node.gpu_state()["processes"]}

    def pods(self) -> list[str]:
        """Names of the pods of runs."""
        found = self.api.list(POD, self.kubernetes.namespace, labels="training.kubeflow.org/operator-name=mpijob-controller")
        return sorted(str(pod["metadata"]["name"]) for pod in found)


class MpiJobWorld(KubeWorld):
    kind = MpiJobLauncher


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kube_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeWorld]:
    """A lab with the training operator; its own job is never started."""
    options = LabOptions(
        folder=tmp_path_factory.mktemp("lab"),
        nodes=2,
        spares=0,
        temporal=False,
        orchestrator="kubernetes",
        access="agent",
        job_kind="PyTorchJob",
        group_test_s=0.1,
    )
    async with Lab(options) as lab:
        table = tomllib.loads((lab.folder / "hotspare.toml").read_text())
        kubernetes = KubernetesSettings(**table["kubernetes"])
        api = await asyncio.to_thread(connect, kubernetes, AwsSettings(), lambda: pytest.fail("AWS is not asked"))
        yield KubeWorld(lab, api, AccessSettings(**table["access"]), kubernetes)
        api.close()


@pytest.fixture
def mpi_world(kube_world: KubeWorld) -> MpiJobWorld:
    return MpiJobWorld(kube_world.lab, kube_world.api, kube_world.access, kube_world.kubernetes)


class TestJobs(LauncherContract):
    @pytest.fixture
    def world(self, kube_world: KubeWorld) -> KubeWorld:
        return kube_world


class TestMpiJob(LauncherContract):
    @pytest.fixture
    def world(self, mpi_world: MpiJobWorld) -> MpiJobWorld:
        return mpi_world


async def test_each_node_has_one_worker_also_a_cordoned_one_and_no_pod_outlives_a_kill(mpi_world: MpiJobWorld) -> None:
    kube_name = await asyncio.to_thread(mpi_world.access_to.name_of, mpi_world.nodes[1])
    await asyncio.to_thread(mpi_world.api.patch, NODE, kube_name, {"spec": {"unschedulable": True}})
    launcher, run_id = mpi_world.launcher(iterations=LONG), "mpijob/1"
    try:
        await asyncio.to_thread(launcher.start, run_id, mpi_world.nodes, 600.0)
        await until(lambda: mpi_world.working() == set(NAMES))
        name = mpi_job_name(run_id)
        assert await asyncio.to_thread(mpi_world.pods) == [f"{name}-launcher", f"{name}-worker-0", f"{name}-worker-1"]
        await asyncio.to_thread(launcher.kill, run_id)
        await until(lambda: not mpi_world.working() and not mpi_world.pods())
        assert (await ended(launcher, run_id)).exit_status != 0
    finally:
        await asyncio.to_thread(mpi_world.api.patch, NODE, kube_name, {"spec": {"unschedulable": False}})


async def test_what_a_run_left_on_a_node_is_ended_there_by_a_pod(kube_world: KubeWorld) -> None:
    node = kube_world.lab.nodes["node-1"]
    ours = await node.start_work("all_reduce_perf", ["sleep", "infinity"], more={RUN_VARIABLE: "old/1"})
    theirs = await node.start_work("all_reduce_perf", ["sleep", "infinity"])
    asyncio.ensure_future(ours.wait()).add_done_callback(lambda _: node.end_work(ours))
    try:
        end = Leftovers(kube_world.access_to).end
        assert await asyncio.to_thread(ActivityEnvironment().run, end, "old/1", kube_world.nodes[:1]) == {}
        assert (ours.returncode, theirs.returncode) == (-signal.SIGTERM, None)
    finally:
        node.end_work(theirs)
        node.end_work(ours)
