"""The bandwidth of clean group runs as it is remembered: one small record per machine type, group, message size and software."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from activities.message import Message

KEPT_RUNS = 64
"""Clean runs remembered per record, newest last. Hotspare default: the median of so many moves little, in a record of 8 KB."""


class CleanRun(Message):
    """One run that passed in a burn-in that accused nobody: when, and its bus bandwidth in GB/s. `run_id` counts it once."""

    run_id: str
    at: datetime
    busbw_gbs: float


class BandwidthRecord(Message):
    """The newest clean runs of one key. `version` is for conditional writes: 0 is not stored; `seen` counts all there were."""

    key: str
    version: int = 0
    seen: int = 0
    runs: list[CleanRun] = []

    @property
    def values(self) -> list[float]:
        """The bandwidths, oldest first."""
        return [run.busbw_gbs for run in self.runs]


def bandwidth_key(cluster: str, instance_type: str, nodes: int, ranks: int, size_bytes: int, software: str) -> str:
    """Name what runs must have in common to be compared: cluster, machine, group, message size and software."""
    size = f"{size_bytes >> 30}G" if size_bytes % (1 << 30) == 0 else f"{size_bytes}B"
    return f"{cluster} {instance_type} x{nodes} {ranks} ranks {size}, {software}"


def with_runs(record: BandwidthRecord, new: Sequence[CleanRun]) -> BandwidthRecord:
    """Return the record with these runs, each once, in the order of time."""
    known = {run.run_id for run in record.runs}
    fresh = [run for run in new if run.run_id not in known]
    if not fresh:
        return record
    runs = sorted([*record.runs, *fresh], key=lambda run: run.at)
    return record.model_copy(update={"runs": runs[-KEPT_RUNS:], "seen": record.seen + len(fresh)})
