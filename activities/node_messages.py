"""Messages about one node: reports of faults, the examination, the deep test, the evidence bundle, the GPU reset."""

from __future__ import annotations

from datetime import datetime

from activities.host_memory import RungAttempt
from activities.inventory import Node
from activities.message import Message, UtcTime
from checks.model import Action, Confidence, Verdict


class Gpu(Message):
    """One GPU's identity; empty where not known."""

    index: int | None = None
    uuid: str = ""
    pci: str = ""
    serial: str = ""


class Report(Message):
    """One report of a fault, from whatever source.

    `source` is watcher, sweep, alertmanager, hand, or the id of a workflow. `key` is stable for one fault however often it is
    reported. `resolved` asks for a re-check and never closes an incident by itself.
    """

    source: str = "hand"
    key: str = ""
    xid: int | None = None
    sxid: int | None = None
    what: str = ""
    gpu: Gpu = Gpu()
    seen_at: UtcTime | None = None
    raw: str = ""
    resolved: bool = False
    burn_in_failed: bool = False


class Seen(Message):
    """A finding, cut to what an operator reads."""

    check: str
    verdict: Verdict
    summary: str
    evidence: str = ""
    gpu: Gpu = Gpu()


class Opinion(Message):
    """A diagnosis in history: what is wrong, the vendor's action, why, and whether the repair can wait for the job's boundary.

    `awaits_job`: the answer may be another once the job on the node is known.
    """

    fault_class: str
    action: Action
    confidence: Confidence = Confidence.MEDIUM
    because: list[str] = []
    code: int | None = None
    gpu: Gpu = Gpu()
    at_boundary: bool = False
    awaits_job: bool = False


class Examine(Message):
    """Probe a node. `depth` is quick or deep; reports are weighed with what the probe sees.

    Within `settling_s` seconds after a boot, faults of link training are not counted. Kernel lines up to `handled_until` were
    dealt with before (by the last incident, or by a step of this one) and are history. `job` is the job on the node, if known.
    `incident` names the run on whose behalf, the same after a reset from the UI; empty for a sweep.
    """

    node: Node
    job: str = ""
    incident: str = ""
    depth: str = "quick"
    reports: list[Report] = []
    settling_s: float = 0.0
    handled_until: datetime | None = None


class Examination(Message):
    """The answer: reachable or not, the boot, the verdict, the findings that are not OK, and the diagnosis.

    `verdict` UNKNOWN means that the node could not be read. `taken_at` is the evidence's time. From host memory: `known_bad` says
    which of its GPUs are banned and why, `elsewhere` are the disruptive steps on them under other instance ids.
    """

    reachable: bool
    verdict: Verdict
    opinion: Opinion
    boot_id: str = ""
    taken_at: datetime
    findings: list[Seen] = []
    gpu_serials: list[str] = []
    gpu_processes: int | None = None
    why_unreachable: str = ""
    uptime_s: float | None = None
    known_bad: list[str] = []
    elsewhere: list[RungAttempt] = []


class DeepTest(Message):
    """Deep re-test: the deep probe, then `all_reduce_perf` over the node's own GPUs. `run_id` makes it resumable.

    Without `deadline_s` the setting burn_in.deadline_s holds. With a `job` the node's configuration is compared with the job's
    other nodes, those but `in_place_of`; a node that `joins` and differs is not tested at all. `left_host` are the GPU serials of
    the host that a stop was to leave: one that has them still does not pass. A spare that passed a test of its own within
    `trust_h` hours, in the boot that runs still, is looked at and not put under load again: the burn-in of its group follows.
    """

    node: Node
    run_id: str
    deadline_s: float | None = None
    settling_s: float = 0.0
    handled_until: datetime | None = None
    job: str = ""
    in_place_of: str = ""
    joins: bool = False
    incident: str = ""
    left_host: list[str] = []
    trust_h: float = 0.0


class DeepTestResult(Message):
    """Verdict of the deep re-test; OK only if every part ran and passed.

    `cause` is a word of the judges: that of the run, could_not_run where the node is not free or not ours, empty for an ill node.
    """

    verdict: Verdict
    cause: str = ""
    because: list[str] = []
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    boot_id: str = ""
    gpu_serials: list[str] = []


class CollectEvidence(Message):
    """Gather the evidence bundle within `deadline_s`; `no_nvml` after XID 79, 119 or 120 in this boot.

    `opinion`, `reports` and `opened_at` are what the incident knows; they go into the bundle and the text for a support case.
    """

    node: Node
    incident: str
    token: str
    no_nvml: bool
    deadline_s: float = 60.0
    opinion: Opinion | None = None
    reports: list[Report] = []
    opened_at: UtcTime | None = None


class EvidenceBundle(Message):
    """Where the bundle lies. `missing` names what could not be had and why; a bundle with holes is still a bundle.

    `summary` says in one line how much of it there is.
    """

    uri: str
    sha256: str
    size_bytes: int
    items: list[str] = []
    missing: list[str] = []
    summary: str = ""


class ResetGpu(Message):
    """Reset one GPU (by PCI bus id, else by index), with no process on any GPU of the node.

    With a `boot_id`, only in that boot. A reset that is repeated is harmless, so `token` only names it.
    """

    node: Node
    gpu: Gpu = Gpu()
    token: str = ""
    boot_id: str = ""
    attempt: RungAttempt | None = None
