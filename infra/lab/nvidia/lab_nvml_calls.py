"""The NVML functions of the lab's driver library: each fills the ctypes arguments of one call from the node's GPU state."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 1, 2, 3, 6
INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, GPU_IS_LOST, UNKNOWN = 7, 9, 15, 999
_TEXTS = {
    SUCCESS: "Success",
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NOT_FOUND: "Not Found",
    INSUFFICIENT_SIZE: "Insufficient Size",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    GPU_IS_LOST: "GPU is lost",
    UNKNOWN: "Unknown Error",
}
HANDLE_BASE = 0x1000
_VALUE_TYPE_UNSIGNED_INT = 1
_UNCORRECTED = 1


class Failure(Exception):
    """Ends a call with an NVML return code."""

    def __init__(self, code: Any) -> None:
        super().__init__(code)
        self.code = code


def _value(argument: Any) -> Any:
    return getattr(argument, "value", argument)


def _set(reference: Any, value: Any) -> Any:
    """Store a value behind a `byref` argument."""
    reference._obj.value = value


def _text(buffer: Any, text: Any) -> Any:
    buffer.value = text.encode()


def _error_string(library: Any, code: Any) -> Any:
    return _TEXTS.get(_value(code), "Unknown Error").encode()


def _give_handle(library: Any, gpu: Any, reference: Any) -> Any:
    library.usable(gpu)
    pointer = ctypes.c_void_p(HANDLE_BASE + gpu["index"])
    ctypes.memmove(reference, ctypes.byref(pointer), ctypes.sizeof(pointer))


def _handle_by_index(library: Any, index: Any, reference: Any) -> Any:
    gpus = library.state()["gpus"]
    if _value(index) >= len(gpus):
        raise Failure(INVALID_ARGUMENT)
    _give_handle(library, gpus[_value(index)], reference)


def _handle_by(match: Any) -> Any:
    def call(library: Any, key: Any, reference: Any) -> Any:
        wanted = _value(key)
        wanted = wanted.decode() if isinstance(wanted, bytes) else wanted
        for gpu in library.state()["gpus"]:
            if match(gpu, wanted):
                return _give_handle(library, gpu, reference)
        raise Failure(NOT_FOUND)

    return call


def _bus_id(pci: Any) -> Any:
    """An address as numbers: "0000:53:00.0", "00000000:53:00.0" and "53:00.0" are one."""
    parts = pci.lower().split(":")
    slot, _, function = parts[-1].partition(".")
    return (int(parts[-3], 16) if len(parts) > 2 else 0, int(parts[-2], 16), int(slot, 16), int(function or "0", 16))


def _pci_info(library: Any, handle: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    domain, bus, device, function = _bus_id(gpu["pci"])
    info = reference._obj
    info.domain, info.bus, info.device = domain, bus, device
    info.pciDeviceId = int(gpu["device"], 16) << 16 | 0x10DE
    info.busId = f"{domain:08X}:{bus:02X}:{device:02X}.{function}".encode()
    if hasattr(info, "busIdLegacy"):
        info.busIdLegacy = f"{domain:04X}:{bus:02X}:{device:02X}.{function}".encode()


def _memory_info(library: Any, handle: Any, reference: Any) -> Any:
    total = library.gpu(handle)["memory_mib"] * 2**20
    used = total // 10 * 9 if _alive(library) else 600 * 2**20
    memory = reference._obj
    memory.total, memory.used, memory.free = total, used, total - used


def _ecc_errors(library: Any, handle: Any, kind: Any, counter: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    _set(reference, gpu["ecc_volatile_uncorrected" if _value(kind) == _UNCORRECTED else "ecc_volatile_corrected"])


def _memory_error_counter(library: Any, handle: Any, kind: Any, counter: Any, location: Any, reference: Any) -> Any:
    _ecc_errors(library, handle, kind, counter, reference)


def _remapped_rows(library: Any, handle: Any, correctable: Any, uncorrectable: Any, pending: Any, failure: Any) -> Any:
    gpu = library.gpu(handle)
    _set(correctable, gpu["remap_correctable"])
    _set(uncorrectable, gpu["remap_uncorrectable"])
    _set(pending, gpu["remap_pending"])
    _set(failure, gpu["remap_failure"])


def _field_values(library: Any, handle: Any, count: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    known = {
        142: gpu["remap_correctable"],
        143: gpu["remap_uncorrectable"],
        144: gpu["remap_pending"],
        145: gpu["remap_failure"],
        230: gpu["recovery_action"],
        91: gpu["nvlinks"],
    }
    for value in reference._obj[: _value(count)]:
        if value.fieldId in known:
            value.nvmlReturn = SUCCESS
            value.valueType = _VALUE_TYPE_UNSIGNED_INT
            value.value.uiVal = known[value.fieldId]
        else:
            value.nvmlReturn = NOT_SUPPORTED


def _alive(library: Any) -> Any:
    """Processes on the GPUs that still run."""
    return [process for process in library.state()["processes"] if os.path.exists("/proc/{}".format(process["pid"]))]


def _running_processes(library: Any, handle: Any, count: Any, array: Any) -> Any:
    gpu = library.gpu(handle)
    processes = _alive(library)
    room = _value(count._obj)
    count._obj.value = len(processes)
    if not processes:
        return SUCCESS
    if array is None or room < len(processes):
        return INSUFFICIENT_SIZE
    for slot, process in zip(array, processes, strict=False):
        slot.pid = process["pid"]
        slot.usedGpuMemory = gpu["memory_mib"] // 10 * 9 * 2**20
        slot.gpuInstanceId = slot.computeInstanceId = 0xFFFFFFFF
    return SUCCESS


def _process_name(library: Any, pid: Any, buffer: Any, size: Any) -> Any:
    for process in _alive(library):
        if process["pid"] == _value(pid):
            return _text(buffer, process["name"])
    raise Failure(NOT_FOUND)


def _nvlink_state(library: Any, handle: Any, link: Any, reference: Any) -> Any:
    gpu = library.gpu(handle)
    if _value(link) >= gpu["nvlinks"]:
        raise Failure(INVALID_ARGUMENT)
    _set(reference, 0 if _value(link) in gpu["nvlinks_down"] else 1)


def _modes(library: Any, handle: Any, current: Any, pending: Any) -> Any:
    library.gpu(handle)
    _set(current, 1)
    _set(pending, 1)


def _no_mig(library: Any, handle: Any, current: Any, pending: Any) -> Any:
    library.gpu(handle)
    _set(current, 0)
    _set(pending, 0)


def _gpu_text(field: Any) -> Any:
    return lambda library, handle, buffer, size: _text(buffer, library.gpu(handle)[field])


def _gpu_number(field: Any) -> Any:
    return lambda library, handle, reference: _set(reference, library.gpu(handle)[field])


def _gpu_constant(number: Any) -> Any:
    return lambda library, handle, reference: (library.gpu(handle), _set(reference, number))[1]


CALLS: dict[str, Callable[..., Any]] = {
    "nvmlInit_v2": lambda library: SUCCESS,
    "nvmlInitWithFlags": lambda library, flags: SUCCESS,
    "nvmlShutdown": lambda library: SUCCESS,
    "nvmlErrorString": _error_string,
    "nvmlSystemGetDriverVersion": lambda library, buffer, size: _text(buffer, library.state()["driver"]),
    "nvmlSystemGetNVMLVersion": lambda library, buffer, size: _text(buffer, "13." + library.state()["driver"]),
    "nvmlSystemGetCudaDriverVersion": lambda library, reference: _set(reference, library.state()["cuda"]),
    "nvmlSystemGetCudaDriverVersion_v2": lambda library, reference: _set(reference, library.state()["cuda"]),
    "nvmlSystemGetProcessName": _process_name,
    "nvmlDeviceGetCount_v2": lambda library, reference: _set(reference, len(library.state()["gpus"])),
    "nvmlDeviceGetHandleByIndex_v2": _handle_by_index,
    "nvmlDeviceGetHandleByPciBusId_v2": _handle_by(lambda gpu, wanted: _bus_id(gpu["pci"]) == _bus_id(wanted)),
    "nvmlDeviceGetHandleByUUID": _handle_by(lambda gpu, wanted: gpu["uuid"] == wanted),
    "nvmlDeviceGetHandleBySerial": _handle_by(lambda gpu, wanted: gpu["serial"] == wanted),
    "nvmlDeviceGetIndex": _gpu_number("index"),
    "nvmlDeviceGetMinorNumber": _gpu_number("index"),
    "nvmlDeviceGetUUID": _gpu_text("uuid"),
    "nvmlDeviceGetSerial": _gpu_text("serial"),
    "nvmlDeviceGetName": _gpu_text("name"),
    "nvmlDeviceGetPciInfo_v2": _pci_info,
    "nvmlDeviceGetPciInfo_v3": _pci_info,
    "nvmlDeviceGetMemoryInfo": _memory_info,
    "nvmlDeviceGetMemoryInfo_v2": _memory_info,
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": _memory_error_counter,
    "nvmlDeviceGetRemappedRows": _remapped_rows,
    "nvmlDeviceGetFieldValues": _field_values,
    "nvmlDeviceGetTemperature": lambda library, handle, sensor, reference: _set(reference, library.gpu(handle)["temperature"]),
    "nvmlDeviceGetCurrentClocksEventReasons": _gpu_number("clocks_event_reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _gpu_number("clocks_event_reasons"),
    "nvmlDeviceGetComputeRunningProcesses_v2": _running_processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _running_processes,
    "nvmlDeviceGetEccMode": _modes,
    "nvmlDeviceGetMigMode": _no_mig,
    "nvmlDeviceGetPersistenceMode": _gpu_constant(1),
    "nvmlDeviceGetCurrPcieLinkWidth": _gpu_constant(16),
    "nvmlDeviceGetMaxPcieLinkWidth": _gpu_constant(16),
    "nvmlDeviceGetCurrPcieLinkGeneration": _gpu_constant(5),
    "nvmlDeviceGetMaxPcieLinkGeneration": _gpu_constant(5),
    "nvmlDeviceGetPowerUsage": _gpu_constant(71000),
    "nvmlDeviceGetNvLinkState": _nvlink_state,
}
