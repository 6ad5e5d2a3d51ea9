"""Settings of the job systems: the commands of a launcher, Kubernetes, Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from activities.settings import Section


class JobSettings(Section):
    """The job adapter. For `command`, each entry is an argument list run on the head node; {job}, {nodes}, {token}, {node} and
    {reason} stand for one argument each and are never seen by a shell."""

    adapter: Literal["command", "kubernetes", "slurm", "none"] = Field(
        "none", description="Job system; none: nodes are healed, no job is resumed"
    )
    head: str = Field("", description="Alias of the head node on which the commands run")
    find: list[str] = Field([], description="Prints the JSON status of the job that has {node} in its node set, or null")
    status: list[str] = Field([], description="Prints the JSON status of {job}")
    hold: list[str] = Field([], description="Stops {job} and keeps it stopped")
    resume: list[str] = Field(
        [], description="Starts {job} on {nodes} (comma-separated) from its last checkpoint, once per {token}"
    )
    progress: list[str] = Field(
        [],
        description='For kubernetes and slurm: run on the head node, prints {"step", "checkpoint_step", "seconds_per_step"} of '
        "{job} as JSON; empty: only the annotations of pods and job are read",
    )
    poll_s: float = Field(2.0, description="Seconds between looks at a resumed job. Hotspare default")
    command_deadline_s: float = Field(120.0, description="One job command. Hotspare default: a hold waits for ranks to end")
    progress_deadline_s: float = Field(
        1800.0,
        description="From resume to the first step past the checkpoint. Hotspare default: load of a 405B checkpoint is 130 s "
        "(ByteCheckpoint, table 8), framework start-up up to 1,047 s (arXiv:2402.15627)",
    )
    controller_deadline_s: float = Field(
        2400.0,
        description="A job that its controller restarts: from a proven node to the first step past the checkpoint; after it "
        "Hotspare takes over. Hotspare default: progress_deadline_s and 10 minutes for the controller's back-off",
    )
    restarts_warning: int = Field(
        2, description="A job whose controller has this many restarts left, or fewer, is told to people. Hotspare default"
    )


class KubernetesSettings(Section):
    """The cluster's Kubernetes, where it has one: nodes are cordoned and drained there. Credentials never stand in this file."""

    source: Literal["none", "kubeconfig", "in-cluster", "eks"] = Field(
        "none",
        description="How the API is reached: a kubeconfig, the pod's own service account, or EKS by name, with AWS credentials",
    )
    kubeconfig: Path = Field(Path("~/.kube/config"), description="For kubeconfig: the file")
    context: str = Field("", description="For kubeconfig: the context; empty: the current one")
    eks_cluster: str = Field("", description="For eks: the cluster's name; its address and certificate come from DescribeCluster")
    namespace: str = Field("hotspare", description="Namespace of what Hotspare creates: Jobs that check nodes, their results")
    timeout_s: float = Field(20.0, description="One request. Hotspare default")
    drain_mode: Literal["immediate", "allow_completion", "delete_after_timeout"] = Field(
        "immediate",
        description="How pods leave a node before it is disrupted. immediate: evict now, as disruption budgets allow; "
        "allow_completion: wait until they end by themselves, never evict; delete_after_timeout: evict, and delete at the "
        "deadline what a budget still holds. The modes of NVSentinel's node-drainer",
    )
    drain_deadline_s: float = Field(
        1800.0, description="From the first eviction to a node without pods; then a person is asked. Hotspare default"
    )
    drain_poll_s: float = Field(
        5.0, description="Seconds between tries of an eviction that a budget refused. Source: kubectl drain"
    )
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource whose allocatable count must be back")


class SlurmSettings(Section):
    """Slurm, where it runs the jobs; its commands run on the head node `job.head`."""

    flavour: Literal["plain", "parallelcluster", "pcs", "hyperpod"] = Field(
        "plain", description="Whose Slurm it is: on ParallelCluster a drained idle node is terminated within about a minute"
    )
    bin_dir: str = Field("", description="Folder of scontrol and squeue on the head node; empty: its PATH")
    sudo: bool = Field(False, description="Prefix scontrol and scancel with sudo -n: nodes and others' jobs are for root")
    hold_deadline_s: float = Field(
        120.0, description="From requeue to no rank left. Hotspare default: KillWait is 30 s, and an epilog runs after it"
    )
