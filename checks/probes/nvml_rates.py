"""Judges how fast a GPU's counters rise from look to look: links, PCIe, repairs of its memory, time at lowered clocks.

Counters are volatile: the driver clears them when it is loaded anew, and what goes backwards did not rise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from checks.model import Action, Finding, GpuRef, Verdict
from checks.probes.looks import Looks, Rise, Sample
from checks.probes.nvml_links import NVLINK_USUAL
from checks.probes.readings import OK, GpuReadings
from checks.thresholds import Thresholds

REPLAYS_PER_MINUTE_AND_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""PCIe replays that are normal, by generation; times the lanes, rounded up. Source: DCGM 4.6."""

RETIRED_PAGES_SOFT_LIMIT = 15
"""So many pages retired after double bit errors, and one more within a week: replace. Source: DCGM 4.6, NVIDIA's RMA policy."""

SETTLES_S = 300.0
"""What links count while they train after a boot is no base to judge by. Hotspare default: 5 minutes."""

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_SLOW_WINDOW_S = 600.0
_SLOW_SPAN_S = 480.0
"""Lowered clocks are judged over 10 minutes, and not over less than 8. Source of the window: gpud."""

_SLOW_BITS = 0x8 | 0x40 | 0x80
_IDLE = 0x1
"""Clocks event reasons: hardware slowdown, hardware thermal, power brake; idle. Source: nvml.h."""

_SLOW_COUNTERS = {
    "slow_hardware_thermal_ns": ("heat, by its hardware", Action.RUN_DIAGNOSTICS),
    "slow_power_brake_ns": ("the power brake", Action.CONTACT_SUPPORT),
    "slow_software_thermal_ns": ("heat, by its driver", Action.CONTACT_SUPPORT),
    "violation_thermal_ns": ("its thermal limit", Action.CONTACT_SUPPORT),
}
"""Times at lowered clocks that are faults. The power cap, board limit and reliability limit are normal under load."""


@dataclass(frozen=True)
class Rates:
    """What the counters of one GPU are judged by. `up_s` is how long the node is up, seconds, None where it is not known."""

    looks: Looks
    up_s: Optional[float] = None
    limits: Thresholds = Thresholds()  # noqa: RUF009 - frozen, so safely shared


def judge_rates(gpu: GpuReadings, who: GpuRef, rates: Rates, at: float) -> list[Finding]:
    """Return what rises too fast on one GPU, and note its counters for the next look. A GPU without UUID has no history."""
    one = _Counters(gpu, who, rates, at)
    found = [*_nvlink_crc(one), *_nvlink_errors(one), *_pcie_replays(one), *_pcie_nonfatal(one), *_c2c(one)]
    return [*found, *_row_remaps(one), *_retired_pages(one), *_slowed_down(one), *_seen_slow(one)]


class _Counters:
    """The counters of one GPU, by their name among the looks."""

    def __init__(self, gpu: GpuReadings, who: GpuRef, rates: Rates, at: float) -> None:
        self.gpu, self.who, self.rates, self.at = gpu, who, rates, at
        self._settled = rates.up_s is None or rates.up_s >= SETTLES_S

    def number(self, reading: str) -> Optional[int]:
        return self.gpu.get(reading).number()

    def rise(
        self, reading: str, value: float, window_s: float, *, across_boots: bool = False, min_span_s: float = _MINUTE_S / 2
    ) -> Optional[Rise]:
        """Tell how far a counter rose and note it. The base of a later look is none that links left while they trained."""
        if not self.who.uuid:
            return None
        name = f"nvml/{self.who.uuid}/{reading}"
        if self._settled or across_boots:
            self.rates.looks.note(name, value, across_boots=across_boots)
        return self.rates.looks.rise(name, value, window_s, across_boots=across_boots, min_span_s=min_span_s)

    def last(self, reading: str) -> Optional[Sample]:
        """What was noted at the last look of this boot."""
        looks = self.rates.looks
        past = looks.earlier.get(f"nvml/{self.who.uuid}/{reading}")
        return past[-1] if past and looks.boot_id and past[-1].boot_id == looks.boot_id else None

    def finding(
        self, check: str, summary: str, evidence: str, action: Action, verdict: Verdict = Verdict.WARN
    ) -> Iterable[Finding]:
        yield Finding(check, verdict, f"GPU {self.gpu.index} {summary}", evidence[:500], self.at, action, None, self.who)


