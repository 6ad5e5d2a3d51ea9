"""Where nvidia-smi's XML (`nvidia-smi -q -x`) prints what the probe reads, and how the two are compared."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DRIFTS = {
    "temperature_c": 5,
    "memory_temperature_c": 5,
    "thermal_margin_c": 5,
    "memory_used_bytes": 512 << 20,
    "power_mw": 100_000,
    "clock_sm_mhz": 2000,
    "clock_memory_mhz": 3000,
    "violation_power_ns": 5_000_000_000,
    "slow_software_thermal_ns": 1_000_000_000,
    "slow_hardware_thermal_ns": 1_000_000_000,
    "slow_power_brake_ns": 1_000_000_000,
}
"""Readings that change between two looks, and by how much they may. The GPU is idle but wakes up when it is asked."""

NOT_PRINTED = {
    "handle": "no value",
    "process_ids": "compared by the test itself",
    "nvlink_count": "nvidia-smi nvlink",
    "nvlink_states": "nvidia-smi nvlink",
    "nvlink_speeds": "nvidia-smi nvlink",
    "nvlink_errors": "nvidia-smi nvlink",
    "nvlink_quality": "nvidia-smi nvlink; in a deep look alone",
    "c2c_count": "nvidia-smi c2c",
    "c2c_states": "nvidia-smi c2c",
    "c2c_errors": "nvidia-smi c2c",
    "inforom_corrupt": "a warning below nvidia-smi's table",
    **{f"violation_{name}_ns": "fields of NVML alone" for name in ("thermal", "board_limit", "reliability")},
    **{f"remapped_rows_{kind}_inactive": "fields of NVML alone" for kind in ("corrected", "uncorrected")},
    **{f"bank_{name}": "fields of NVML alone" for name in ("remaps_active", "remaps_inactive", "groups_full", "groups_none")},
    "bank_remap_pending": "fields of NVML alone",
    "retired_pages_pending_sbe": "nvidia-smi prints one flag for both",
    "retired_pages_pending_dbe": "nvidia-smi prints one flag for both",
    "clocks_event_reasons": "compared bit by bit",
    "ecc_corrected_volatile": "nvidia-smi prints it by place",
    "ecc_corrected_aggregate": "nvidia-smi prints it by place",
    "ecc_uncorrected_volatile": "nvidia-smi prints it by place",
    "ecc_uncorrected_aggregate": "nvidia-smi prints it by place",
    **{
        f"pcie_{name}": "fields of NVML alone"
        for name in (
            *("l0_to_recovery", "correctable", "naks_received", "receiver_errors", "bad_tlp", "naks_sent", "bad_dllp"),
            *("nonfatal", "fatal", "unsupported_requests", "lcrc_errors", "lane_errors"),
        )
    },
}
"""Readings that are not in the XML as they are, and why."""

_SWITCH = {"Enabled": 1, "Disabled": 0, "Yes": 1, "No": 0, "Active": 1, "Not Active": 0, "Pending": 1}
_COMPUTE = {"Default": 0, "Exclusive_Thread": 1, "Prohibited": 2, "Exclusive_Process": 3}
_RECOVERY = {"None": 0, "Reset": 1, "GPU Reset": 1, "Reboot": 2, "Node Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
_FABRIC = {"N/A": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
_UNIT = {"MiB": 1 << 20, "W": 1000, "us": 1000}


def _text(printed: str) -> Any:
    return printed


def _number(printed: str) -> Any:
    """A number in the probe's unit: bytes for MiB, mW for W, ns for us; units that are the same are dropped."""
    match = re.match(r"(-?[\d.]+)\s*(\w*)", printed)
    if not match:
        return printed
    return round(float(match.group(1)) * _UNIT.get(match.group(2), 1))


def _word(words: Mapping[str, int]) -> Callable[[str], Any]:
    return lambda printed: words.get(printed, printed)


@dataclass(frozen=True)
class Printed:
    """The paths under `<gpu>` that are tried in turn, and how the text there is read. `part` picks from a list or an object."""

    paths: tuple[str, ...]
    read: Callable[[str], Any] = _number
    part: Any = None


