"""What a node says of itself: the examination (probe and diagnosis), the deep test, the evidence bundle."""

from __future__ import annotations

from datetime import datetime

from temporalio import activity

from activities.clock import Clock, SystemClock
from activities.errors import as_application_error
from activities.inventory import Node
from activities.message import Message
from activities.node_access import AccessTo
from activities.probing import Probe
from activities.settings import AccessSettings, BurnInSettings, StoreSettings
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
    seen_at: datetime | None = None
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
    """A diagnosis in history: what is wrong, the vendor's action, why, and whether the work on the node is affected."""

    fault_class: str
    action: Action
    confidence: Confidence = Confidence.MEDIUM
    because: list[str] = []
    code: int | None = None
    gpu: Gpu = Gpu()


class Examine(Message):
    """Probe a node. `depth` is quick or deep; reports are weighed with what the probe sees; `not_before_boot` marks our own reboot."""

    node: Node
    depth: str = "quick"
    reports: list[Report] = []
    settling_s: float = 0.0


class Examination(Message):
    """The answer: reachable or not, the boot, the verdict, the findings that are not OK, and the diagnosis.

    `verdict` UNKNOWN means that the node could not be read. `taken_at` is the evidence's time.
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


class DeepTest(Message):
    """Deep re-test: the deep probe, then `all_reduce_perf` over the node's own GPUs. `run_id` makes it resumable."""

    node: Node
    run_id: str
    deadline_s: float = 900.0


class DeepTestResult(Message):
    """Verdict of the deep re-test; OK only if every part ran and passed."""

    verdict: Verdict
    because: list[str] = []
    busbw_gbs: float | None = None
    floor_gbs: float | None = None
    boot_id: str = ""
    gpu_serials: list[str] = []


class CollectEvidence(Message):
    """Gather the evidence bundle within `deadline_s`; `no_nvml` after XID 79, 119 or 120 in this boot."""

    node: Node
    incident: str
    token: str
    no_nvml: bool
    deadline_s: float = 60.0


class EvidenceBundle(Message):
    """Where the bundle lies. `missing` names what could not be had and why; a bundle with holes is still a bundle."""

    uri: str
    sha256: str
    size_bytes: int
    items: list[str] = []
    missing: list[str] = []


class ResetGpu(Message):
    """Reset one GPU (by PCI bus id, else by index) in the boot `boot_id`, with no process on any GPU of the node."""

    node: Node
    boot_id: str
    gpu: Gpu
    token: str


class GpuReset(Message):
    """What a reset answered. `outcome` is done, in_use, not_supported or failed; none of them is a verdict on the hardware."""

    done: bool
    outcome: str
    said: str


class NodeActivities:
    """Looks at nodes and tests them. What cannot be read is UNKNOWN, never OK."""

    def __init__(
        self,
        access_to: AccessTo,
        probe: Probe,
        access: AccessSettings,
        burn_in: BurnInSettings,
        store: StoreSettings,
        clock: Clock | None = None,
    ) -> None:
        self._access_to = access_to
        self._probe = probe
        self._access = access
        self._burn_in = burn_in
        self._store = store
        self._clock = clock or SystemClock()

    @activity.defn
    def examine(self, request: Examine) -> Examination:
        """Probe a node and diagnose what is seen and reported. An unreadable node is an answer here, not an error."""
        with as_application_error():
            raise NotImplementedError

    @activity.defn
    def deep_test(self, request: DeepTest) -> DeepTestResult:
        """Deep probe, then the one-node all-reduce, then a second look; OK only if every part ran and passed."""
        with as_application_error():
            raise NotImplementedError

    @activity.defn
    def collect_evidence(self, request: CollectEvidence) -> EvidenceBundle:
        """Write the evidence bundle of an incident; the same token gives the same bundle."""
        with as_application_error():
            raise NotImplementedError

    @activity.defn
    def reset_gpu(self, request: ResetGpu) -> GpuReset:
        """Reset a GPU that no process uses."""
        with as_application_error():
            raise NotImplementedError
