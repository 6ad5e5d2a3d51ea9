"""Judges a GPU's condition by what NVML says: slowed down, too hot, held to less power, a broken InfoROM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from checks.model import Action, Finding, GpuRef, Verdict
from checks.probes.readings import OK, GpuReadings

BAD_CLOCK_REASONS = {
    0x8: ("hardware slowdown", Action.RUN_DIAGNOSTICS),
    0x40: ("hardware thermal slowdown", Action.RUN_DIAGNOSTICS),
    0x80: ("power brake", Action.CONTACT_SUPPORT),
    0x20: ("software thermal slowdown", Action.CONTACT_SUPPORT),
}
"""Clocks event reasons that are faults; a brake is the power supply, software thermal the cooling of the rack.

All other bits are normal or not known. Source: nvml.h.
"""


def judge_condition(gpu: GpuReadings, peers: Sequence[GpuReadings], who: GpuRef, at: float) -> Iterable[Finding]:
    """Yield what slows one GPU. `peers` are all GPUs of the node."""
    yield from _clocks(gpu, who, at)
    yield from _margin(gpu, who, at)
    yield from _power_limit(gpu, peers, who, at)
    yield from _inforom(gpu, who, at)


def _clocks(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    reasons = gpu.get("clocks_event_reasons").number() or 0
    bad = [meaning for bit, meaning in BAD_CLOCK_REASONS.items() if reasons & bit]
    if bad:
        summary = f"GPU {gpu.index} is slowed down: {', '.join(words for words, _ in bad)}"
        evidence = f"clocks event reasons: {reasons:#x}"
        yield Finding("clocks", Verdict.WARN, summary, evidence, at, bad[0][1], None, who)


def _margin(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """The margin to the limit temperature is healthy above 0; GPUs may run below it down to their slowdown offset."""
    margin = gpu.get("thermal_margin_c").number()
    offset = gpu.get("slowdown_margin_c").number()
    # An offset above 0 is an absolute temperature, as A100 boards give it.
    limit = min(0, offset) if offset is not None else 0
    if margin is not None and margin < limit:
        summary = f"GPU {gpu.index} is too hot: its thermal margin is {margin} °C, it slows down at {limit} °C"
        evidence = f"margin {margin} °C, temperature {gpu.get('temperature_c').text() or 'not known'} °C"
        yield Finding("thermal_margin", Verdict.WARN, summary, evidence, at, Action.CONTACT_SUPPORT, None, who)
    elif margin is None:
        yield from _too_hot(gpu, "temperature_c", "slowdown_temperature_c", "", who, at)
    yield from _too_hot(gpu, "memory_temperature_c", "memory_max_temperature_c", "'s memory", who, at)


def _too_hot(gpu: GpuReadings, reading: str, limit_reading: str, part: str, who: GpuRef, at: float) -> Iterable[Finding]:
    """Judge by an absolute limit, where the GPU has one; a limit of 0 is none."""
    temperature, limit = gpu.get(reading).number(), gpu.get(limit_reading).number()
    if temperature is not None and limit and temperature >= limit:
        summary = f"GPU {gpu.index}{part} is too hot: {temperature} °C, its limit is {limit} °C"
        evidence = f"{reading} {temperature}, {limit_reading} {limit} (NVML's threshold of this board)"
        yield Finding("thermal_margin", Verdict.WARN, summary, evidence, at, Action.CONTACT_SUPPORT, None, who)


def _power_limit(gpu: GpuReadings, peers: Sequence[GpuReadings], who: GpuRef, at: float) -> Iterable[Finding]:
    """A limit lowered on every GPU alike is somebody's wish; one lowered on this GPU only makes it the slow one."""
    limit, default = gpu.get("power_limit_mw").number(), gpu.get("power_limit_default_mw").number()
    others = [peer.get("power_limit_mw") for peer in peers]
    usual = max((int(one.value) for one in others if one.state == OK), default=0)
    if limit is None or default is None or limit >= min(default, usual):
        return
    summary = f"GPU {gpu.index} may draw {limit / 1000:g} W, others here {usual / 1000:g} W"
    evidence = f"enforced limit {limit / 1000:g} W, default {default / 1000:g} W"
    yield Finding("power_limit", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, who)


def _inforom(gpu: GpuReadings, who: GpuRef, at: float) -> Iterable[Finding]:
    """The board's own memory holds its repairs and settings: a reboot reads it anew, a second time is a bad board."""
    if gpu.get("inforom_corrupt").number():
        summary = f"GPU {gpu.index} has a corrupted InfoROM, where repairs of its memory are kept"
        evidence = "NVML: the InfoROM is corrupted (DCGM 4.6: DCGM_FR_CORRUPT_INFOROM)"
        yield Finding("inforom", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, who)
