"""The NVML functions of the lab's driver library that count and measure: memory errors, repairs, links, fabric, power, heat.

As a driver does, they refuse a structure of a version that they do not know and, by `refused`, what a test wants refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab_nvml_types import (  # type: ignore[import-not-found]
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    SUCCESS,
    Failure,
    set_value,
    value_of,
)

_DRAM, _SRAM = 2, 7
_KINDS = ("corrected", "uncorrected")
_COUNTERS = ("volatile", "aggregate")
_UNSIGNED_INT, _UNSIGNED_LONG_LONG, _SIGNED_INT = 1, 3, 5
_NVLINK4_FIELDS = range(161, 164)
_NVLINK5_FIELDS = (*range(206, 216), *range(219, 223), *range(235, 251), *range(289, 294))
_C2C_FIELDS = (171, 172, 231, 232, 233)


def _ecc_errors(library: Any, handle: Any, kind: Any, counter: Any, reference: Any) -> Any:
    set_value(reference, library.gpu(handle)[f"ecc_{_COUNTERS[value_of(counter)]}_{_KINDS[value_of(kind)]}"])


def _memory_error_counter(library: Any, handle: Any, kind: Any, counter: Any, location: Any, reference: Any) -> Any:
    """Hopper counts by two places alone; what the state does not count as SRAM is DRAM."""
    gpu = library.gpu(handle)
    word = f"{_COUNTERS[value_of(counter)]}_{_KINDS[value_of(kind)]}"
    sram = gpu["sram"].get(word, 0)
    if value_of(location) not in (_DRAM, _SRAM):
        raise Failure(NOT_SUPPORTED)
    set_value(reference, sram if value_of(location) == _SRAM else gpu[f"ecc_{word}"] - sram)


def _structure(reference: Any, version: Any) -> Any:
    """The structure behind a reference, refused unless it is of the version that this driver knows."""
    if reference._obj.version != version:
        raise Failure(ARGUMENT_VERSION_MISMATCH)
    return reference._obj


def _sram_status(library: Any, handle: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    status = _structure(reference, 0x1000068)
    sram = gpu["sram"]
    status.volatileUncParity = sram.get("volatile_uncorrected", 0)
    status.volatileCor = sram.get("volatile_corrected", 0)
    status.aggregateUncParity = status.aggregateUncBucketSm = sram.get("aggregate_uncorrected", 0)
    status.aggregateCor = sram.get("aggregate_corrected", 0)
    status.bThresholdExceeded = sram.get("threshold", 0)


def _histogram(library: Any, handle: Any, reference: Any) -> Any:
    for name, banks in library.gpu(handle)["banks"].items():
        setattr(reference._obj, name, banks)


def _repair_status(library: Any, handle: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    status = _structure(reference, 0x100000C)
    status.bChannelRepairPending, status.bTpcRepairPending = gpu["repair_pending"]


def _unrepairable(library: Any, handle: Any, reference: Any) -> Any:
    flag = library.gpu(handle)["memory_unrepairable"]
    if flag is None:
        raise Failure(FUNCTION_NOT_FOUND)
    _structure(reference, 0x1000008).unrepairableMemory = flag


def _inforom(library: Any, handle: Any, reference: Any = None) -> Any:
    """Validated, or its checksum given: both fail where it is corrupted."""
    code = library.gpu(handle)["inforom"]
    if code:
        raise Failure(code)
    if reference is not None:
        set_value(reference, 0x5A1E)


def _margin(library: Any, handle: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    _structure(reference, 0x1000008).marginTemperature = gpu["thermal_margin"]


def _temperature_limit(library: Any, handle: Any, kind: Any, reference: Any) -> Any:
    limit = library.gpu(handle)["temperature_limits"].get(str(value_of(kind)))
    if limit is None:
        raise Failure(NOT_SUPPORTED)
    set_value(reference, limit)


def _fabric(library: Any, handle: Any, reference: Any) -> Any:
    """A driver of the 580 branch knows the second and the third version of the structure."""
    fabric = library.gpu(handle)["fabric"]
    info = reference._obj
    if info.version not in (0x3000028, 0x2000024):
        raise Failure(ARGUMENT_VERSION_MISMATCH)
    info.state, info.status, info.cliqueId, info.healthMask = fabric["state"], fabric["status"], 0, fabric["mask"]
    if hasattr(info, "healthSummary"):
        info.healthSummary = fabric["summary"]


def _field_values(library: Any, handle: Any, count: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    for value in reference._obj[: value_of(count)]:
        try:
            kind, number = _field(gpu, value.fieldId, value.scopeId)
        except Failure as failure:
            value.nvmlReturn = failure.code
            continue
        value.nvmlReturn, value.valueType = SUCCESS, kind
        setattr(value.value, {_UNSIGNED_INT: "uiVal", _UNSIGNED_LONG_LONG: "ullVal", _SIGNED_INT: "siVal"}[kind], number)


def _field(gpu: Any, field: Any, link: Any) -> Any:
    """Type and number of one field."""
    refused = gpu["refused"].get(f"field {field}")
    if refused:
        raise Failure(refused)
    simple = {
        82: (_UNSIGNED_INT, gpu["temperature"] + 6),
        91: (_UNSIGNED_INT, gpu["nvlinks"]),
        142: (_UNSIGNED_INT, gpu["remap_correctable"]),
        143: (_UNSIGNED_INT, gpu["remap_uncorrectable"]),
        144: (_UNSIGNED_INT, gpu["remap_pending"]),
        145: (_UNSIGNED_INT, gpu["remap_failure"]),
        193: (_SIGNED_INT, -5),
        194: (_SIGNED_INT, -2),
        195: (_SIGNED_INT, 0),
        196: (_SIGNED_INT, 0),
        230: (_UNSIGNED_INT, gpu["recovery_action"]),
    }
    if field in simple:
        return simple[field]
    if str(field) in gpu["fields"]:
        return _UNSIGNED_LONG_LONG, gpu["fields"][str(field)]
    if field in (94, 95, 169, *range(173, 184)):
        return _UNSIGNED_LONG_LONG, gpu["pcie"].get(str(field), 0)
    if field in (164, *_NVLINK4_FIELDS, *_NVLINK5_FIELDS):
        return _link_field(gpu, field, link)
    if field in (170, *_C2C_FIELDS):
        return _c2c_field(gpu["c2c"], field, link)
    raise Failure(NOT_SUPPORTED)


def _c2c_field(c2c: Any, field: Any, link: Any) -> Any:
    if field == 170:
        return _UNSIGNED_INT, c2c["links"]
    if link >= c2c["links"]:
        raise Failure(INVALID_ARGUMENT if c2c["links"] else NOT_SUPPORTED)
    usual = {171: 1, 172: 44712}.get(field, 0)
    return _UNSIGNED_LONG_LONG, c2c.get(str(field), {}).get(str(link), usual)


def _link_field(gpu: Any, field: Any, link: Any) -> Any:
    if link >= gpu["nvlinks"]:
        raise Failure(INVALID_ARGUMENT)
    if field == 164:
        return _UNSIGNED_INT, 0 if link in gpu["nvlinks_down"] else gpu["nvlink_speed"]
    if (field in _NVLINK5_FIELDS) != (gpu["nvlink_generation"] >= 5):
        raise Failure(NOT_SUPPORTED)
    return _UNSIGNED_LONG_LONG, gpu["nvlink_errors"].get(str(field), {}).get(str(link), gpu["nvlink_usual"].get(str(field), 0))


def _nvlink_state(library: Any, handle: Any, link: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    if value_of(link) >= gpu["nvlinks"]:
        raise Failure(INVALID_ARGUMENT)
    set_value(reference, 0 if value_of(link) in gpu["nvlinks_down"] else 1)


def _mode(field: Any) -> Any:
    """A mode and what it will be after the next boot."""

    def call(library: Any, handle: Any, current: Any, pending: Any) -> Any:
        now, later = library.gpu(handle)[field]
        set_value(current, now)
        set_value(pending, later)

    return call


def _clock(library: Any, handle: Any, kind: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    set_value(reference, gpu["clocks"][1 if value_of(kind) == 2 else 0])


def _number(group: Any, name: Any) -> Any:
    return lambda library, handle, reference: set_value(reference, library.gpu(handle)[group][name])


COUNTER_CALLS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": _memory_error_counter,
    "nvmlDeviceGetSramEccErrorStatus": _sram_status,
    "nvmlDeviceGetRowRemapperHistogram": _histogram,
    "nvmlDeviceGetRepairStatus": _repair_status,
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": _unrepairable,
    "nvmlDeviceValidateInforom": _inforom,
    "nvmlDeviceGetInforomConfigurationChecksum": _inforom,
    "nvmlDeviceGetMarginTemperature": _margin,
    "nvmlDeviceGetTemperatureThreshold": _temperature_limit,
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlDeviceGetFieldValues": _field_values,
    "nvmlDeviceGetNvLinkState": _nvlink_state,
    "nvmlDeviceGetEccMode": _mode("ecc_mode"),
    "nvmlDeviceGetMigMode": _mode("mig_mode"),
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": _clock,
    "nvmlDeviceGetApplicationsClock": _clock,
    "nvmlDeviceGetPowerUsage": _number("power_mw", "draw"),
    "nvmlDeviceGetEnforcedPowerLimit": _number("power_mw", "limit"),
    "nvmlDeviceGetPowerManagementDefaultLimit": _number("power_mw", "default"),
    "nvmlDeviceGetCurrPcieLinkWidth": _number("pcie", "width"),
    "nvmlDeviceGetMaxPcieLinkWidth": _number("pcie", "width_max"),
    "nvmlDeviceGetCurrPcieLinkGeneration": _number("pcie", "generation"),
    "nvmlDeviceGetMaxPcieLinkGeneration": _number("pcie", "generation_max"),
    "nvmlDeviceGetPcieReplayCounter": _number("pcie", "94"),
}
