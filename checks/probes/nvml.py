"""Opens NVML briefly and reads every GPU. The only module that touches pynvml.

The work is done in a forked child: NVML calls can hang in the kernel for ever, and a child can be killed and left behind.
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Optional

from checks.probes.child import end_child
from checks.probes.nvml_readings import read_gpu, text
from checks.probes.nvml_tags import take
from checks.probes.readings import NvmlState, state_from_json


def read_nvml(deadline_s: float, deep: bool = False) -> NvmlState:
    """Read NVML within `deadline_s` seconds; `deep` as in `read_gpu`.

    Never raises and never waits longer: a driver that hangs is an answer.
    """
    receiver, sender = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(receiver)
        os.close(sender)
        return NvmlState("error", f"no process could be started to read NVML: {error}")
    if child == 0:
        os.close(receiver)
        _child(sender, deep)
    os.close(sender)
    try:
        text = _receive(receiver, time.monotonic() + deadline_s)
    finally:
        os.close(receiver)
        end_child(child, 0.5)
    if text is None:
        return NvmlState("hung", f"NVML gave no answer within {deadline_s:g} s")
    try:
        return state_from_json(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return NvmlState("error", "the process that reads NVML died without an answer")


def _child(sender: int, deep: bool) -> None:
    """Read, send, and leave without running any clean-up that belongs to the parent."""
    try:
        content = json.dumps(_read(deep).to_json()).encode()
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


def _read(deep: bool) -> NvmlState:
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
        driver = take(pynvml, lambda: text(pynvml.nvmlSystemGetDriverVersion())).text()
        return NvmlState("read", driver_version=driver, gpus=tuple(read_gpu(pynvml, index, deep) for index in range(count)))
    except pynvml.NVMLError as error:
        return NvmlState("error", f"NVML does not count its GPUs: {error}")
