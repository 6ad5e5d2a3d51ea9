"""A lab on Slurm that is killed leaves no daemon, no job step and no folder of sockets behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from infra.lab.processes import PROC, environment_of
from tests.clusters.slurm_lab import needs_slurm

OWNER = """
import asyncio, sys
from pathlib import Path
from infra.lab.lab import Lab
from infra.lab.options import LabOptions

async def main():
    options = LabOptions(folder=Path(sys.argv[1]), orchestrator="slurm", nodes=2, spares=0, boot_s=0.3, temporal=False)
    async with Lab(options) as lab:
        await lab.job.start()
        print(lab.orchestrator.daemons.run, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

DAEMONS = {"munged": 1, "slurmctld": 1, "slurmd": 2}


def of_slurm(folder: Path) -> dict[int, str]:
    """The programs that have a log of this lab's Slurm open, and those of its job, by process id."""
    found: dict[int, str] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name = (entry / "comm").read_text().strip()
            files = [os.readlink(file) for file in (entry / "fd").iterdir()]
        except OSError:
            continue
        logs = any(file.startswith(str(folder / "slurm" / "log")) for file in files)
        if logs or f"SLURM_CONF={folder / 'slurm' / 'slurm.conf'}".encode() in environment_of(entry):
            found[int(entry.name)] = name
    return found


async def test_a_killed_lab_leaves_nothing_of_slurm(tmp_path: Path) -> None:
    needs_slurm()
    folder = tmp_path / "lab"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(folder)), stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert owner.stdout is not None
        async with asyncio.timeout(120):
            run = Path((await owner.stdout.readline()).decode().strip())
        names = sorted(of_slurm(folder).values())
        assert {name: names.count(name) for name in DAEMONS} == DAEMONS
        assert {"srun", "slurmstepd"} <= set(names)
        assert run.is_dir()
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    async with asyncio.timeout(60):
        while of_slurm(folder) or run.exists():  # noqa: ASYNC110  (processes of others tell nobody that they end)
            await asyncio.sleep(0.1)
