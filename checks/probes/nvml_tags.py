"""Takes single readings of NVML and tags them: ok, not supported, error or lost; whatever goes wrong is never taken for zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Union

from checks.probes.readings import ERROR, LOST, NO_PERMISSION, NOT_SUPPORTED, OK, Reading

_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Member of the value union by NVML_VALUE_TYPE_*. Source: nvml.h."""


class MissingFunction(Exception):
    """The bindings on this node are older than what is asked."""


def take(nvml: Any, ask: Callable[[], Any]) -> Reading:
    """Take one reading."""
    try:
        return Reading(OK, ask())
    except MissingFunction as missing:
        return Reading(NOT_SUPPORTED, detail=f"the bindings have no {missing}")
    except nvml.NVMLError as error:
        return failed(nvml, error.value)
    except Exception as error:
        # ctypes and old libraries fail in many ways of their own; one reading must not cost the others.
        return Reading(ERROR, detail=f"{type(error).__name__}: {error}")


def failed(nvml: Any, code: int) -> Reading:
    """Tag a reading by the status with which NVML refused it."""
    unsupported = (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
    if code == nvml.NVML_ERROR_NO_PERMISSION:
        return Reading(ERROR, detail=NO_PERMISSION)
    state = LOST if code == nvml.NVML_ERROR_GPU_IS_LOST else NOT_SUPPORTED if code in unsupported else ERROR
    return Reading(state, detail=str(nvml.NVMLError(code)))


def field_readings(nvml: Any, gpu: Any, fields: Mapping[str, Union[int, tuple[int, int]]]) -> dict[str, Reading]:
    """Take many field values with one call; a field is a number, or a number and the link it is asked for.

    A driver answers for a field that it does not know with "invalid argument": that field alone is not supported.
    """
    answer = take(nvml, lambda: list(nvml.nvmlDeviceGetFieldValues(gpu, list(fields.values()))))
    if answer.state != OK:
        return {name: Reading(answer.state, detail=answer.detail) for name in fields}
    return {name: _field(nvml, value) for name, value in zip(fields, answer.value)}


def _field(nvml: Any, value: Any) -> Reading:
    if value.nvmlReturn == nvml.NVML_ERROR_INVALID_ARGUMENT:
        return failed(nvml, nvml.NVML_ERROR_NOT_SUPPORTED)
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        return failed(nvml, value.nvmlReturn)
    return take(nvml, lambda: getattr(value.value, _VALUES[value.valueType]))
