"""A lab on a real Slurm for a test, with the product's own clients on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import tomlkit

from activities.inventory import Node
from activities.jobs.slurm import SlurmJobs
from activities.slurm_marks import SlurmMarks
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from infra.lab.slurm.cluster import SlurmCluster
from infra.lab.slurm.daemons import PACKAGES, installed
from infra.lab.slurm.slurm_job import TrainJob
from workers.settings import load_settings
from workers.wiring import Wiring


def needs_slurm() -> None:
    """Skip where Slurm is not installed; where HOTSPARE_REAL_CLUSTERS=1 asks for it, fail."""
    if installed():
        return
    if os.environ.get("HOTSPARE_REAL_CLUSTERS") == "1":
        pytest.fail(f"Slurm is not installed; apt-get install --no-install-recommends {PACKAGES}")
    pytest.skip("Slurm is not installed; make test-clusters asks for it")


class SlurmLab:
    """The lab, its Slurm, and Hotspare's adapter and marks over SSH on the head node."""

    def __init__(self, lab: Lab, wiring: Wiring) -> None:
        self.lab, self.wiring = lab, wiring
        self.cluster = cast(SlurmCluster, lab.orchestrator)
        self.job = cast(TrainJob, lab.job)
        self.adapter = cast(SlurmJobs, wiring._job_adapter)
        self.marks = cast(SlurmMarks, wiring._launcher_marks)

    async def node(self, name: str) -> Node:
        """The inventory's entry."""
        return await asyncio.to_thread(self.wiring.inventory.resolve, "", name)

    async def call(self, what: Callable[..., Any], *words: Any) -> Any:
        """Call a method of adapter or marks as an activity does: in a thread."""
        return await asyncio.to_thread(what, *words)

    async def scontrol(self, *words: str) -> None:
        """Do something to Slurm as a person; it has to succeed."""
        status, said = await self.cluster.daemons.ask("scontrol", *words)
        assert status == 0, said

    async def row(self, slurm_name: str) -> tuple[set[str], str]:
        """State words and reason of a node."""
        _, text = await self.cluster.daemons.ask("sinfo", "-N", "-h", "-n", slurm_name, "-O", "StateComplete:200,Reason:400")
        return set(text[:200].strip().upper().split("+")), text[200:].strip()

    async def until(self, slurm_name: str, true: Callable[[set[str]], bool]) -> None:
        """Wait until something holds for a node's state."""
        async with asyncio.timeout(60):
            while True:
                if true((await self.row(slurm_name))[0]):
                    return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def slurm_lab(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, flavour: str = "plain", **options: Any
) -> AsyncIterator[SlurmLab]:
    """Bring the lab up with its job running."""
    quick = {"nodes": 3, "spares": 1, "step_s": 0.05, "checkpoint_every": 10, "boot_s": 0.3, "temporal": False, **options}
    async with Lab(LabOptions(folder=folder / "lab", orchestrator="slurm", **quick)) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        file = lab.folder / "hotspare.toml"
        document: Any = tomlkit.parse(file.read_text())
        document["slurm"]["flavour"] = flavour
        file.write_text(tomlkit.dumps(document))
        wiring = Wiring(load_settings())
        try:
            await lab.job.start()
            yield SlurmLab(lab, wiring)
        finally:
            wiring.close()
