"""A driver library for nodes without a GPU: answers NVML calls, through ctypes, from the node's GPU state file.

Only what is called on it exists; any other function is missing, as in an older driver. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

from lab_nvml_calls import CALLS, HANDLE_BASE  # type: ignore[import-not-found]
from lab_nvml_types import GPU_IS_LOST, SUCCESS, UNKNOWN, Failure  # type: ignore[import-not-found]


def load() -> Any:
    """Return the library, or fail as the loader does where no driver is installed."""
    state_file = os.path.join(os.environ.get("HOTSPARE_HOST_ROOT", "/"), "var/lib/lab/gpus.json")
    if not os.path.exists(state_file):
        raise OSError("libnvidia-ml.so.1: cannot open shared object file: No such file or directory")
    return Library(state_file)


class Library:
    """What `ctypes.CDLL` would return: functions by name."""

    def __init__(self, state_file: Any) -> None:
        self._state_file = state_file
        self._seen: Any = None
        self._state: dict[str, Any] = {}
        self._functions: dict[str, _Function] = {}
        self.calling = ""

    def __getattr__(self, name: Any) -> Any:
        if name not in self._functions:
            if name not in CALLS:
                raise AttributeError(name)
            self._functions[name] = _Function(self, name, CALLS[name])
        return self._functions[name]

    def state(self) -> Any:
        """The node's GPU state, read again when the file changed."""
        status = os.stat(self._state_file)
        if self._seen != (status.st_mtime_ns, status.st_ino):
            with open(self._state_file) as file:
                self._state = json.load(file)
            self._seen = (status.st_mtime_ns, status.st_ino)
        return self._state

    def gpu(self, handle: Any) -> Any:
        """The GPU behind a handle; fails as the driver does for one that is lost or hangs."""
        index = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - HANDLE_BASE
        return self.usable(self.state()["gpus"][index])

    def usable(self, gpu: Any) -> Any:
        """Return the GPU if the driver can talk to it and answers the present call, which `refused` may forbid by name."""
        if gpu["lost"]:
            raise Failure(GPU_IS_LOST)
        if gpu["hung"]:
            raise Failure(UNKNOWN)
        if self.calling in gpu["refused"]:
            raise Failure(gpu["refused"][self.calling])
        return gpu


class _Function:
    """One NVML function; callers may set `restype` on it, as on any ctypes function."""

    def __init__(self, library: Library, name: Any, call: Any) -> None:
        self.restype = ctypes.c_int
        self._library = library
        self._name = name
        self._call = call

    def __call__(self, *args: Any) -> Any:
        self._library.calling = self._name
        try:
            answer = self._call(self._library, *args)
        except Failure as failure:
            return failure.code
        return SUCCESS if answer is None else answer
