"""The launchers of group runs that reach nodes over SSH, and the fake one, keep the contract of all launchers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from temporalio.testing import ActivityEnvironment

from activities.burn_in import BurnInLauncher, judged
from activities.clients.fake_fleet import FakeFleet
from activities.clients.mpirun_launcher import MpirunLauncher
from activities.clients.torchrun_launcher import TorchrunLauncher
from activities.inventory import Node
from activities.leftovers import Leftovers
from activities.settings_burn_in import BurnInSettings
from checks.judges.nccl_output import read
from checks.judges.nccl_software import Software
from checks.model import RUN_VARIABLE, Verdict
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.activities.launcher_contract import LauncherContract, ended, until
from workers.settings import load_settings
from workers.wiring import Wiring


class LabWorld:
    """Two nodes of the lab, reached as the lab's own settings say."""

    def __init__(self, lab: Lab, wiring: Wiring, nodes: list[Node]) -> None:
        self.lab, self.wiring, self.nodes = lab, wiring, nodes

    def working(self) -> set[str]:
        return {name for name, node in self.lab.nodes.items() if node.gpu_state()["processes"]}


class MpirunWorld(LabWorld):
    def launcher(self, *, program: str = "", iterations: int = 20) -> BurnInLauncher:
        usual = BurnInSettings().command
        command = [program or "all_reduce_perf" if word == "all_reduce_perf" else word for word in usual[:-1]]
        settings = BurnInSettings(command=[*command, str(iterations)])
        return MpirunLauncher(lambda: self.wiring._access_to_alias("head"), settings)


class TorchrunWorld(LabWorld):
    def launcher(self, *, program: str = "", iterations: int = 20) -> BurnInLauncher:
        usual = BurnInSettings().torch_command
        command = [program or "torchrun" if word == "torchrun" else word for word in usual[:-1]]
        return TorchrunLauncher(self.wiring.access_to, BurnInSettings(torch_command=[*command, str(iterations)]))


class FakeWorld:
    """FakeFleet with its job held."""

    def __init__(self) -> None:
        self.fleet = FakeFleet()
        self.nodes = [self.fleet.node("node-1"), self.fleet.node("node-2")]

    def launcher(self, *, program: str = "", iterations: int = 20) -> BurnInLauncher:
        self.fleet.looks_per_run = 1 if iterations == 20 else 1_000_000
        self.fleet.absent_program = program
        return self.fleet

    def working(self) -> set[str]:
        going = [run_id for run_id, run in self.fleet.group_runs.items() if run.poll(run_id).exit_status is None]
        return {node.name for node in self.nodes} if going else set()


@pytest.fixture
async def lab_world(lab_options: LabOptions, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LabWorld]:
    async with Lab(lab_options) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        wiring = Wiring(load_settings())
        nodes = [await asyncio.to_thread(wiring.inventory.resolve, "", name) for name in ("node-1", "node-2")]
        yield LabWorld(lab, wiring, nodes)
        wiring.close()


class TestMpirun(LauncherContract):
    @pytest.fixture
    def world(self, lab_world: LabWorld) -> MpirunWorld:
        return MpirunWorld(lab_world.lab, lab_world.wiring, lab_world.nodes)

    async def test_the_run_tells_its_transport_and_its_software(self, world: MpirunWorld) -> None:
        launcher = world.launcher()
        await asyncio.to_thread(launcher.start, "log/1", world.nodes, 60.0)
        run = await ended(launcher, "log/1", world.nodes)
        assert judged(run, world.nodes, {}).transport == "efa"
        assert read(run.output)[0].software == Software(nccl="2.27.3", plugin="1.16.2")


class TestTorchrun(LauncherContract):
    @pytest.fixture
    def world(self, lab_world: LabWorld) -> TorchrunWorld:
        return TorchrunWorld(lab_world.lab, lab_world.wiring, lab_world.nodes)

    async def test_a_node_without_torchrun_ends_the_run_of_all_and_is_named(self, world: TorchrunWorld) -> None:
        (world.lab.nodes["node-2"].files.bin / "torchrun").unlink()
        launcher = world.launcher()
        await asyncio.to_thread(launcher.start, "torch/1", world.nodes, 600.0)
        run = await ended(launcher, "torch/1", world.nodes)
        result = judged(run, world.nodes, {})
        assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "could_not_run")
        assert "node-2 ended with status 127" in run.output
        await until(lambda: not world.working())


class TestFake(LauncherContract):
    @pytest.fixture
    def world(self) -> FakeWorld:
        return FakeWorld()


async def test_a_process_of_a_run_that_is_over_is_found_on_a_node_with_its_run_and_ended_there(lab_world: LabWorld) -> None:
    lab, wiring, nodes = lab_world.lab, lab_world.wiring, lab_world.nodes
    ours = await lab.nodes["node-1"].start_work("all_reduce_perf", ["sleep", "infinity"], more={RUN_VARIABLE: "old/1"})
    theirs = await lab.nodes["node-1"].start_work("all_reduce_perf", ["sleep", "infinity"])
    asyncio.ensure_future(ours.wait()).add_done_callback(lambda _: lab.nodes["node-1"].end_work(ours))
    seen = await asyncio.to_thread(wiring.gate.look, nodes[:1])
    runs = {one.pid: (one.name, one.run, bool(one.gpus)) for one in seen["node-1"].left}
    assert runs == {ours.pid: ("all_reduce_perf", "old/1", True), theirs.pid: ("all_reduce_perf", "", True)}
    failed = await asyncio.to_thread(ActivityEnvironment().run, Leftovers(wiring.access_to).end, "old/1", nodes)
    assert failed == {}
    assert (ours.returncode, theirs.returncode) == (-signal.SIGTERM, None)
