"""What is asked of each GPU, reading by reading: memory errors, repairs, clocks, power, heat, PCIe, fabric, modes, processes.

Handles and bindings come from `checks.probes.nvml`; nothing is judged here. What a driver does not know is `not_supported`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from checks.probes.nvml_links import read_c2c, read_links, read_quality
from checks.probes.nvml_tags import MissingFunction, field_readings, take
from checks.probes.readings import OK, GpuReadings, Reading

FIELDS = {
    "recovery_action": 230,
    "memory_temperature_c": 82,
    "shutdown_margin_c": 193,
    "slowdown_margin_c": 194,
    "memory_max_margin_c": 195,
    "gpu_max_margin_c": 196,
    "pcie_replay_rollovers": 95,
    "pcie_l0_to_recovery": 169,
    "pcie_correctable": 173,
    "pcie_naks_received": 174,
    "pcie_receiver_errors": 175,
    "pcie_bad_tlp": 176,
    "pcie_naks_sent": 177,
    "pcie_bad_dllp": 178,
    "pcie_nonfatal": 179,
    "pcie_fatal": 180,
    "pcie_unsupported_requests": 181,
    "pcie_lcrc_errors": 182,
    "pcie_lane_errors": 183,
    "retired_pages_sbe": 29,
    "retired_pages_dbe": 30,
    "retired_pages_pending": 31,
    "retired_pages_pending_sbe": 92,
    "retired_pages_pending_dbe": 93,
    "remapped_rows_corrected_inactive": 301,
    "remapped_rows_uncorrected_inactive": 302,
    "bank_remaps_active": 303,
    "bank_remaps_inactive": 304,
    "bank_groups_full": 305,
    "bank_groups_none": 306,
    "bank_remap_pending": 307,
    "violation_power_ns": 74,
    "violation_thermal_ns": 75,
    "violation_board_limit_ns": 77,
    "violation_reliability_ns": 79,
    "slow_software_thermal_ns": 269,
    "slow_hardware_thermal_ns": 270,
    "slow_power_brake_ns": 271,
    "nvlink_count": 91,
    "c2c_count": 170,
}
"""NVML field numbers. Source: nvml.h; 226 and 227 are deprecated forms of 230, which drivers before 565 do not have."""

_KINDS = {"corrected": 0, "uncorrected": 1}
_COUNTERS = {"volatile": 0, "aggregate": 1}
_LOCATIONS = {"dram": 2, "sram": 7}
"""NVML_MEMORY_ERROR_TYPE_*, NVML_*_ECC and NVML_MEMORY_LOCATION_*. Older GPUs count other locations, which the totals hold."""

_SLOWDOWN, _MEMORY_MAX = 1, 2
"""NVML_TEMPERATURE_THRESHOLD_*: absolute limits, which GPUs before Hopper have in place of margins."""

SRAM_COUNTERS = (
    *("aggregateUncParity", "aggregateUncSecDed", "aggregateCor", "volatileUncParity", "volatileUncSecDed", "volatileCor"),
    *("aggregateUncBucketL2", "aggregateUncBucketSm", "aggregateUncBucketPcie", "aggregateUncBucketMcu"),
    *("aggregateUncBucketOther", "bThresholdExceeded"),
)

Questions = dict[str, Callable[[], Any]]


def read_gpu(nvml: Any, index: int, deep: bool = False) -> GpuReadings:
    """Take every reading of one GPU, each tagged by itself. `deep` adds what takes longer and is seldom needed."""
    handle = take(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle.state != OK:
        return GpuReadings(index, {"handle": Reading(handle.state, detail=handle.detail)})
    gpu = handle.value
    values = {"handle": Reading(OK, True)}
    asked = {**_identity(nvml, gpu), **_memory(nvml, gpu), **_condition(nvml, gpu), **_bus(nvml, gpu), **_modes(nvml, gpu)}
    values.update((name, take(nvml, ask)) for name, ask in asked.items())
    values.update(field_readings(nvml, gpu, FIELDS))
    values["inforom_corrupt"] = take(nvml, lambda: _inforom(nvml, gpu, deep))
    values.update(read_links(nvml, gpu, values["nvlink_count"].number()))
    values.update(read_c2c(nvml, gpu, values["c2c_count"].number() or 0))
    if deep:
        values["nvlink_quality"] = read_quality(nvml, gpu, values["nvlink_states"])
    return GpuReadings(index, values)


def _ask(nvml: Any, function: str, *arguments: Any) -> Callable[[], Any]:
    """A question to one function. Bindings that are older than the function do not have it."""

    def ask() -> Any:
        call = getattr(nvml, function, None)
        if call is None:
            raise MissingFunction(function)
        return call(*arguments)

    return ask


def _number(nvml: Any, function: str, *arguments: Any) -> Callable[[], int]:
    ask = _ask(nvml, function, *arguments)
    return lambda: int(ask())


def _pair(nvml: Any, function: str, *arguments: Any) -> Callable[[], list[int]]:
    ask = _ask(nvml, function, *arguments)
    return lambda: [int(number) for number in ask()]


def text(value: Any) -> str:
    """Older versions of the bindings give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _identity(nvml: Any, gpu: Any) -> Questions:
    return {
        "uuid": lambda: text(nvml.nvmlDeviceGetUUID(gpu)),
        "serial": lambda: text(nvml.nvmlDeviceGetSerial(gpu)),
        "name": lambda: text(nvml.nvmlDeviceGetName(gpu)),
        "pci": lambda: text(nvml.nvmlDeviceGetPciInfo(gpu).busId),
        "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
        "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    }


def _memory(nvml: Any, gpu: Any) -> Questions:
    asked: Questions = {
        "ecc_mode": _pair(nvml, "nvmlDeviceGetEccMode", gpu),
        "remapped_rows": _pair(nvml, "nvmlDeviceGetRemappedRows", gpu),
        "row_remap_histogram": lambda: _histogram(nvml, gpu),
        "repair_pending": _pair(nvml, "nvmlDeviceGetRepairStatus", gpu),
        "memory_unrepairable": _number(nvml, "nvmlDeviceGetUnrepairableMemoryFlag_v1", gpu),
        "sram_ecc": lambda: _sram(nvml, gpu),
    }
    for kind, error in _KINDS.items():
        for counter, since in _COUNTERS.items():
            name = f"ecc_{kind}_{counter}"
            asked[name] = _number(nvml, "nvmlDeviceGetTotalEccErrors", gpu, error, since)
            for location, place in _LOCATIONS.items():
                asked[f"{name}_{location}"] = _number(nvml, "nvmlDeviceGetMemoryErrorCounter", gpu, error, since, place)
    return asked


def _condition(nvml: Any, gpu: Any) -> Questions:
    return {
        "temperature_c": _number(nvml, "nvmlDeviceGetTemperature", gpu, 0),
        "thermal_margin_c": _number(nvml, "nvmlDeviceGetMarginTemperature", gpu),
        "slowdown_temperature_c": _number(nvml, "nvmlDeviceGetTemperatureThreshold", gpu, _SLOWDOWN),
        "memory_max_temperature_c": _number(nvml, "nvmlDeviceGetTemperatureThreshold", gpu, _MEMORY_MAX),
        "clocks_event_reasons": _number(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu),
        "clock_sm_mhz": _number(nvml, "nvmlDeviceGetClockInfo", gpu, 1),
        "clock_memory_mhz": _number(nvml, "nvmlDeviceGetClockInfo", gpu, 2),
        "clock_sm_max_mhz": _number(nvml, "nvmlDeviceGetMaxClockInfo", gpu, 1),
        "clock_application_mhz": _number(nvml, "nvmlDeviceGetApplicationsClock", gpu, 0),
        "power_mw": _number(nvml, "nvmlDeviceGetPowerUsage", gpu),
        "power_limit_mw": _number(nvml, "nvmlDeviceGetEnforcedPowerLimit", gpu),
        "power_limit_default_mw": _number(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", gpu),
        "process_ids": lambda: [int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
    }


def _bus(nvml: Any, gpu: Any) -> Questions:
    return {
        "pcie_generation": _number(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", gpu),
        "pcie_generation_max": _number(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", gpu),
        "pcie_width": _number(nvml, "nvmlDeviceGetCurrPcieLinkWidth", gpu),
        "pcie_width_max": _number(nvml, "nvmlDeviceGetMaxPcieLinkWidth", gpu),
        "pcie_replays": _number(nvml, "nvmlDeviceGetPcieReplayCounter", gpu),
        "fabric": lambda: _fabric(nvml, gpu),
    }


def _modes(nvml: Any, gpu: Any) -> Questions:
    return {
        "mig_mode": _pair(nvml, "nvmlDeviceGetMigMode", gpu),
        "persistence_mode": _number(nvml, "nvmlDeviceGetPersistenceMode", gpu),
        "compute_mode": _number(nvml, "nvmlDeviceGetComputeMode", gpu),
    }


def _histogram(nvml: Any, gpu: Any) -> dict[str, int]:
    """Memory banks by the spare rows they have left."""
    banks = _ask(nvml, "nvmlDeviceGetRowRemapperHistogram", gpu)()
    return {name: int(getattr(banks, name)) for name in ("max", "high", "partial", "low", "none")}


def _inforom(nvml: Any, gpu: Any, deep: bool) -> int:
    """1 where the board's own memory is corrupted. To validate it reads its flash, so a quick look only asks for its checksum."""
    function = "nvmlDeviceValidateInforom" if deep else "nvmlDeviceGetInforomConfigurationChecksum"
    try:
        _ask(nvml, function, gpu)()
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_CORRUPTED_INFOROM:
            raise
        return 1
    return 0


def _filled(nvml: Any, function: str, structure: str, gpu: Any) -> Any:
    """Let a function fill a structure of the bindings, which sets its own version."""
    make = getattr(nvml, structure, None)
    if make is None:
        raise MissingFunction(structure)
    content = make()
    _ask(nvml, function, gpu, ctypes.byref(content))()
    return content


def _sram(nvml: Any, gpu: Any) -> dict[str, int]:
    """Only root may ask for this."""
    status = _filled(nvml, "nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", gpu)
    return {name: int(getattr(status, name)) for name in SRAM_COUNTERS}


def _fabric(nvml: Any, gpu: Any) -> dict[str, int]:
    """Ask with the newest structure that the driver takes."""
    newest_first = (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    )
    too_new = (nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    for function, structure in newest_first:
        try:
            info = _filled(nvml, function, structure, gpu)
        except MissingFunction:
            continue
        except nvml.NVMLError as error:
            if error.value in too_new:
                continue
            raise
        if not info.state:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        names = {"state": "state", "status": "status", "clique": "cliqueId", "mask": "healthMask", "summary": "healthSummary"}
        return {name: int(getattr(info, field)) for name, field in names.items() if hasattr(info, field)}
    raise MissingFunction("nvmlDeviceGetGpuFabricInfo")
