"""What starts the lab's training job: the command launcher of the head node, Kubernetes, or Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from infra.lab.desk import Reply
from infra.lab.options import LabOptions

if TYPE_CHECKING:
    from infra.lab.lab import Lab

COMMAND, KUBERNETES, SLURM = "command", "kubernetes", "slurm"
ORCHESTRATORS = (COMMAND, KUBERNETES, SLURM)

Tables = dict[str, dict[str, object]]
"""Tables of `hotspare.toml`."""


class LabJob(Protocol):
    """The training job `train`, whoever launches it. `resumes` has one entry for each start of the world after the first."""

    name: str
    node_names: list[str]
    step: int
    checkpoint_step: int
    run_token: str
    resumes: list[dict[str, Any]]
    lost_steps: int

    @property
    def state(self) -> str:
        """RUNNING, STOPPED or HELD."""
        ...

    async def start(self) -> None:
        """Start the job for the first time."""
        ...

    async def hold(self) -> None:
        """Stop the job and keep it stopped."""
        ...

    async def resume(self, names: list[str], token: str) -> None:
        """Start the job on these nodes, once per token; refused where its controller does that."""
        ...

    async def close(self) -> None:
        """End the job with the lab."""
        ...

    async def wait_for_step(self, step: int) -> None:
        """Wait until the job has done a step."""
        ...

    async def wait_for_checkpoint(self, step: int = 1) -> None:
        """Wait until a checkpoint at `step` or later is complete."""
        ...

    async def wait_for_state(self, state: str) -> None:
        """Wait until the job is RUNNING, STOPPED or HELD."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the job as JSON, with its resumes."""
        ...

    async def trainctl(self, asker: str, fields: dict[str, Any], reply: Reply) -> int:
        """Carry out one call of `trainctl` and return its exit status."""
        ...


class Orchestrator(Protocol):
    """One of them in a lab whose nodes are up. `settings` are put over the lab's own tables."""

    job: LabJob

    async def start(self) -> None:
        """Bring up what the job needs, without starting the job."""
        ...

    async def close(self) -> None:
        """Take everything down; the nodes go after it."""
        ...

    def settings(self) -> Tables:
        """Tables of `hotspare.toml` that differ from those of the command launcher."""
        ...

    def environment(self) -> dict[str, str]:
        """Variables for a shell that is to work with it."""
        ...

    def describe(self) -> dict[str, Any]:
        """What `hotspare lab status` shows of it."""
        ...


def orchestrator_of(lab: Lab, options: LabOptions) -> Orchestrator:
    """Make the orchestrator that the options name. Raises ValueError."""
    if options.orchestrator == COMMAND:
        from infra.lab.job import CommandLauncher

        return CommandLauncher(lab, options)
    if options.orchestrator == KUBERNETES:
        from infra.lab.kube.cluster import KubernetesCluster

        return KubernetesCluster(lab, options)
    if options.orchestrator == SLURM:
        from infra.lab.slurm.cluster import SlurmCluster

        return SlurmCluster(lab, options)
    raise ValueError(f"no orchestrator is called {options.orchestrator}; there are {', '.join(ORCHESTRATORS)}")
