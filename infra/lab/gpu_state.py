"""What the faults of a node make of its GPUs and of its share of an all-reduce."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from infra.lab.faults import Fault, gpu_changes


def gpus_with(faults: Sequence[Fault], gpus: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs as the driver shows them under these faults; it counts those that are there from 0."""
    seen = [copy.deepcopy(gpu) for gpu in gpus]
    if not seen:
        return seen
    for fault in faults:
        for gpu in seen if fault.every_gpu else (seen[fault.gpu],):
            _set(gpu, gpu_changes(fault))
    absent = {fault.gpu for fault in faults if fault.absent}
    there = [gpu for index, gpu in enumerate(seen) if index not in absent]
    return [{**gpu, "index": index} for index, gpu in enumerate(there)]


def _set(state: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Set fields, those of tables one by one."""
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(state.get(name), dict):
            _set(state[name], value)
        else:
            state[name] = copy.deepcopy(value)


def bandwidth_left(faults: Sequence[Fault]) -> dict[str, Any]:
    """Return the shares of bandwidth left inside the node, to other nodes and to single peers, and the wrong elements."""
    left: dict[str, Any] = {"intra": 1.0, "inter": 1.0, "pairs": {}, "wrong": 0}
    for fault in faults:
        left["wrong"] += fault.wrong
        if fault.slow is not None and fault.slow_kind == "pair":
            left["pairs"][fault.peer] = fault.slow
        elif fault.slow is not None:
            left[fault.slow_kind] = min(left[fault.slow_kind], fault.slow)
    return left
