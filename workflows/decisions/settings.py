"""Settings of the decisions: modes, ladders, budgets, deadlines. Read only by the `decide` activities, never by workflow code."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from activities.settings import Section
from checks.model import Action
from workflows.decisions.windows import Window


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
    mode_by_class: dict[str, dict[Action, Mode]] = Field(
        {}, description="Mode of single rungs for one fault class, over `mode_by_rung`; `hotspare promote` writes it"
    )
    ask_above_gpu_hours: float = Field(
        0.0,
        description="In act mode too, ask before a running job loses more GPU-hours than this; 0: never. Hotspare default: a "
        "node with a confirmed fault takes its job down sooner or later",
    )
    pools: dict[str, dict[str, Any]] = Field(
        {}, description="Settings of this table for one pool (the tag hotspare:pool, else the instance type), over the others"
    )
    ladders: dict[str, list[Action]] = Field(DEFAULT_LADDERS, description="Rungs per fault class, first to last")
    ladders_by_code: dict[str, list[Action]] = Field(
        {}, description='Rungs for single codes, such as "xid:79" or "sxid:20034", over the fault class'
    )
    reset_capable_types: list[str] = Field([], description="Instance types on which a GPU reset is known to work")
    observe_only_types: list[str] = Field(
        ["p6e-gb200.36xlarge", "p6e-gb300.36xlarge"],
        description="Instance types that are only observed, whatever `mode` says: Hotspare was never tried on them. Take a type "
        "out once you have",
    )
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
    strikes_at_most: float = Field(
        3.0,
        gt=0,
        description="A host whose strikes weigh so much is not repaired in place any more, but replaced. A strike is an incident "
        "in which it was disrupted or given up. Hotspare default: few nodes have most of the incidents (arXiv:2410.21680, lemon "
        "nodes), and a repair that did not last is the best sign of one",
    )
    strike_half_life_days: float = Field(
        28.0,
        gt=0,
        description="After so many days a strike weighs half. Hotspare default: the window in which Meta looks for lemon nodes "
        "(arXiv:2410.21680), as a half-life",
    )
    probation_h: float = Field(
        168.0,
        ge=0,
        description="Hours of probation after a repair: a fault that comes back starts one rung up, and as a spare it comes "
        "after others. Source: InfiniteHBD-Trace, 20 % of repaired servers fail again within 7 days",
    )
    boot_deadline_s: float = Field(
        1800.0, description="From a reboot to a node that answers. Source: ParallelCluster gives up at 30 min"
    )
    rung_deadlines_s: dict[Action, float] = Field(
        {Action.SOFT_REBOOT: 900.0},
        description="The same for single rungs, over `boot_deadline_s`. Hotspare default: a reboot from inside that hangs is not "
        "waited for as long as one by EC2",
    )
    gone_deadline_s: float = Field(
        900.0,
        description="From a drain that has a node replaced to an instance that is terminated. Hotspare default: clustermgtd of "
        "ParallelCluster looks every 60 s (its loop_time)",
    )
    renew_retired: bool = Field(
        False,
        description="Have another instance in the place of a retired one: of plain EC2 it is launched (provision.templates) and "
        "that one ended; one of an Auto Scaling group or of Karpenter is given back to its owner, which launches another. "
        "Hotspare default: a person opens a support case first, for which AWS may want the instance",
    )
    listed_deadline_s: float = Field(
        300.0,
        gt=0,
        description="From a launched instance that runs to its entry in the inventory. Hotspare default: its tags are there with "
        "the launch, and inventory.cache_s passes",
    )
    listed_try_s: float = Field(
        10.0, gt=0, description="Between looks for it there. Hotspare default: as long as inventory.cache_s"
    )
    successor_page_s: float = Field(
        900.0,
        gt=0,
        description="How long an owner may take to launch another instance before people are told that it is waited for "
        "(capacity_wait_s in all). Hotspare default: an Auto Scaling group looks every few minutes, an instance boots in minutes",
    )
    slot_back_p90_s: float = Field(
        2400.0,
        description="From a stop to a node that serves again, nine times in ten. Hotspare default: up to 10 min to stop, 15 to "
        "boot and 15 for the re-test; AWS publishes no times for GPU instances",
    )
    block_end_margin_s: float = Field(
        2400.0,
        description="Nothing is stopped or launched that would serve again later than this before its reservation ends. Source: "
        "EC2 User Guide, 'Monitor Capacity Blocks using EventBridge': the warning comes 40 min before the end",
    )
    slot_age_s: float = Field(
        300.0, description="What is known of a node's slot is read again after this long. Hotspare default: as long as a sweep"
    )
    capacity_wait_s: float = Field(
        14400.0,
        description="How long a stopped node waits for EC2 to have capacity. Hotspare default: 4 h, then a person decides",
    )
    capacity_try_s: float = Field(
        120.0,
        description="Between tries to start it. Source: EC2 User Guide, 'Launch instances using Capacity Blocks': a slot is back "
        "after several minutes",
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
    node_deadline_s: float = Field(
        7200.0,
        gt=0,
        description="How long a job's recovery waits for what comes in place of its nodes. Hotspare default: two boots of 30 "
        "minutes, their tests, and a spare",
    )
    incident_speaks_s: float = Field(
        300.0,
        gt=0,
        description="How long a recovery that a node stops waits for that node's incident. Hotspare default: evidence takes up "
        "to 3 minutes",
    )
    burn_in_rounds: int = Field(
        4,
        ge=1,
        description="Burn-ins of one recovery before a person is asked. Hotspare default: each one may find one more bad node",
    )
    spares_tried: int = Field(
        3,
        ge=1,
        description="Spares that one replacement tries, one after the other. Hotspare default: a spare is bad on arrival in "
        "about 3 % of cases",
    )
    hand_over_s: float = Field(
        18_000.0,
        gt=0,
        description="From a ready spare to a rank of the job on it. Hotspare default: 5 h, more than two rounds of a recovery "
        "that wait 2 h each",
    )
    approval_page_again_s: float = Field(
        1800.0, description="An unanswered question is paged again after this long. Hotspare default"
    )
    person_deadline_s: float = Field(
        604800.0, description="How long an incident waits for a person before it ends as escalated. Hotspare default: a week"
    )
    boundary_deadline_s: float = Field(
        14400.0,
        description="How long a fault that can wait does so for a checkpoint or the job's end. Hotspare default: 4 h, several "
        "checkpoints of any job that writes them",
    )
    look_again_s: float = Field(
        20.0, description="Between looks at a node that cannot be read. Hotspare default: longer than a dropped connection"
    )
    confirm_attempts: int = Field(3, description="Probes of an unreadable node before it counts as unreachable. Hotspare default")

    @model_validator(mode="after")
    def _pools_are_readable(self) -> Self:
        for pool in self.pools:
            self.for_pool(pool)
        return self

    def for_pool(self, pool: str) -> PolicySettings:
        """Return the policy as it is for one pool. Raises ValueError where what is set for it cannot be read."""
        changed = self.pools.get(pool)
        if changed is None:
            return self
        if "pools" in changed:
            raise ValueError(f"policy.pools.{pool}: a pool has no pools")
        rest = self.model_dump(exclude={"pools"})
        return PolicySettings.model_validate({**rest, **changed})

    def for_type(self, instance_type: str) -> PolicySettings:
        """Return the policy as it is for one instance type: one that was never tried is only observed."""
        if instance_type not in self.observe_only_types:
            return self
        return self.model_copy(update={"mode": Mode.OBSERVE, "mode_by_rung": {}, "mode_by_class": {}})


class ClusterSettings(Section):
    """Limits that hold for the whole cluster."""

    max_nodes_out: int = Field(2, description="Most nodes out of service by Hotspare at once. Hotspare default")
    max_percent_out: float = Field(
        20.0, description="Most nodes out, per cent, but at least one. Source: Karpenter node repair, 20 %"
    )
    max_repairs: int = Field(
        2, description="Most disruptive steps at once. Hotspare default: one rack is never rebooted together"
    )
    max_nodes_out_per_domain: int = Field(
        2, description="Most nodes out per zone, placement group or rack. Hotspare default: as in the whole cluster"
    )
    max_percent_out_per_domain: float = Field(
        50.0, description="Most nodes out per domain, per cent, but at least one. Hotspare default: half a rack still serves"
    )
    max_nodes_out_per_job: int = Field(
        2, description="Most nodes out per job. Hotspare default: a job that loses more at once is a case for a person"
    )
    min_usable: dict[str, int] = Field(
        {}, description="Fewest usable nodes per pool (the tag hotspare:pool, else the instance type)"
    )
    windows: list[Window] = Field([], description="Maintenance windows, in which disruption is allowed; none: always")
    alone_wait_s: float = Field(
        5.0,
        description="Before a fault of a kind that is often shared (application, link, fabric) is taken for one node's own. "
        "Hotspare default: log lines of one event reach all watchers within seconds",
    )
    breaker_nodes: int = Field(
        8, description="So many nodes with faults of any kind within the window open the breaker. Hotspare default"
    )
    breaker_percent: float = Field(
        10.0, description="And at least this share of the cluster. Hotspare default: half of what may be out, at twice the pace"
    )
    breaker_nodes_at_most: int = Field(
        100, description="So many nodes open the breaker whatever their share. Hotspare default: in a great cluster 10 % is late"
    )
    breaker_window_s: float = Field(
        600.0, description="Window of the breaker. Hotspare default: as long as two sweeps, so that slow bursts count too"
    )
    breaker_open_s: float = Field(
        900.0, description="How long the breaker stays open before one node is tried. Hotspare default: a person looks first"
    )
    breaker_failed_repairs: int = Field(
        3, description="Repairs in a row that did not help open the breaker; 0: never. Hotspare default"
    )
    breaker_failures_window_h: float = Field(
        6.0, description="Repairs that did not help count for so many hours. Hotspare default: about a dozen slow repairs"
    )
    storm_nodes: int = Field(
        4, description="So many nodes with one kind of fault within the window are one storm. Hotspare default"
    )
    storm_percent: float = Field(30.0, description="And at least this share of the cluster. Hotspare default")
    storm_nodes_at_most: int = Field(
        50, description="So many nodes are one storm whatever their share. Hotspare default: chance does not do that"
    )
    storm_domain_nodes: int = Field(
        3,
        description="So many nodes of one zone, placement group or rack with one link-like fault are one event. Hotspare default",
    )
    storm_domain_percent: float = Field(
        50.0, description="And at least this share of that domain. Hotspare default: half of what hangs on one switch"
    )
    storm_nvlink_nodes: int = Field(
        2,
        description="So many trays of one NVLink domain (UltraServer) with link-like faults are one event, whatever their share. "
        "Hotspare default: they hang on the same switches",
    )
    storm_lasts_s: float = Field(
        21600.0,
        description="How long what is reported of a storm's nodes again is no news: nobody is paged anew, no node is disrupted. "
        "Hotspare default: 6 h, a shift; `hotspare thaw --scope storms` ends it at once",
    )
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
    reconcile_interval_s: float = Field(
        1800.0, description="Between looks for what dead incidents and replacements left behind. Hotspare default"
    )
    parallel: int = Field(8, description="Nodes examined at once. Hotspare default: below the urgent work")
