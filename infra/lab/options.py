"""How large and how quick a lab is. Every time here is a lab value: real nodes take minutes where a lab node takes seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

CLUSTER = "lab"
REGION = "us-east-1"
JOB_KINDS = ("Job", "JobSet", "PyTorchJob", "TrainJob")
"""Kinds of training jobs on Kubernetes."""


@dataclass(frozen=True)
class LabOptions:
    """What to build. `folder` holds everything that the lab writes.

    `temporal_keeps_state` gives the Temporal server a file, so that it can be stopped and started again in a test.
    `time_scale` multiplies all times of the lab; the times themselves are in seconds.
    `orchestrator` starts the job: command, kubernetes, slurm. For kubernetes, `job_kind` is Job, JobSet, PyTorchJob or TrainJob,
    `kwok_nodes` how many Node objects there are without a machine.
    `access` is how Hotspare reaches the nodes: ssh, agent (on kubernetes), or ssm (Run Command; not on kubernetes).
    `memory` is where Hotspare keeps host memory: sqlite, or dynamodb, at the lab's own endpoint.
    """

    folder: Path
    nodes: int = 4
    spares: int = 1
    instance_type: str = "p5.48xlarge"
    cluster: str = CLUSTER
    temporal: bool = True
    temporal_keeps_state: bool = False
    time_scale: float = 1.0
    boot_s: float = 2.0
    stop_s: float = 0.5
    step_s: float = 0.2
    group_test_s: float = 1.0
    checkpoint_every: int = 25
    orchestrator: str = "command"
    job_kind: str = "Job"
    access: str = "ssh"
    kwok_nodes: int = 0
    memory: str = "sqlite"

    def scaled(self) -> LabOptions:
        """Return the options with `time_scale` worked into every time."""
        by = self.time_scale
        return replace(
            self,
            time_scale=1.0,
            boot_s=self.boot_s * by,
            stop_s=self.stop_s * by,
            step_s=self.step_s * by,
            group_test_s=self.group_test_s * by,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON."""
        return {**asdict(self), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LabOptions:
        """Read what `to_json` wrote."""
        return cls(**{**data, "folder": Path(data["folder"])})
