"""Turns events and findings into candidates for the diagnosis, and says which of them back each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from checks.catalog import Assessment, Machine, assess, nvlink_kind
from checks.catalog.overrides import CLASS_OF_ACTION
from checks.diagnosis.evidence import describe
from checks.diagnosis.facts import Hardware, same_gpu
from checks.diagnosis.repeats import Before
from checks.kernel_log import fold
from checks.kernel_log.bursts import CHANNEL_REMOVED
from checks.model import Action, Finding, GpuRef, KernelEvent, Verdict

KERNEL_CHECKS = frozenset({"xid", "sxid", "host_signal"})
"""Findings that only retell kernel events; the events themselves are weighed."""

FINDING_CLASSES = {
    "gpu_count": "gpu_lost",
    "gpu_lost": "gpu_lost",
    "pci_dead": "gpu_lost",
    "nvml_hung": "reboot_needed",
    "row_remap_failure": "memory_exhausted",
    "row_remap_limit": "memory_exhausted",
    "memory_unrepairable": "memory_exhausted",
    "sram_threshold": "memory_exhausted",
    "retired_pages": "memory_exhausted",
    "row_remap_pending": "reset_needed",
    "repair_pending": "reset_needed",
    "page_retirement_pending": "reset_needed",
    "bank_remap_pending": "reset_needed",
    "ecc_sram_uncorrected": "reset_needed",
    "nvlink_down": "link",
    "nvlink_recovery_failed": "link",
    "nvlink_errors_rising": "link",
    "nvlink_crc": "link",
    "fabric": "fabric",
    "pcie_link": "reboot_needed",
    "pcie_fatal": "reboot_needed",
    "inforom": "reboot_needed",
    "ecc_mode": "configuration",
    "driver_mismatch": "configuration",
    "pcie_aer": "reboot_needed",
    "ib_link": "host",
    "ib_errors": "host",
    "disk": "host",
    "edac": "hardware",
    "efa_count": "configuration",
    "disk_full": "configuration",
    "mounts": "configuration",
    "limits": "configuration",
    "clock": "configuration",
    "service": "configuration",
    "parity": "configuration",
}
"""Fault class of each check that can accuse by itself. A recovery action's class follows from the action it asks for."""

WATCHED = frozenset({"ib_link", "ib_errors", "pcie_aer", "disk"})
"""Checks whose warnings that ask for no repair accuse nobody: a rate may be the switch's or the load's."""

REPAIRING = frozenset({Action.RESET_GPU, Action.REBOOT_NODE, Action.POWER_CYCLE, Action.REPLACE_NODE})
"""What a class of `FINDING_CLASSES` may begin with."""

RECOVERY_CLASSES = {
    Action.RESTART_JOB: "memory_contained",
    Action.RESET_GPU: "reset_needed",
    Action.REBOOT_NODE: "reboot_needed",
    Action.POWER_CYCLE: "reboot_needed",
    Action.CONTACT_SUPPORT: "unknown_code",
}

SECOND_SIGNALS = {
    "gpu_lost": ("gpu_count", "gpu_lost", "pci_dead", "nvml_hung"),
    "gsp_hang": ("nvml_hung", "recovery_action"),
    "memory_exhausted": ("row_remap_failure", "row_remap_limit", "memory_unrepairable"),
    "memory_uncorrectable": (
        *("ecc_uncorrected", "ecc_sram_uncorrected", "sram_threshold"),
        *("row_remap_pending", "row_remap_failure", "recovery_action"),
    ),
    "memory_contained": ("recovery_action", "ecc_uncorrected", "ecc_sram_uncorrected", "row_remap_pending"),
    "reset_needed": ("recovery_action", "row_remap_pending", "repair_pending", "gpu_lost"),
    "reboot_needed": ("recovery_action", "gpu_lost", "gpu_count", "nvml_hung"),
    "link": ("recovery_action", "nvlink_down", "nvlink_recovery_failed", "nvlink_errors", "nvlink_errors_rising"),
    "fabric": ("recovery_action", "fabric", "nvlink_down"),
}
"""Which readings are a second, independent signal for a fault class that the kernel log accuses of."""

FABRIC_MANAGER = "nvidia-fabricmanager"
"""Its unit, as the evidence of the check "service" names it."""

CTXSW_TIMEOUT = 109
"""A context-switch timeout needs a reset only if the driver asks for one. Source: XID catalog 2025-09-30, linkage to 154."""


@dataclass(frozen=True)
class Candidate:
    """One thing that may be wrong. `seconds` are the readings that back it; `awaits_job` is as in `checks.model.Diagnosis`."""

    fault_class: str
    action: Action
    because: str
    code: Optional[int]
    kind: str
    gpu: Optional[GpuRef]
    at_boundary: bool
    seconds: tuple[str, ...] = ()
    awaits_job: bool = False