def _errors(gpu: GpuReadings, reading: str) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Names of the counters that a GPU's links have, and those by link that are not zero."""
    errors = gpu.get(reading)
    return (errors.value["counters"], errors.value["nonzero"]) if errors.state == OK else ([], {})


def _nvlink_crc(one: _Counters) -> Iterable[Finding]:
    """Corrected by a replay, so normal up to a rate; above it the link works at less than its speed."""
    counters, nonzero = _errors(one.gpu, "nvlink_errors")
    states = one.gpu.get("nvlink_states")
    if "crc" not in counters or states.state != OK:
        return
    limit = one.rates.limits.nvlink_crc_per_s
    counts = {str(link): nonzero.get("crc", {}).get(str(link), 0) for link, state in enumerate(states.value) if state}
    rises = {link: one.rise(f"nvlink_crc/{link}", count, _MINUTE_S) for link, count in counts.items()}
    fast = {link: rise.per_second for link, rise in rises.items() if rise is not None and rise.per_second >= limit}
    if fast:
        summary = f"counts too many CRC errors on NVLink {', '.join(fast)}; a reset can wait for the job's end"
        evidence = ", ".join(f"link {link}: {rate:.0f} a second" for link, rate in fast.items())
        yield from one.finding("nvlink_crc", summary, f"{evidence}; {limit:g} are allowed (DCGM 4.6)", Action.RESET_GPU)


def _nvlink_errors(one: _Counters) -> Iterable[Finding]:
    """A replay or a recovery that is new is a fault of the link; old ones are told by `nvlink_errors` alone."""
    counters, nonzero = _errors(one.gpu, "nvlink_errors")
    rising = {}
    for name in counters:
        if name not in NVLINK_USUAL:
            rise = one.rise(f"nvlink_{name}", sum(nonzero.get(name, {}).values()), _HOUR_S)
            if rise is not None and rise.amount > 0:
                rising[name] = rise
    if rising:
        words = ", ".join(name.replace("_", " ") for name in rising)
        summary = f"counts new errors on its NVLinks ({words}); a reset can wait for the job's end"
        parts = [f"{name.replace('_', ' ')}: {_told(rise)} on link {', '.join(nonzero[name])}" for name, rise in rising.items()]
        evidence = "; ".join(parts)
        yield from one.finding("nvlink_errors_rising", summary, f"{evidence}; none is allowed (DCGM 4.6)", Action.RESET_GPU)


def _pcie_replays(one: _Counters) -> Iterable[Finding]:
    """Judge the last minutes; without an earlier look the mean since boot, below which the true rate cannot be."""
    replays, width = one.number("pcie_replays"), one.number("pcie_width")
    per_lane = REPLAYS_PER_MINUTE_AND_LANE.get(one.number("pcie_generation_max") or 0)
    if replays is None or not width or per_lane is None:
        return
    rise = one.rise("pcie_replays", replays, _MINUTE_S)
    if rise is None and one.rates.up_s:
        rise = Rise(replays, max(60.0, one.rates.up_s))
    limit = math.ceil(per_lane * width)
    if rise is not None and rise.amount > limit * rise.seconds / 60.0:
        summary = f"repeats {rise.per_minute:.0f} PCIe packets a minute; {limit} are normal"
        evidence = (
            f"NVML counts {_told(rise)}; normal for {width} lanes of generation {one.number('pcie_generation_max')} (DCGM 4.6)"
        )
        yield from one.finding("pcie_replays", summary, evidence, Action.RUN_DIAGNOSTICS)


def _pcie_nonfatal(one: _Counters) -> Iterable[Finding]:
    count = one.number("pcie_nonfatal")
    if count is None:
        return
    rise = one.rise("pcie_nonfatal", count, _HOUR_S)
    if rise is not None and rise.amount > 0:
        evidence = f"NVML field 179: {_told(rise)}"
        yield from one.finding("pcie_nonfatal", "counts new non-fatal PCIe errors", evidence, Action.RUN_DIAGNOSTICS)
    elif count:
        summary = f"had {count} non-fatal PCIe errors since the driver was loaded"
        yield from one.finding("pcie_nonfatal", summary, f"NVML field 179 = {count}", Action.NONE, Verdict.OK)