def _ecc(counter: str) -> dict[str, list[Printed]]:
    root = f"ecc_errors/{counter}"
    return {
        f"ecc_corrected_{counter}_dram": [Printed((f"{root}/dram_correctable",))],
        f"ecc_uncorrected_{counter}_dram": [Printed((f"{root}/dram_uncorrectable",))],
        f"ecc_corrected_{counter}_sram": [Printed((f"{root}/sram_correctable",))],
        f"ecc_uncorrected_{counter}_sram": [Printed((f"{root}/sram_uncorrectable",))],
    }


def _each(parts: Mapping[Any, str], root: str, read: Callable[[str], Any] = _number) -> list[Printed]:
    return [Printed((f"{root}{path}",), read, part) for part, path in parts.items()]


FIELDS: dict[str, list[Printed]] = {
    "uuid": [Printed(("uuid",), _text)],
    "serial": [Printed(("serial",), _text)],
    "name": [Printed(("product_name",), _text)],
    "pci": [Printed(("pci/pci_bus_id",), _text)],
    "memory_total_bytes": [Printed(("fb_memory_usage/total",))],
    "memory_used_bytes": [Printed(("fb_memory_usage/used",))],
    "ecc_mode": _each({0: "current_ecc", 1: "pending_ecc"}, "ecc_mode/", _word(_SWITCH)),
    **_ecc("volatile"),
    **_ecc("aggregate"),
    "sram_ecc": [
        Printed(("ecc_errors/aggregate/sram_threshold_exceeded",), _word(_SWITCH), "bThresholdExceeded"),
        *_each({"volatileUncParity": "parity", "volatileUncSecDed": "secded"}, "ecc_errors/volatile/sram_uncorrectable_"),
        *_each({"aggregateUncParity": "parity", "aggregateUncSecDed": "secded"}, "ecc_errors/aggregate/sram_uncorrectable_"),
    ],
    "remapped_rows": [
        *_each({0: "corr", 1: "unc"}, "remapped_rows/remapped_row_"),
        *_each({2: "pending", 3: "failure"}, "remapped_rows/remapped_row_", _word(_SWITCH)),
    ],
    "row_remap_histogram": _each(
        {name: name for name in ("max", "high", "partial", "low", "none")},
        "remapped_rows/row_remapper_histogram/row_remapper_histogram_",
    ),
    "repair_pending": [
        Printed((f"ecc_errors/{name}_repair_pending",), _word(_SWITCH), part) for part, name in enumerate(("channel", "tpc"))
    ],
    "memory_unrepairable": [Printed(("ecc_errors/unrepairable_memory",), _word(_SWITCH))],
    "recovery_action": [Printed(("gpu_recovery_action",), _word(_RECOVERY))],
    "retired_pages_sbe": [Printed(("retired_pages/multiple_single_bit_retirement/retired_count",))],
    "retired_pages_dbe": [Printed(("retired_pages/double_bit_retirement/retired_count",))],
    "retired_pages_pending": [Printed(("retired_pages/pending_retirement", "retired_pages/pending_blacklist"), _word(_SWITCH))],
    "temperature_c": [Printed(("temperature/gpu_temp",))],
    "memory_temperature_c": [Printed(("temperature/memory_temp",))],
    "thermal_margin_c": [Printed(("temperature/gpu_temp_tlimit",))],
    "shutdown_margin_c": [Printed(("temperature/gpu_temp_max_tlimit_threshold",))],
    "slowdown_margin_c": [Printed(("temperature/gpu_temp_slow_tlimit_threshold",))],
    "gpu_max_margin_c": [Printed(("temperature/gpu_temp_max_gpu_tlimit_threshold",))],
    "memory_max_margin_c": [Printed(("temperature/gpu_temp_max_mem_tlimit_threshold",))],
    **{
        reading: [Printed((f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}",))]
        for reading, name in (
            ("violation_power_ns", "sw_power_cap"),
            ("slow_software_thermal_ns", "sw_therm_slowdown"),
            ("slow_hardware_thermal_ns", "hw_therm_slowdown"),
            ("slow_power_brake_ns", "hw_power_brake"),
        )
    },
    "slowdown_temperature_c": [Printed(("temperature/gpu_temp_slow_threshold",))],
    "memory_max_temperature_c": [Printed(("temperature/gpu_temp_max_mem_threshold",))],
    "clock_sm_mhz": [Printed(("clocks/sm_clock",))],
    "clock_memory_mhz": [Printed(("clocks/mem_clock",))],
    "clock_sm_max_mhz": [Printed(("max_clocks/sm_clock",))],
    "clock_application_mhz": [Printed(("applications_clocks/graphics_clock",))],
    "power_mw": [Printed(("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw"))],
    "power_limit_mw": [Printed(("gpu_power_readings/current_power_limit", "gpu_power_readings/enforced_power_limit"))],
    "power_limit_default_mw": [Printed(("gpu_power_readings/default_power_limit",))],
    "pcie_generation": [Printed(("pci/pci_gpu_link_info/pcie_gen/current_link_gen",))],
    "pcie_generation_max": [Printed(("pci/pci_gpu_link_info/pcie_gen/max_link_gen",))],
    "pcie_width": [Printed(("pci/pci_gpu_link_info/link_widths/current_link_width",))],
    "pcie_width_max": [Printed(("pci/pci_gpu_link_info/link_widths/max_link_width",))],
    "pcie_replays": [Printed(("pci/replay_counter",))],
    "pcie_replay_rollovers": [Printed(("pci/replay_rollover_counter",))],
    "fabric": [Printed(("fabric/state",), _word(_FABRIC), "state")],
    "mig_mode": _each({0: "current_mig", 1: "pending_mig"}, "mig_mode/", _word(_SWITCH)),
    "persistence_mode": [Printed(("persistence_mode",), _word(_SWITCH))],
    "compute_mode": [Printed(("compute_mode",), _word(_COMPUTE))],
}
REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}


@dataclass(frozen=True)
class Row:
    """One comparison. `verdict` is same, differs, drifted (a difference that may be) or not printed."""

    gpu: int
    reading: str
    probe: str
    smi: str
    verdict: str


def compare(gpu: ElementTree.Element, index: int, values: Mapping[str, list[Any]]) -> list[Row]:
    """Compare one GPU's readings, as `[state, value]`, with its element of the XML."""
    rows = [_row(gpu, index, name, values[name], field) for name in values for field in FIELDS.get(name, [])]
    return [*rows, *_reasons(gpu, index, values.get("clocks_event_reasons", ["error", None]))]


def _row(gpu: ElementTree.Element, index: int, name: str, reading: list[Any], field: Printed) -> Row:
    printed = next((found.strip() for path in field.paths if (found := gpu.findtext(path)) is not None), None)
    label = name if field.part is None else f"{name}[{field.part}]"
    state, value = reading[0], reading[1]
    if state == "ok" and field.part is not None:
        value = value[field.part] if not isinstance(value, dict) else value.get(field.part)
    shown = str(value) if state == "ok" else state
    if printed is None:
        return Row(index, label, shown, "", "not printed")
    unread = printed in ("N/A", "[N/A]", "[Not Supported]", "Unknown Error", "Requested functionality has been deprecated")
    if state != "ok" or unread:
        return Row(index, label, shown, printed, "same" if (state != "ok") == unread else "differs")
    read = field.read(printed)
    if read == value:
        return Row(index, label, shown, printed, "same")
    near = isinstance(read, int) and abs(read - value) <= max(DRIFTS.get(name, 0), (1 << 20) - 1 if name.endswith("bytes") else 0)
    return Row(index, label, shown, printed, "drifted" if near else "differs")


def _reasons(gpu: ElementTree.Element, index: int, reading: list[Any]) -> list[Row]:
    """The idle bit drifts: being asked wakes the GPU up."""
    rows = []
    for name, bit in REASON_BITS.items():
        paths = (f"clocks_{word}_reasons/clocks_{word}_reason_{name}" for word in ("event", "throttle"))
        printed = next((found for path in paths if (found := gpu.findtext(path))), None)
        if printed is None or reading[0] != "ok":
            continue
        probe = "Active" if reading[1] & bit else "Not Active"
        verdict = "same" if probe == printed else "drifted" if bit == 0x1 else "differs"
        rows.append(Row(index, f"clocks_event_reasons[{name}]", probe, printed, verdict))
    return rows
