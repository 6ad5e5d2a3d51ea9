"""The NVML functions of the lab's driver library: each fills the ctypes arguments of one call from the node's GPU state."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from lab_nvml_counters import COUNTER_CALLS  # type: ignore[import-not-found]
from lab_nvml_types import (  # type: ignore[import-not-found]
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    SUCCESS,
    TEXTS,
    Failure,
    set_value,
    value_of,
)

HANDLE_BASE = 0x1000


def _text(buffer: Any, text: Any) -> Any:
    buffer.value = text.encode()


def _error_string(library: Any, code: Any) -> Any:
    return TEXTS.get(value_of(code), "Unknown Error").encode()


def _give_handle(library: Any, gpu: Any, reference: Any) -> Any:
    library.usable(gpu)
    pointer = ctypes.c_void_p(HANDLE_BASE + gpu["index"])
    ctypes.memmove(reference, ctypes.byref(pointer), ctypes.sizeof(pointer))


def _handle_by_index(library: Any, index: Any, reference: Any) -> Any:
    gpus = library.state()["gpus"]
    if value_of(index) >= len(gpus):
        raise Failure(INVALID_ARGUMENT)
    _give_handle(library, gpus[value_of(index)], reference)


def _handle_by(match: Any) -> Any:
    def call(library: Any, key: Any, reference: Any) -> Any:
        wanted = value_of(key)
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


def _remapped_rows(library: Any, handle: Any, correctable: Any, uncorrectable: Any, pending: Any, failure: Any) -> Any:
    gpu = library.gpu(handle)
    set_value(correctable, gpu["remap_correctable"])
    set_value(uncorrectable, gpu["remap_uncorrectable"])
    set_value(pending, gpu["remap_pending"])
    set_value(failure, gpu["remap_failure"])


def _alive(library: Any) -> Any:
    """Processes on the GPUs that still run."""
    return [process for process in library.state()["processes"] if os.path.exists("/proc/{}".format(process["pid"]))]


def _running_processes(library: Any, handle: Any, count: Any, array: Any) -> Any:
    gpu = library.gpu(handle)
    processes = _alive(library)
    room = value_of(count._obj)
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
        if process["pid"] == value_of(pid):
            return _text(buffer, process["name"])
    raise Failure(NOT_FOUND)


def _gpu_text(field: Any) -> Any:
    return lambda library, handle, buffer, size: _text(buffer, library.gpu(handle)[field])


def _gpu_number(field: Any) -> Any:
    return lambda library, handle, reference: set_value(reference, library.gpu(handle)[field])


def _gpu_constant(number: Any) -> Any:
    return lambda library, handle, reference: (library.gpu(handle), set_value(reference, number))[1]


CALLS: dict[str, Callable[..., Any]] = {
    "nvmlInit_v2": lambda library: SUCCESS,
    "nvmlInitWithFlags": lambda library, flags: SUCCESS,
    "nvmlShutdown": lambda library: SUCCESS,
    "nvmlErrorString": _error_string,
    "nvmlSystemGetDriverVersion": lambda library, buffer, size: _text(buffer, library.state()["driver"]),
    "nvmlSystemGetNVMLVersion": lambda library, buffer, size: _text(buffer, "13." + library.state()["driver"]),
    "nvmlSystemGetCudaDriverVersion": lambda library, reference: set_value(reference, library.state()["cuda"]),
    "nvmlSystemGetCudaDriverVersion_v2": lambda library, reference: set_value(reference, library.state()["cuda"]),
    "nvmlSystemGetProcessName": _process_name,
    "nvmlDeviceGetCount_v2": lambda library, reference: set_value(reference, len(library.state()["gpus"])),
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
    "nvmlDeviceGetRemappedRows": _remapped_rows,
    "nvmlDeviceGetTemperature": lambda library, handle, sensor, reference: set_value(
        reference, library.gpu(handle)["temperature"]
    ),
    "nvmlDeviceGetCurrentClocksEventReasons": _gpu_number("clocks_event_reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _gpu_number("clocks_event_reasons"),
    "nvmlDeviceGetComputeRunningProcesses_v2": _running_processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _running_processes,
    "nvmlDeviceGetPersistenceMode": _gpu_constant(1),
    "nvmlDeviceGetComputeMode": _gpu_constant(0),
    **COUNTER_CALLS,
}
