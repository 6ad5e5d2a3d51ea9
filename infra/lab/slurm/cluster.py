"""Slurm under the lab: real daemons, lab nodes as its nodes, the job's ranks as their work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from activities.settings_burn_in import BurnInSettings
from infra.lab.fleet import HEAD
from infra.lab.gathered_test import GatheredTest
from infra.lab.node import LabNode
from infra.lab.options import LabOptions
from infra.lab.orchestrators import LabJob, Tables
from infra.lab.slurm import files
from infra.lab.slurm.daemons import SlurmDaemons, free_ports
from infra.lab.slurm.slurm_job import TrainJob

if TYPE_CHECKING:
    from infra.lab.lab import Lab

WITHOUT_MPI = [word for word in BurnInSettings().srun_command if not word.startswith("--mpi=")]
"""Debian's Slurm is built without PMIx, and what the lab's nodes run needs none."""


class SlurmCluster:
    """Orchestrator `slurm`. slurmctld runs outside the head node and outlives its reboot."""

    job: LabJob

    def __init__(self, lab: Lab, options: LabOptions) -> None:
        self._lab, self._options = lab, options
        self.daemons = SlurmDaemons(lab.folder / "slurm")
        self.nodes: dict[str, LabNode] = {name: node for name, node in lab.nodes.items() if node.role != "head"}
        """Lab nodes by Slurm's names."""
        self._train = TrainJob(self.daemons, self.nodes, lab.folder / "shared", options)
        self.job = self._train

    async def start(self) -> None:
        """Write the files and bring up the daemons."""
        daemons = self.daemons
        controller, *ports = free_ports(len(self.nodes) + 1)
        by_name = dict(zip(self.nodes, ports, strict=True))
        files.write_conf(daemons.conf, daemons.run, daemons.socket, controller, self.nodes, by_name)
        head = self._lab.nodes[HEAD]
        files.write_batch_script(self._train.script, self._desk_file(head), daemons.folder / "train.out", self._options)
        files.write_head_commands(head.files.bin, daemons.conf, self._desk_file(head))
        self._lab.offer("slurm-rank", self._train.run_rank)
        self._lab.offer("srun-member", GatheredTest(self._lab.group_test, lambda name: self.nodes[name].name).join)
        await daemons.start(self.nodes)

    def _desk_file(self, head: LabNode) -> Path:
        return head.root / "var/lib/lab/desk.json"

    def take_over(self, slurm_name: str, node: LabNode) -> None:
        """Put another lab node behind a Slurm node."""
        self.nodes[slurm_name] = node
        self.daemons.mind(slurm_name, node)

    async def close(self) -> None:
        """Cancel the job and end the daemons."""
        await self.job.close()
        await self.daemons.close()

    def settings(self) -> Tables:
        """Jobs and marks are Slurm's."""
        return {
            "job": {
                "adapter": "slurm",
                "find": [],
                "status": [],
                "hold": [],
                "resume": [],
                "progress": ["trainctl", "progress", "{job}"],
            },
            "slurm": {"hold_deadline_s": 30.0},
            "burn_in": {"srun_command": WITHOUT_MPI},
        }

    def environment(self) -> dict[str, str]:
        """Slurm's own commands find the lab's Slurm by this."""
        return {"SLURM_CONF": str(self.daemons.conf)}

    def describe(self) -> dict[str, Any]:
        """Where Slurm's files and logs are."""
        return {"slurm_conf": str(self.daemons.conf), "logs": str(self.daemons.folder / "log"), "job": self.job.name}
