"""Judges what NVML says of the GPUs: lost, unreadable, asking to be recovered; and what memory, links and condition say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Optional

from checks.catalog import assess_recovery
from checks.model import Action, Finding, GpuRef, Verdict
from checks.pci_address import canonical
from checks.probes.looks import Looks
from checks.probes.nvml_condition_findings import judge_condition
from checks.probes.nvml_link_findings import judge_links
from checks.probes.nvml_memory_findings import judge_memory
from checks.probes.nvml_rates import Rates, judge_rates
from checks.probes.readings import ERROR, LOST, NO_PERMISSION, OK, GpuReadings, NvmlState, Reading
from checks.thresholds import Thresholds

MUST_ANSWER = frozenset(
    {
        *("handle", "uuid", "serial", "name", "pci", "memory_total_bytes", "memory_used_bytes", "process_ids"),
        *("ecc_uncorrected_volatile", "ecc_uncorrected_aggregate", "ecc_mode", "remapped_rows", "repair_pending"),
        *("recovery_action", "temperature_c", "clocks_event_reasons"),
    }
)
"""Readings that a GPU in order can give or does not support: one of them failed leaves the GPU's state unknown.

A GPU in a bad state fails at its memory counters first. Source: NVIDIA GPU memory error management guide; Hotspare default.
"""


def gpu_ref(gpu: GpuReadings) -> GpuRef:
    """Return the GPU's identity as far as it could be read."""
    pci = gpu.get("pci").text()
    return GpuRef(gpu.index, gpu.get("uuid").text(), canonical(pci) if pci else "", gpu.get("serial").text())


def judge_nvml(
    state: NvmlState,
    at: float,
    uptime_s: Optional[float] = None,
    looks: Optional[Looks] = None,
    limits: Thresholds = Thresholds(),  # noqa: B008 - frozen, so safely shared
) -> list[Finding]:
    """Return the findings of one look at NVML; `at` is its Unix time, `uptime_s` how long the node is up.

    `looks` are the counters of earlier ones, to which this one's are added; without them nothing is known of how fast they rise.
    """
    if state.outcome != "read":
        return [_unread(state, at)]
    rates = Rates(looks or Looks("", at), uptime_s, limits)
    findings = [finding for gpu in state.gpus for finding in _judge_gpu(gpu, state.gpus, at, rates)]
    summary = f"{len(state.gpus)} GPUs answer, driver {state.driver_version or 'not known'}"
    lost = [finding for finding in findings if finding.check in ("gpu_lost", "unreadable")]
    if not lost:
        findings.append(Finding("nvml", Verdict.OK, summary, _unanswered(state), at))
    return findings + _all_in_order(state, findings, at)


def _unread(state: NvmlState, at: float) -> Finding:
    if state.outcome == "hung":
        return Finding("nvml_hung", Verdict.CRITICAL, f"the driver hangs: {state.detail}", "", at, Action.REBOOT_NODE)
    if state.outcome == "mismatch":
        return Finding("driver_mismatch", Verdict.WARN, f"driver and library differ: {state.detail}", "", at)
    return Finding("nvml", Verdict.UNKNOWN, f"the GPUs could not be read: {state.detail}", state.outcome, at)


def _judge_gpu(gpu: GpuReadings, peers: Sequence[GpuReadings], at: float, rates: Rates) -> Iterable[Finding]:
    who = gpu_ref(gpu)
    lost = sorted(name for name, reading in gpu.values.items() if reading.state == LOST)
    if lost:
        summary = f"GPU {gpu.index} is lost: the driver cannot reach it"
        yield Finding("gpu_lost", Verdict.CRITICAL, summary, f"lost: {', '.join(lost)}", at, Action.REBOOT_NODE, None, who)
        return
    failed = {name: reading.detail for name, reading in gpu.values.items() if _is_missed(name, reading)}
    if failed:
        evidence = "; ".join(f"{name}: {detail}" for name, detail in sorted(failed.items()))
        yield Finding("unreadable", Verdict.UNKNOWN, f"GPU {gpu.index} does not answer every question", evidence, at, gpu=who)
    found = [*_recovery(gpu, who, at), *judge_memory(gpu, who, at), *judge_condition(gpu, peers, who, at)]
    found += [*judge_links(gpu, peers, who, at, rates.up_s), *judge_rates(gpu, who, rates, at)]
    yield from (_for_mig(gpu, one) for one in found)
    if mig_is_on(gpu):
        summary = f"GPU {gpu.index} is split by MIG: it cannot be reset by itself, nor diagnosed, nor tell of its row remaps"
        yield Finding("mig", Verdict.OK, summary, f"MIG mode: {gpu.get('mig_mode').value}", at, gpu=who)


def _for_mig(gpu: GpuReadings, finding: Finding) -> Finding:
    """A GPU that is split by MIG cannot be reset while its instances exist: what needs a reset needs the node."""
    if finding.action is not Action.RESET_GPU or not mig_is_on(gpu):
        return finding
    evidence = "; ".join(filter(None, (finding.evidence, "MIG is on, so a reset of the GPU is not supported: reboot the node")))
    return replace(finding, action=Action.REBOOT_NODE, evidence=evidence)


def mig_is_on(gpu: GpuReadings) -> bool:
    """Say whether a GPU is split into instances now."""
    mode = gpu.get("mig_mode")
    return mode.state == OK and bool(mode.value[0])


def _is_missed(name: str, reading: Reading) -> bool:
    return name in MUST_ANSWER and reading.state == ERROR and reading.detail != NO_PERMISSION


def _unanswered(state: NvmlState) -> str:
    """Name the readings that failed on some GPU without making its state unknown, with the first reason."""
    why: dict[str, str] = {}
    for gpu in state.gpus:
        for name, reading in gpu.values.items():
            if reading.state == ERROR:
                why.setdefault(name, reading.detail)
    return "; ".join(f"{name} could not be read: {detail}" for name, detail in sorted(why.items()))[:500]


def _recovery(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    number = gpu.get("recovery_action").number()
    if not number:
        return
    meaning = assess_recovery(number, f"GPU {gpu.index}")
    verdict = Verdict.WARN if meaning.interrupts_job == "at_boundary" else Verdict.CRITICAL
    yield Finding("recovery_action", verdict, meaning.because, f"NVML field 230 = {number}", at, meaning.action, None, who)


def _all_in_order(state: NvmlState, findings: list[Finding], at: float) -> list[Finding]:
    """Say OK once per check that every GPU could answer and of none there was anything to tell."""
    done = []
    told = {finding.check for finding in findings}
    for check, reading, words in (
        ("recovery_action", "recovery_action", "no GPU asks to be recovered"),
        ("row_remap", "remapped_rows", "no row remap failed or waits"),
        ("clocks", "clocks_event_reasons", "no GPU is slowed down by heat or power"),
        ("repair_pending", "repair_pending", "no GPU waits for a reset to repair itself"),
        ("sram_threshold", "sram_ecc", "no GPU is above NVIDIA's threshold of SRAM errors"),
        ("nvlink", "nvlink_errors", "no NVLink is down or counts errors that matter"),
        ("fabric", "fabric", "every GPU is in order in the NVSwitch fabric"),
        ("pcie", "pcie_width", "every PCIe link is as wide as it can be and had no fatal error"),
    ):
        states = {gpu.get(reading).state for gpu in state.gpus}
        if states == {OK} and not any(name.startswith(check) for name in told):
            done.append(Finding(check, Verdict.OK, words, seen_at=at))
    return done
