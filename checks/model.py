"""The words every check speaks: verdicts, recommended actions, findings, kernel events, diagnoses.

Plain data and nothing else: no reading, no judging.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Optional

RUN_VARIABLE = "HOTSPARE_BURN_IN"
"""Environment variable of every process of a group run: the id of the run, by which what it leaves behind is known."""

NO_NVML_AFTER = frozenset({79, 119, 120})
"""After these XIDs NVML calls hang, so none is made before a reboot. Source: NVIDIA XID catalog; DCGM 4.6 does the same."""


class Verdict(str, Enum):
    """Result of one check. UNKNOWN means that the evidence is missing, never that all is well."""

    OK = "OK"
    WARN = "WARN"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_status(self) -> int:
        """Exit status of a judging command: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN (Nagios plug-in convention)."""
        return ("OK", "WARN", "CRITICAL", "UNKNOWN").index(self.value)


class Action(str, Enum):
    """What the vendor recommends for a fault. The remediation ladder, not this, decides the next step."""

    NONE = "NONE"
    RESTART_JOB = "RESTART_JOB"
    RESET_GPU = "RESET_GPU"
    SOFT_REBOOT = "SOFT_REBOOT"  # a rung only, before REBOOT_NODE: never recommended for a fault
    REBOOT_NODE = "REBOOT_NODE"
    POWER_CYCLE = "POWER_CYCLE"
    REPLACE_NODE = "REPLACE_NODE"
    RUN_DIAGNOSTICS = "RUN_DIAGNOSTICS"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"


class Confidence(str, Enum):
    """HIGH: two independent signals agree. MEDIUM: one trustworthy signal. LOW: hearsay or contradiction."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


@dataclass(frozen=True)
class GpuRef:
    """One GPU. Any field may be empty: kernel lines know only the PCI bus id, alerts often only the UUID."""

    index: Optional[int] = None
    uuid: str = ""
    pci: str = ""
    serial: str = ""


@dataclass(frozen=True)
class KernelEvent:
    """One fault line of the kernel log, decoded.

    `kind` is "xid", "sxid" or "host". `monotonic_s` is seconds since boot, None where the line has no such stamp.
    `recovery_from` and `recovery_to` are the numbers of an XID 154 line. `caused_by` is the code that the line itself names as
    its cause. `companion` marks a line that only adds detail to the fault line beside it and is never counted by itself. `signal`
    names the rule that a "host" line matched. `node` and `boot_id` are what the line's envelope says, empty where it does not.
    """

    kind: str
    code: Optional[int]
    text: str
    raw: str
    pci: str = ""
    pid: str = ""
    name: str = ""
    severity: str = ""
    link: Optional[int] = None
    monotonic_s: Optional[float] = None
    recovery_from: Optional[int] = None
    recovery_to: Optional[int] = None
    gpu_instance: Optional[int] = None
    compute_instance: Optional[int] = None
    caused_by: Optional[int] = None
    companion: bool = False
    signal: str = ""
    node: str = ""
    boot_id: str = ""


@dataclass(frozen=True)
class Finding:
    """One check's result about the node or one of its GPUs, with its evidence and the time it was seen (Unix, s)."""

    check: str
    verdict: Verdict
    summary: str
    evidence: str = ""
    seen_at: float = 0.0
    action: Action = Action.NONE
    code: Optional[int] = None
    gpu: Optional[GpuRef] = None


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong, what the vendor recommends and why. `fault_class` is a word of `checks.catalog.FAULT_CLASSES`.

    `at_boundary` says that the action can wait until the job on the node ends or reaches a checkpoint. `awaits_job` says that the
    answer may be another once it is known which job runs on the node: the fault was there before, under other jobs.
    """

    fault_class: str
    action: Action
    confidence: Confidence
    because: tuple[str, ...] = field(default_factory=tuple)
    code: Optional[int] = None
    gpu: Optional[GpuRef] = None
    at_boundary: bool = False
    awaits_job: bool = False
