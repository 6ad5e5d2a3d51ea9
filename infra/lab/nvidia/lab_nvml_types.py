"""Return codes of NVML, and how the lab's driver library stores values behind the arguments of a call."""

from __future__ import annotations

from typing import Any

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 1, 2, 3, 4, 6
INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, CORRUPTED_INFOROM, GPU_IS_LOST = 7, 9, 13, 14, 15
ARGUMENT_VERSION_MISMATCH, UNKNOWN = 25, 999
TEXTS = {
    SUCCESS: "Success",
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    INSUFFICIENT_SIZE: "Insufficient Size",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    FUNCTION_NOT_FOUND: "Function Not Found",
    CORRUPTED_INFOROM: "infoROM is corrupted",
    GPU_IS_LOST: "GPU is lost",
    ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    UNKNOWN: "Unknown Error",
}


class Failure(Exception):
    """Ends a call with an NVML return code."""

    def __init__(self, code: Any) -> None:
        super().__init__(code)
        self.code = code


def value_of(argument: Any) -> Any:
    """The number in an argument, which may be a plain one."""
    return getattr(argument, "value", argument)


def set_value(reference: Any, value: Any) -> Any:
    """Store a value behind a `byref` argument."""
    reference._obj.value = value
