"""The probe's JSON document as a machine of FakeFleet would print it: its state as findings, diagnosed by the real rules."""

from __future__ import annotations

import time
from dataclasses import asdict
from enum import Enum
from typing import Any

from activities.clients.fake_machine import FakeFault, FakeMachine
from activities.clients.fake_text import bus_id
from checks.catalog import assess
from checks.diagnosis import Hardware, Timing, diagnose
from checks.kernel_log import read_lines
from checks.model import Action, Finding, GpuRef, KernelEvent, Verdict

NO_NVML_AFTER = frozenset({79, 119, 120})
_WORST_FIRST = (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN, Verdict.OK)


def probe_document(machine: FakeMachine, instance_type: str, settling_s: float, *, no_nvml: bool) -> dict[str, Any]:
    """Build the document of one probe, in the schema of `checks/run_checks.py`."""
    now = time.time()
    events = list(read_lines(machine.kernel_log))
    blind = no_nvml or any(event.code in NO_NVML_AFTER for event in events)
    gpus = tuple(_gpu(machine, index) for index in range(machine.gpus) if index not in machine.lost_gpus)
    findings = [_retold(event, now) for event in events] + _readings(machine, now, blind)
    timing = Timing(now=now, uptime_s=machine.uptime_s, settling_s=settling_s)
    diagnosis = diagnose(findings, events, timing=timing, hardware=Hardware(instance_type, gpus))
    verdicts = [finding.verdict for finding in findings] or [Verdict.UNKNOWN]
    processes = [{"pid": 2100 + rank, "gpu_index": rank, "name": "python3"} for rank in range(machine.gpu_processes)]
    document = {
        "schema": 1,
        "verdict": min(verdicts, key=_WORST_FIRST.index),
        "boot_id": machine.boot_id,
        "uptime_s": machine.uptime_s,
        "taken_at": now,
        "instance_type": instance_type,
        "gpus": [asdict(gpu) for gpu in gpus],
        "gpu_processes": processes,
        "findings": [asdict(finding) for finding in findings],
        "events": [asdict(event) for event in events],
        "dropped": 0,
        "diagnosis": asdict(diagnosis),
    }
    plain: dict[str, Any] = _plain(document)
    return plain


def _readings(machine: FakeMachine, now: float, blind: bool) -> list[Finding]:
    """What PCI and NVML say. A GPU off the bus is seen in PCI, so it shows without NVML too."""
    found = [_count(machine, now)]
    if blind:
        found.append(Finding("nvml", Verdict.WARN, "NVML was not asked: the kernel log of this boot has XID 79, 119 or 120", seen_at=now))
        return found
    for fault in machine.faults:
        found += _state_of(machine, fault, now)
    return found


def _count(machine: FakeMachine, now: float) -> Finding:
    seen = machine.gpus - len(machine.lost_gpus)
    summary = f"{seen} of {machine.gpus} GPUs answer on the PCI bus"
    if not machine.lost_gpus:
        return Finding("gpu_count", Verdict.OK, summary, seen_at=now)
    gpu = GpuRef(pci=bus_id(min(machine.lost_gpus)))
    return Finding("gpu_count", Verdict.CRITICAL, summary, seen_at=now, action=Action.REBOOT_NODE, gpu=gpu)


def _state_of(machine: FakeMachine, fault: FakeFault, now: float) -> list[Finding]:
    gpu = _gpu(machine, fault.gpu)
    if fault.xid == 64:
        summary = f"GPU {fault.gpu}: a row could not be remapped, no spare rows are left"
        return [Finding("row_remap_failure", Verdict.CRITICAL, summary, seen_at=now, action=Action.REPLACE_NODE, gpu=gpu)]
    if fault.xid in (48, 95):
        summary = f"GPU {fault.gpu}: a row remap is pending, a reset activates it"
        return [Finding("row_remap_pending", Verdict.WARN, summary, seen_at=now, action=Action.RESET_GPU, gpu=gpu)]
    if fault.xid == 94:
        return [Finding("ecc_uncorrected", Verdict.OK, f"GPU {fault.gpu}: 1 uncorrectable error since the driver started", gpu=gpu)]
    return []


def _retold(event: KernelEvent, now: float) -> Finding:
    meaning = assess(event)
    verdict = Verdict.OK if meaning.action is Action.NONE else Verdict.CRITICAL
    verdict = Verdict.WARN if meaning.action is Action.RESTART_JOB else verdict
    gpu = GpuRef(pci=event.pci) if event.pci else None
    return Finding("xid", verdict, meaning.because, event.raw, now, meaning.action, event.code, gpu)


def _gpu(machine: FakeMachine, index: int) -> GpuRef:
    serial = f"16500{machine.name}{index}"
    return GpuRef(index=index, uuid=f"GPU-{machine.name}-{index}", pci=bus_id(index), serial=serial)


def _plain(value: Any) -> Any:
    """Turn enums into their words, as the real probe writes them."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
