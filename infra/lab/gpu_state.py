"""What the faults of a node make of its GPUs and of its share of an all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.lab.faults import Fault, gpu_changes


def gpus_with(faults: Sequence[Fault], gpus: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPUs as the driver shows them under these faults."""
    seen = [dict(gpu) for gpu in gpus]
    for fault in faults:
        if seen:
            seen[fault.gpu].update(gpu_changes(fault))
    return seen


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
