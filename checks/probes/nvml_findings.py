"""Judges what NVML says of the GPUs: lost, remapped rows, recovery action, error counters, clocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from checks.catalog import assess_recovery
from checks.model import Action, Finding, GpuRef, Verdict
from checks.pci_address import canonical
from checks.probes.readings import ERROR, LOST, OK, GpuReadings, NvmlState

BAD_CLOCK_REASONS = {0x8: "hardware slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake"}
"""Clocks event reasons that are faults under load; all other bits are normal or not known. Source: nvml.h."""


def gpu_ref(gpu: GpuReadings) -> GpuRef:
    """Return the GPU's identity as far as it could be read."""
    pci = gpu.get("pci").text()
    return GpuRef(gpu.index, gpu.get("uuid").text(), canonical(pci) if pci else "", gpu.get("serial").text())


def judge_nvml(state: NvmlState, at: float) -> list[Finding]:
    """Return the findings of one look at NVML; `at` is its Unix time."""
    if state.outcome != "read":
        return [_unread(state, at)]
    findings = [finding for gpu in state.gpus for finding in _judge_gpu(gpu, at)]
    summary = f"{len(state.gpus)} GPUs answer, driver {state.driver_version or 'not known'}"
    lost = [finding for finding in findings if finding.check in ("gpu_lost", "unreadable")]
    if not lost:
        findings.append(Finding("nvml", Verdict.OK, summary, seen_at=at))
    return findings + _all_in_order(state, findings, at)


def _unread(state: NvmlState, at: float) -> Finding:
    if state.outcome == "hung":
        return Finding("nvml_hung", Verdict.CRITICAL, f"the driver hangs: {state.detail}", "", at, Action.REBOOT_NODE)
    if state.outcome == "mismatch":
        return Finding("driver_mismatch", Verdict.WARN, f"driver and library differ: {state.detail}", "", at)
    return Finding("nvml", Verdict.UNKNOWN, f"the GPUs could not be read: {state.detail}", state.outcome, at)


def _judge_gpu(gpu: GpuReadings, at: float) -> Iterable[Finding]:
    who = gpu_ref(gpu)
    lost = sorted(name for name, reading in gpu.values.items() if reading.state == LOST)
    if lost:
        summary = f"GPU {gpu.index} is lost: the driver cannot reach it"
        yield Finding("gpu_lost", Verdict.CRITICAL, summary, f"lost: {', '.join(lost)}", at, Action.REBOOT_NODE, None, who)
        return
    failed = {name: reading.detail for name, reading in gpu.values.items() if reading.state == ERROR}
    if failed:
        evidence = "; ".join(f"{name}: {detail}" for name, detail in sorted(failed.items()))
        yield Finding("unreadable", Verdict.UNKNOWN, f"GPU {gpu.index} does not answer every question", evidence, at, gpu=who)
    yield from filter(None, (_recovery(gpu, who, at), *_remapped_rows(gpu, who, at), _ecc(gpu, who, at), _clocks(gpu, who, at)))


def _recovery(gpu: GpuReadings, who: GpuRef, at: float) -> Optional[Finding]:
    number = gpu.get("recovery_action").number()
    if not number:
        return None
    meaning = assess_recovery(number, f"GPU {gpu.index}")
    verdict = Verdict.WARN if meaning.interrupts_job == "at_boundary" else Verdict.CRITICAL
    return Finding("recovery_action", verdict, meaning.because, f"NVML field 230 = {number}", at, meaning.action, None, who)


def _remapped_rows(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    rows = gpu.get("remapped_rows")
    if rows.state != OK:
        return
    corrected, uncorrected, pending, failure = rows.value[:4]
    evidence = f"remapped rows: {corrected} corrected, {uncorrected} uncorrected, pending {pending}, failure {failure}"
    if failure:
        summary = f"GPU {gpu.index} has no spare memory row left (row-remap failure flag); NVIDIA's criterion for a replacement"
        yield Finding("row_remap_failure", Verdict.CRITICAL, summary, evidence, at, Action.REPLACE_NODE, None, who)
    elif pending:
        summary = f"GPU {gpu.index} waits for a reset to remap a bad memory row; it can wait for the job's end"
        yield Finding("row_remap_pending", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)


def _ecc(gpu: GpuReadings, who: GpuRef, at: float) -> Optional[Finding]:
    """Uncorrected errors by themselves ask for nothing: they were contained or remapped. They back what the kernel log says."""
    count = gpu.get("ecc_uncorrected_volatile").number()
    if not count:
        return None
    summary = f"GPU {gpu.index} had {count} uncorrected memory errors since the driver was loaded"
    return Finding("ecc_uncorrected", Verdict.OK, summary, f"volatile uncorrected: {count}", at, gpu=who)


def _clocks(gpu: GpuReadings, who: GpuRef, at: float) -> Optional[Finding]:
    reasons = gpu.get("clocks_event_reasons").number() or 0
    bad = [words for bit, words in BAD_CLOCK_REASONS.items() if reasons & bit]
    if not bad:
        return None
    summary = f"GPU {gpu.index} is slowed down: {', '.join(bad)}"
    return Finding("clocks", Verdict.WARN, summary, f"clocks event reasons: {reasons:#x}", at, Action.RUN_DIAGNOSTICS, None, who)


def _all_in_order(state: NvmlState, findings: list[Finding], at: float) -> list[Finding]:
    """Say OK once per check that every GPU could answer and none was bad at; a check that none supports is named as such."""
    done = []
    accused = {finding.check for finding in findings if finding.verdict is not Verdict.OK}
    for check, reading, words in (
        ("recovery_action", "recovery_action", "no GPU asks to be recovered"),
        ("row_remap", "remapped_rows", "no row remap failed or waits"),
        ("clocks", "clocks_event_reasons", "no GPU is slowed down by heat or power"),
    ):
        states = {gpu.get(reading).state for gpu in state.gpus}
        if states == {OK} and not any(name.startswith(check) for name in accused):
            done.append(Finding(check, Verdict.OK, words, seen_at=at))
    return done
