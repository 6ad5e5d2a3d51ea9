"""Opens NVML briefly and reads every GPU. The only module that touches pynvml.

The work is done in a forked child: NVML calls can hang in the kernel for ever, and a child can be killed and left behind.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Optional

from checks.probes.readings import ERROR, LOST, NOT_SUPPORTED, OK, GpuReadings, NvmlState, Reading, state_from_json

RECOVERY_ACTION_FIELD = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION. Source: nvml.h; drivers before 565 do not have it."""


def read_nvml(deadline_s: float) -> NvmlState:
    """Read NVML within `deadline_s` seconds. Never raises and never waits longer: a driver that hangs is an answer."""
    receiver, sender = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(receiver)
        os.close(sender)
        return NvmlState("error", f"no process could be started to read NVML: {error}")
    if child == 0:
        os.close(receiver)
        _child(sender)
    os.close(sender)
    try:
        text = _receive(receiver, time.monotonic() + deadline_s)
    finally:
        os.close(receiver)
        _end(child)
    if text is None:
        return NvmlState("hung", f"NVML gave no answer within {deadline_s:g} s")
    try:
        return state_from_json(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return NvmlState("error", "the process that reads NVML died without an answer")


def _child(sender: int) -> None:
    """Read, send, and leave without running any clean-up that belongs to the parent."""
    try:
        content = json.dumps(_read().to_json()).encode()
        while content:
            content = content[os.write(sender, content) :]
    finally:
        os._exit(0)


def _receive(receiver: int, deadline: float) -> Optional[bytes]:
    """Return all that the child sends before it closes its end, None if the deadline comes first."""
    content = b""
    while True:
        ready, _, _ = select.select([receiver], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(receiver, 1 << 16)
        if not chunk:
            return content
        content += chunk


def _end(child: int) -> None:
    """Kill and reap the child; one that is stuck in the kernel cannot be reaped and is left to init."""
    os.kill(child, signal.SIGKILL)
    for _ in range(100):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        select.select([], [], [], 0.005)


def _read() -> NvmlState:
    try:
        import pynvml
    except ImportError as error:
        return NvmlState("no_library", f"pynvml cannot be imported: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        outcome = {
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no_library",
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "no_driver",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "mismatch",
        }.get(error.value, "error")
        return NvmlState(outcome, f"NVML does not start: {error}")
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        driver = _reading(pynvml, lambda: _text(pynvml.nvmlSystemGetDriverVersion())).text()
        return NvmlState("read", driver_version=driver, gpus=tuple(_gpu(pynvml, index) for index in range(count)))
    except pynvml.NVMLError as error:
        return NvmlState("error", f"NVML does not count its GPUs: {error}")


def _gpu(nvml: Any, index: int) -> GpuReadings:
    handle = _reading(nvml, lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle.state != OK:
        return GpuReadings(index, {"handle": Reading(handle.state, detail=handle.detail)})
    gpu = handle.value
    uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    asked: dict[str, Callable[[], Any]] = {
        "handle": lambda: True,
        "uuid": lambda: _text(nvml.nvmlDeviceGetUUID(gpu)),
        "serial": lambda: _text(nvml.nvmlDeviceGetSerial(gpu)),
        "name": lambda: _text(nvml.nvmlDeviceGetName(gpu)),
        "pci": lambda: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId),
        "memory_total_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
        "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used),
        "ecc_uncorrected_volatile": lambda: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, nvml.NVML_VOLATILE_ECC)),
        "ecc_uncorrected_aggregate": lambda: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, uncorrected, nvml.NVML_AGGREGATE_ECC)),
        "remapped_rows": lambda: [int(number) for number in nvml.nvmlDeviceGetRemappedRows(gpu)],
        "recovery_action": lambda: _field(nvml, gpu, RECOVERY_ACTION_FIELD),
        "temperature_c": lambda: int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)),
        "clocks_event_reasons": lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
        "process_ids": lambda: [int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)],
    }
    return GpuReadings(index, {name: _reading(nvml, ask) for name, ask in asked.items()})


def _reading(nvml: Any, ask: Callable[[], Any]) -> Reading:
    """Take one reading and tag it. Whatever goes wrong in the library is told apart, and never taken for zero."""
    try:
        return Reading(OK, ask())
    except nvml.NVMLError as error:
        unsupported = (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )
        state = LOST if error.value == nvml.NVML_ERROR_GPU_IS_LOST else NOT_SUPPORTED if error.value in unsupported else ERROR
        return Reading(state, detail=str(error))
    except Exception as error:
        # ctypes and old libraries fail in many ways of their own; one reading must not cost the others.
        return Reading(ERROR, detail=f"{type(error).__name__}: {error}")


def _field(nvml: Any, gpu: Any, number: int) -> int:
    value = nvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    if value.nvmlReturn != 0:
        raise nvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def _text(value: Any) -> str:
    """Older versions of the bindings give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
