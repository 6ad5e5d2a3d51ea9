"""Settings of the decisions: modes, ladders, budgets, deadlines. Read only by the `decide` activities, never by workflow code."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from activities.settings import Section
from checks.model import Action


class Mode(StrEnum):
    """observe: say what would be done. approve: ask a person first. act: do it."""

    OBSERVE = "observe"
    APPROVE = "approve"
    ACT = "act"


DEFAULT_LADDERS: dict[str, list[Action]] = {
    "gpu_lost": [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE],
    "gsp_hang": [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE],
    "reset_needed": [Action.RESET_GPU, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE],
    "reboot_needed": [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE],
    "memory_uncorrectable": [Action.RESET_GPU, Action.REBOOT_NODE, Action.REPLACE_NODE],
    "memory_exhausted": [Action.REPLACE_NODE],
    "link": [Action.RESET_GPU, Action.REBOOT_NODE, Action.REPLACE_NODE],
    "fabric": [Action.REBOOT_NODE, Action.REPLACE_NODE],
    "slow_node": [Action.REPLACE_NODE],
    "hardware": [Action.REPLACE_NODE],
    "host": [Action.REBOOT_NODE, Action.REPLACE_NODE],
    "unreachable": [Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE],
    "memory_contained": [Action.RESTART_JOB],
    "application": [Action.RESTART_JOB],
    "configuration": [],
    "unknown_code": [],
    "none": [],
}
"""Rungs per fault class, first to last. Source of each first rung: NVIDIA XID catalog, 2025-09-30. EC2 has no proven GPU reset,
so RESET_GPU is passed over until it is switched on for the instance type."""


class PolicySettings(Section):
    """What may be done to a node, in which order and how often."""

    mode: Mode = Field(Mode.OBSERVE, description="Mode of the cluster. Hotspare default: a new cluster only observes")
    mode_by_rung: dict[Action, Mode] = Field({}, description="Mode of single rungs, over `mode`")
    ladders: dict[str, list[Action]] = Field(DEFAULT_LADDERS, description="Rungs per fault class, first to last")
    ladders_by_code: dict[str, list[Action]] = Field(
        {}, description='Rungs for single codes, such as "xid:79", over the fault class'
    )
    reset_capable_types: list[str] = Field([], description="Instance types on which a GPU reset is known to work")
    soft_reboot: bool = Field(False, description="Try a reboot over SSH before the EC2 reboot")
    resume_first: bool = Field(
        True, description="Swap in a qualified spare first and repair afterwards, when one is free and a job waits"
    )
    attempts_per_node: int = Field(3, description="Disruptive rungs per node within the window. Hotspare default")
    attempts_per_gpu: int = Field(
        2, description="Reboots or resets per GPU serial within the window. Source: gpud, hardware inspection after 2 reboots"
    )
    attempts_window_h: float = Field(
        168.0, description="Window of the attempt budgets, hours. Source: NVSentinel, 5 remediations in 7 days"
    )
    repeat_window_h: float = Field(
        24.0,
        description="A fault back within so many hours starts one rung up. Source: InfiniteHBD-Trace, 10.7 % within a day",
    )
    boot_deadline_s: float = Field(
        1800.0, description="From a reboot to a node that answers. Source: ParallelCluster gives up at 30 min"
    )
    settling_s: float = Field(
        120.0,
        description="After our own boot, link-training faults do not count. Hotspare default: drivers load within 2 min",
    )
    evidence_deadline_s: float = Field(60.0, description="Time for the evidence bundle. Hotspare default")
    retest_deadline_s: float = Field(
        900.0, description="Deep re-test of one node. Source: Oracle OCI single-node NCCL limit 120 s, DCGM r2 up to 10.5 min"
    )
    replace_deadline_s: float = Field(
        1800.0, description="From asking for a spare to a node that passed its checks. Hotspare default"
    )
    job_deadline_s: float = Field(7200.0, description="From telling the job to its resume. Hotspare default")
    approval_page_again_s: float = Field(
        1800.0, description="An unanswered question is paged again after this long. Hotspare default"
    )
    person_deadline_s: float = Field(
        604800.0, description="How long an incident waits for a person before it ends as escalated. Hotspare default: a week"
    )
    look_again_s: float = Field(
        20.0, description="Between looks at a node that cannot be read. Hotspare default: longer than a dropped connection"
    )
    confirm_attempts: int = Field(3, description="Probes of an unreadable node before it counts as unreachable. Hotspare default")


class ClusterSettings(Section):
    """Limits that hold for the whole cluster."""

    max_nodes_out: int = Field(2, description="Most nodes out of service by Hotspare at once. Hotspare default")
    max_percent_out: float = Field(
        20.0, description="Most nodes out, per cent, but at least one. Source: Karpenter node repair, 20 %"
    )
    max_repairs: int = Field(
        2, description="Most disruptive steps at once. Hotspare default: one rack is never rebooted together"
    )
    storm_nodes: int = Field(
        4, description="So many nodes with one kind of fault within the window are one storm. Hotspare default"
    )
    storm_percent: float = Field(30.0, description="And at least this share of the cluster. Hotspare default")
    storm_window_s: float = Field(
        180.0, description="Window of the storm question. Source: NVSentinel, events within 180 s are one burst"
    )
    recovery_deadline_s: float = Field(
        60.0, description="How long a recovering Cluster waits for holders to say what they hold. Hotspare default"
    )


class SweepSettings(Section):
    """The scheduled look at every node."""

    interval_s: float = Field(
        300.0, description="Between sweeps. Source: Meta RSC runs its checks every 5 min (arXiv:2410.21680)"
    )
    parallel: int = Field(8, description="Nodes examined at once. Hotspare default: below the urgent work")