def _c2c(one: _Counters) -> Iterable[Finding]:
    """Replays are corrected by the link itself (XID 121); errors that interrupt are not."""
    counters, nonzero = _errors(one.gpu, "c2c_errors")
    if "interrupt_errors" not in counters:
        return
    rise = one.rise("c2c_interrupt_errors", sum(nonzero.get("interrupt_errors", {}).values()), _HOUR_S)
    if rise is not None and rise.amount > 0:
        evidence = f"NVML field 231: {_told(rise)}"
        yield from one.finding("c2c_errors", "counts new errors on its links to the CPU", evidence, Action.RUN_DIAGNOSTICS)


def _row_remaps(one: _Counters) -> Iterable[Finding]:
    """Remapped rows are kept on the board, so they are counted over all boots. Rows that fail one after another go on failing."""
    rows = one.gpu.get("remapped_rows")
    if rows.state != OK:
        return
    limit = one.rates.limits.row_remaps_per_30_days
    rise = one.rise("remapped_rows_uncorrected", int(rows.value[1]), 30 * _DAY_S, across_boots=True)
    if rise is not None and rise.amount >= limit:
        summary = f"remapped {rise.amount:g} memory rows after uncorrected errors in the last {_span(rise)}"
        evidence = f"{rows.value[1]} in all; {limit:g} in 30 days call for diagnostics (Hotspare default)"
        yield from one.finding("row_remap_rate", summary, evidence, Action.RUN_DIAGNOSTICS)


def _retired_pages(one: _Counters) -> Iterable[Finding]:
    """GPUs before Ampere retire pages; these too are kept on the board."""
    pages = one.number("retired_pages_dbe")
    if pages is None:
        return
    rise = one.rise("retired_pages_dbe", pages, 7 * _DAY_S, across_boots=True)
    if rise is not None and rise.amount >= 1 and rise.seconds <= 14 * _DAY_S and pages > RETIRED_PAGES_SOFT_LIMIT:
        summary = f"retired {rise.amount:g} more memory pages in the last {_span(rise)}, {pages} in all"
        evidence = f"more than {RETIRED_PAGES_SOFT_LIMIT} after double bit errors and one more in a week (DCGM 4.6)"
        yield from one.finding("retired_pages", summary, evidence, Action.REPLACE_NODE)


def _slowed_down(one: _Counters) -> Iterable[Finding]:
    """The driver counts the time at lowered clocks itself, where it can."""
    limit = one.rates.limits.slowdown_percent
    for reading, (words, action) in _SLOW_COUNTERS.items():
        count = one.number(reading)
        rise = None if count is None else one.rise(reading, count, _SLOW_WINDOW_S, min_span_s=_SLOW_SPAN_S)
        percent = 0.0 if rise is None else 100.0 * rise.amount / 1e9 / rise.seconds
        if rise is not None and percent >= limit:
            summary = f"was slowed down by {words} for {min(percent, 100):.0f} % of the last {_span(rise)}"
            yield from one.finding("slowdown", summary, f"{reading}: {_told(rise)}; {limit:g} % alarm (gpud)", action)


def _seen_slow(one: _Counters) -> Iterable[Finding]:
    """For drivers that do not count the time: sum up the time between looks of which the later saw the GPU slow under load."""
    reasons = one.number("clocks_event_reasons")
    if reasons is None or one.number("slow_hardware_thermal_ns") is not None:
        return
    last = one.last("seen_slow_s")
    passed = min(one.at - last.at, _SLOW_WINDOW_S) if last else 0.0
    is_slow = bool(reasons & _SLOW_BITS) and not reasons & _IDLE
    seconds = (last.value if last else 0.0) + passed * is_slow
    rise = one.rise("seen_slow_s", seconds, _SLOW_WINDOW_S, min_span_s=_SLOW_SPAN_S)
    limit = one.rates.limits.slowdown_percent
    if rise is not None and 100.0 * rise.amount / rise.seconds >= limit:
        summary = f"was slowed down by its hardware at {100 * rise.amount / rise.seconds:.0f} % of the last {_span(rise)}"
        evidence = f"clocks event reasons now {reasons:#x}; {limit:g} % alarm (gpud: 0.6 a minute over 10 minutes)"
        yield from one.finding("slowdown", summary, evidence, Action.RUN_DIAGNOSTICS)


def _told(rise: Rise) -> str:
    return f"{rise.amount:g} more in {_span(rise)}"


def _span(rise: Rise) -> str:
    for unit, seconds in (("days", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S)):
        if rise.seconds >= 2 * seconds:
            return f"{rise.seconds / seconds:.0f} {unit}"
    return f"{rise.seconds:.0f} s"