def from_events(
    events: Iterable[KernelEvent], findings: Sequence[Finding], hardware: Hardware, before: Before
) -> tuple[list[Candidate], list[str]]:
    """Fold bursts and assess each cause, and its repeats; return the candidates, and notes on what accuses nobody."""
    candidates: list[Candidate] = []
    notes: list[str] = []
    for burst in fold(events):
        folded = ", ".join(dict.fromkeys(describe(event) for event in burst.consequences))
        tail = f" ({burst.lines} lines; consequences: {folded})" if folded else f" ({burst.lines} lines)" * (burst.lines > 1)
        for cause in burst.causes:
            gpu = hardware.complete(GpuRef(pci=burst.pci)) if burst.pci else None
            meaning, awaits_job = before.weighed(cause, assess_among(cause, findings, hardware.machine), hardware)
            if meaning.fault_class == "none":
                alone = _fabric_manager(findings, hardware) if (cause.kind, cause.code) == ("xid", CHANNEL_REMOVED) else ""
                notes.append(f"{describe(cause)}: no action; {meaning.because}{alone}")
                continue
            place = f" [GPU or switch at {burst.pci}]" if burst.pci else ""
            candidate = Candidate(
                meaning.fault_class,
                meaning.action,
                f"{meaning.because}{place}{tail}",
                cause.code,
                cause.kind,
                gpu,
                at_boundary=meaning.interrupts_job == "at_boundary",
                seconds=_seconds(meaning.fault_class, gpu, findings),
                awaits_job=awaits_job,
            )
            is_split = cause.gpu_instance is not None or _is_split(gpu, findings)
            candidates.append(_under_mig(candidate) if is_split else candidate)
    return candidates, notes


def _fabric_manager(findings: Sequence[Finding], hardware: Hardware) -> str:
    """What to look at first where channels were removed and nothing else says why: jobs lose them when Fabric Manager ends.

    Source: NVIDIA XID catalog 2025-09-30, workflow of XID 45. The removal accuses nobody: a killed process leaves it too.
    """
    services = [finding for finding in findings if finding.check == "service"]
    if any(one.verdict is Verdict.WARN and FABRIC_MANAGER in one.evidence for one in services):
        return "; nothing else explains it, and Fabric Manager does not run: start that first"
    if any(one.verdict is Verdict.OK and FABRIC_MANAGER in one.evidence for one in services):
        return "; nothing else explains it, and Fabric Manager runs: most likely a process was killed"
    if hardware.machine.family and nvlink_kind(hardware.instance_type) != "switch":
        return ""
    return f"; nothing else explains it: look whether Fabric Manager runs (systemctl is-active {FABRIC_MANAGER})"


def _is_split(gpu: Optional[GpuRef], findings: Sequence[Finding]) -> bool:
    return gpu is not None and any(one.check == "mig" and one.gpu is not None and same_gpu(gpu, one.gpu) for one in findings)


def _under_mig(candidate: Candidate) -> Candidate:
    """A GPU that MIG splits cannot be reset while its instances exist: what needs a reset needs the node."""
    if candidate.action is not Action.RESET_GPU:
        return candidate
    because = f"{candidate.because}; MIG is on, so a reset of the GPU is not supported and the node is rebooted"
    return replace(candidate, fault_class="reboot_needed", action=Action.REBOOT_NODE, because=because)


def from_findings(findings: Iterable[Finding], hardware: Hardware) -> list[Candidate]:
    """Return what the readings accuse of by themselves: NVML and PCI state needs no kernel line."""
    candidates = []
    for finding in findings:
        fault_class = _class_of(finding)
        if finding.verdict in (Verdict.WARN, Verdict.CRITICAL) and fault_class:
            gpu = hardware.complete(finding.gpu) if finding.gpu else None
            boundary = finding.verdict is Verdict.WARN
            candidates.append(
                Candidate(fault_class, finding.action, finding.summary, finding.code, finding.check, gpu, at_boundary=boundary)
            )
    return candidates


def _class_of(finding: Finding) -> str:
    if finding.check == "recovery_action":
        return RECOVERY_CLASSES.get(finding.action, "")
    if finding.check in WATCHED and finding.verdict is Verdict.WARN and finding.action in (Action.NONE, Action.RUN_DIAGNOSTICS):
        return ""
    fault_class = FINDING_CLASSES.get(finding.check, "")
    if fault_class in ("reset_needed", "link") and finding.action is Action.REBOOT_NODE:
        return "reboot_needed"
    return _no_more_than(finding.action, fault_class)


def _no_more_than(action: Action, fault_class: str) -> str:
    """A class begins its ladder with a repair: what asks for none has another, or accuses nobody."""
    if not fault_class or fault_class == "configuration" or action in REPAIRING:
        return fault_class
    return "" if action is Action.NONE else CLASS_OF_ACTION.get(action, "unknown_code")


def assess_among(event: KernelEvent, findings: Sequence[Finding], machine: Machine) -> Assessment:
    """Return what an event means beside the readings of the node.

    Where the driver's own recovery action could be read and is none, a context-switch timeout is the job's affair.
    """
    meaning = assess(event, machine)
    if event.kind != "xid" or event.code != CTXSW_TIMEOUT or f"xid:{CTXSW_TIMEOUT}" in machine.overrides:
        return meaning
    read = [finding for finding in findings if finding.check == "recovery_action"]
    if not read or any(finding.verdict is not Verdict.OK for finding in read):
        return meaning
    because = f"{meaning.because}; the driver's recovery action is none, so restarting the job is enough"
    return Assessment("application", Action.RESTART_JOB, because, meaning.escalation, "job_dies_anyway")


def _seconds(fault_class: str, gpu: Optional[GpuRef], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Name the readings that back an accusation. OK findings back nothing, but for error counters, which are events too."""
    checks = SECOND_SIGNALS.get(fault_class, ())
    return tuple(
        finding.summary
        for finding in findings
        if finding.check in checks
        and (finding.verdict in (Verdict.WARN, Verdict.CRITICAL) or (finding.check == "ecc_uncorrected" and finding.gpu))
        and (gpu is None or finding.gpu is None or same_gpu(gpu, finding.gpu))
    )
