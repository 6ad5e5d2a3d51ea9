"""Settings of group runs: how they are launched, and what they are judged by."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from activities.settings import Section
from checks.judges.learned import LearnedRules


class LearnedSettings(Section):
    """When the bandwidth of earlier clean runs becomes a floor of its own, above the fixed one."""

    least_runs: int = Field(
        10, ge=3, description="Clean runs before they count. Hotspare default: one odd run of ten moves no median"
    )
    fail_share: float = Field(
        0.90, gt=0, lt=1, description="A run fails below this share of the median. Hotspare default, as for the shipped floors"
    )
    warn_share: float = Field(
        0.95, gt=0, lt=1, description="And warns below this one. Hotspare default, as for the shipped floors"
    )
    fail_spreads: float = Field(
        5.0,
        gt=0,
        description="And only so many median absolute deviations (MAD) below it. Hotspare default: 3.4 standard deviations of a "
        "normal spread",
    )
    warn_spreads: float = Field(3.0, gt=0, description="The same for a warning. Hotspare default: 2 standard deviations")

    @property
    def rules(self) -> LearnedRules:
        """The same, as the judge takes it."""
        return LearnedRules(**self.model_dump())


_ALL_REDUCE = ["all_reduce_perf", "-b", "1G", "-e", "16G", "-f", "4"]


class BurnInSettings(Section):
    """The all-reduce burn-in."""

    launcher: Literal["auto", "mpirun", "srun", "kubernetes", "mpijob", "torchrun"] = Field(
        "auto",
        description="mpirun: on the launch host; srun: a step of Slurm, told on the launch host; kubernetes: mpirun in pods on "
        "the nodes, with access.agent_tools_image; mpijob: the same as an MPIJob of Kubeflow; torchrun: PyTorch on each node, "
        "where nccl-tests is absent. auto: kubernetes where access.kind is agent, srun where job.adapter is slurm, else mpirun",
    )
    launch_host: str = Field("", description="Alias of the host that runs mpirun or srun; empty: the job's head node")
    command: list[str] = Field(
        ["mpirun", "-np", "{ranks}", "--host", "{hosts}", "{environment}", *_ALL_REDUCE, "-g", "1", "-n", "20"],
        description="For mpirun, kubernetes and mpijob: argument list of a group run; {ranks}, {hosts} (name:slots, "
        "comma-separated), {names}, {nodes} and {gpus} are filled in; {environment} becomes -x NAME=VALUE for each variable",
    )
    srun_command: list[str] = Field(
        [
            "srun",
            "--nodes={nodes}",
            "--nodelist={names}",
            "--ntasks-per-node={gpus}",
            "--gpus-per-node={gpus}",
            "--exclusive",
            "--immediate={start_s}",
            "--mpi=pmix",
            "--kill-on-bad-exit=1",
            *_ALL_REDUCE,
            "-g",
            "1",
            "-n",
            "20",
        ],
        description="For srun: argument list of a group run, with the same words, and {start_s} for slurm_start_s. Job name, "
        "reservation and time limit are told by variables of srun; --mpi is what all_reduce_perf was built for",
    )
    torch_command: list[str] = Field(
        [
            "torchrun",
            "--nnodes={nodes}",
            "--nproc-per-node={gpus}",
            "--node-rank={rank}",
            "--master-addr={master}",
            "--master-port={port}",
            "{program}",
            "-b",
            "1G",
            "-e",
            "16G",
            "-f",
            "4",
            "-n",
            "20",
        ],
        description="For torchrun: argument list on each node; {rank} is the node's number, {master} and {port} are where rank 0 "
        "listens, {program} is Hotspare's own test, which is copied to the node",
    )
    torch_port: int = Field(
        29500,
        gt=1023,
        description="For torchrun: first port of rank 0; a run takes one of 1,000 from here on, by its id. Source: torchrun",
    )
    environment: dict[str, dict[str, str]] = Field(
        {},
        description='Variables of a group run by pattern of instance types, ["p5.*"] NCCL_BUFFSIZE = "4194304", over the shipped '
        "ones (checks/catalog/nccl_environment.csv); an empty value leaves one out",
    )
    python: str = Field("python3", description="Python 3.9 or newer on the launch host, and for torchrun on the nodes")
    log_alike: int = Field(
        2, ge=1, description="Lines of NCCL's log kept that differ in numbers alone. Hotspare default: 16,384 ranks print 1 GB"
    )
    log_lines: int = Field(4000, description="Lines of NCCL's log kept of one run. Hotspare default: two for each of 2,000 nodes")
    output_limit: int = Field(
        4_000_000, description="Characters kept of a group run. Hotspare default: 2,048 nodes of 8 GPUs are listed in 1,300,000"
    )
    slurm_start_s: float = Field(
        60.0,
        gt=0,
        description="For srun: until Slurm has started the step, else it is given up. Hotspare default: a prolog takes seconds",
    )
    node_command: list[str] = Field(
        ["all_reduce_perf", "-b", "1G", "-e", "16G", "-f", "4", "-g", "{gpus}", "-n", "20"],
        description="Argument list of the one-node run of the deep re-test; {gpus} is the GPU count",
    )
    gpus_per_node: int = Field(8, description="Ranks a node. Source: 8 GPUs on every p4, p5 and p6 instance type")
    deadline_s: float = Field(
        600.0,
        description="One run, where who asks for it names no other time. Source: gang limit of NVSentinel's preflight NCCL "
        "check, 600 s",
    )
    poll_s: float = Field(2.0, description="Seconds between looks at a run. Hotspare default")
    floors_gbs: dict[str, float] = Field({}, description='Own bus-bandwidth floors, "type/nodes" = GB/s, over the shipped ones')
    learned: LearnedSettings = LearnedSettings()
