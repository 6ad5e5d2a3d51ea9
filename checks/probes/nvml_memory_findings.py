"""Judges a GPU's memory by what NVML says: failed and waiting repairs, spare rows, SRAM errors, ECC mode."""

from __future__ import annotations

import re
from collections.abc import Iterable

from checks.model import Action, Finding, GpuRef, Verdict
from checks.probes.readings import OK, GpuReadings

REMAPPED_ROWS_LIMIT = 512
"""Uncorrected row remaps of one GPU in all. Source: NVIDIA GPU memory error management guide; DCGM 4.6 warns here."""

RETIRED_PAGES_LIMIT = 63
"""Retired pages of a GPU before Ampere. Source: DCGM 4.6."""

_NO_DATA_CENTRE_GPU = re.compile(r"GeForce|TITAN|Quadro|RTX", re.IGNORECASE)
"""GPUs that people run without ECC on purpose."""


def judge_memory(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """Yield what is wrong with one GPU's memory; the order is that of `hotspare explain ecc`."""
    yield from _unrepairable(gpu, who, at)
    yield from _remapped_rows(gpu, who, at)
    yield from _sram(gpu, who, at)
    yield from _repair_pending(gpu, who, at)
    yield from _spare_rows(gpu, who, at)
    yield from _banks(gpu, who, at)
    yield from _retired_pages(gpu, who, at)
    yield from _ecc_mode(gpu, who, at)
    yield from _uncorrected(gpu, who, at)


def _unrepairable(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    if gpu.get("memory_unrepairable").number():
        summary = f"GPU {gpu.index} has memory that cannot be repaired; NVIDIA's criterion for a replacement"
        evidence = "NVML's flag of unrepairable memory is set"
        yield Finding("memory_unrepairable", Verdict.CRITICAL, summary, evidence, at, Action.REPLACE_NODE, None, who)


def _remapped_rows(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    rows = gpu.get("remapped_rows")
    if rows.state != OK:
        return
    corrected, uncorrected, pending, failure = rows.value[:4]
    evidence = f"remapped rows: {corrected} corrected, {uncorrected} uncorrected, pending {pending}, failure {failure}"
    if failure:
        summary = f"GPU {gpu.index} has no spare memory row left (row-remap failure flag); NVIDIA's criterion for a replacement"
        yield Finding("row_remap_failure", Verdict.CRITICAL, summary, evidence, at, Action.REPLACE_NODE, None, who)
        return
    if pending:
        summary = f"GPU {gpu.index} waits for a reset to remap a bad memory row; it can wait for the job's end"
        yield Finding("row_remap_pending", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)
    if uncorrected >= REMAPPED_ROWS_LIMIT:
        summary = f"GPU {gpu.index} has remapped {uncorrected} memory rows, as many as it can; the next fault cannot be repaired"
        yield Finding("row_remap_limit", Verdict.WARN, summary, evidence, at, Action.REPLACE_NODE, None, who)


def _sram(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """The flag is NVIDIA's word; without it, errors since the last reset ask for one when the job allows it."""
    status = gpu.get("sram_ecc")
    detail = status.value if status.state == OK else {}
    if detail.get("bThresholdExceeded"):
        summary = f"GPU {gpu.index} has had more uncorrected SRAM errors than NVIDIA allows (threshold flag)"
        evidence = ", ".join(f"{name} {count}" for name, count in detail.items() if count)
        yield Finding("sram_threshold", Verdict.WARN, summary, evidence, at, Action.REPLACE_NODE, None, who)
        return
    count = gpu.get("ecc_uncorrected_volatile_sram").number()
    if count is None and status.state == OK:
        count = detail.get("volatileUncParity", 0) + detail.get("volatileUncSecDed", 0)
    if count and count > 0:
        summary = (
            f"GPU {gpu.index} had {count} uncorrected SRAM errors, which no remap repairs; a reset can wait for the job's end"
        )
        evidence = f"volatile uncorrected SRAM: {count}"
        yield Finding("ecc_sram_uncorrected", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)


def _repair_pending(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    status = gpu.get("repair_pending")
    waiting = [name for name, flag in zip(("memory channel", "TPC"), status.value) if flag] if status.state == OK else []
    if waiting:
        summary = f"GPU {gpu.index} waits for a reset to repair itself ({', '.join(waiting)}); it can wait for the job's end"
        evidence = f"repair pending: channel {status.value[0]}, TPC {status.value[1]}"
        yield Finding("repair_pending", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)


def _spare_rows(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """An early warning. A bank with few rows left works; one with none left fails at its next fault."""
    banks = gpu.get("row_remap_histogram")
    if banks.state != OK or not (banks.value["low"] or banks.value["none"]):
        return
    verdict = Verdict.WARN if banks.value["none"] else Verdict.OK
    summary = f"GPU {gpu.index}: {banks.value['none']} memory banks have no spare row left, {banks.value['low']} have few"
    evidence = "banks by spare rows left: " + ", ".join(f"{name} {count}" for name, count in banks.value.items())
    yield Finding("spare_rows", verdict, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, who)


def _banks(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """Whole banks are remapped as rows are: at the next reset, from a stock of spare ones. Drivers before 615 cannot say."""
    numbers = {
        name: gpu.get(f"bank_{name}").number() for name in ("remap_pending", "remaps_active", "groups_full", "groups_none")
    }
    evidence = "banks: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in numbers.items() if n is not None)
    if numbers["remap_pending"]:
        summary = f"GPU {gpu.index} waits for a reset to remap a bad memory bank; it can wait for the job's end"
        yield Finding("bank_remap_pending", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)
    if numbers["groups_none"]:
        summary = f"GPU {gpu.index}: {numbers['groups_none']} groups of memory banks have no spare bank left"
        yield Finding("spare_banks", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, who)


def _retired_pages(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    retired = (gpu.get("retired_pages_sbe").number() or 0) + (gpu.get("retired_pages_dbe").number() or 0)
    pending = sum(gpu.get(f"retired_pages_pending{kind}").number() or 0 for kind in ("", "_sbe", "_dbe"))
    evidence = f"retired pages: {retired}, pending {pending}"
    if retired >= RETIRED_PAGES_LIMIT:
        summary = f"GPU {gpu.index} has retired {retired} memory pages, as many as it can"
        yield Finding("retired_pages", Verdict.WARN, summary, evidence, at, Action.REPLACE_NODE, None, who)
    elif pending:
        summary = f"GPU {gpu.index} waits for a reset to retire a memory page; it can wait for the job's end"
        yield Finding("page_retirement_pending", Verdict.WARN, summary, evidence, at, Action.RESET_GPU, None, who)


def _ecc_mode(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    mode = gpu.get("ecc_mode")
    if mode.state != OK or mode.value[0] or _NO_DATA_CENTRE_GPU.search(gpu.get("name").text()):
        return
    later = "a reboot switches it on" if mode.value[1] else "it stays off after a reboot"
    summary = f"GPU {gpu.index} runs without ECC, so memory errors go unseen; {later}"
    evidence = f"ECC mode: current {mode.value[0]}, pending {mode.value[1]}"
    yield Finding("ecc_mode", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, who)


def _uncorrected(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """Uncorrected errors by themselves ask for nothing: they were contained or remapped. They back what the kernel log says."""
    count = gpu.get("ecc_uncorrected_volatile").number()
    if count:
        parts = [(place, gpu.get(f"ecc_uncorrected_volatile_{place}").number()) for place in ("dram", "sram")]
        evidence = f"volatile uncorrected: {count}" + "".join(f", {name} {part}" for name, part in parts if part is not None)
        summary = f"GPU {gpu.index} had {count} uncorrected memory errors since the driver was loaded"
        yield Finding("ecc_uncorrected", Verdict.OK, summary, evidence, at, gpu=who)
