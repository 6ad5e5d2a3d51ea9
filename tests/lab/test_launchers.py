"""The launchers of group runs that reach nodes over SSH, and the fake one, keep the contract of all launchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.burn_in import BurnInLauncher
from activities.clients.mpirun_launcher import MpirunLauncher
from activities.inventory import Node
from activities.settings import BurnInSettings
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from tests.activities.launcher_contract import LauncherContract
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
