"""What is remembered of hosts outside Temporal: one small record per host in a store with conditional writes.

A namespace forgets closed workflows within a day; strikes, known-bad serials, freezes and closed incidents must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from temporalio import activity

from activities.bandwidth_records import BandwidthRecord
from activities.errors import PreconditionFailed, ProviderBusy, as_application_error
from activities.gpu_records import GpuRecord
from activities.host_records import (
    ClosedIncident,
    CloseHostIncident,
    Freeze,
    Freezes,
    HostFault,
    HostRecord,
    LoadFreezes,
    RungAttempt,
    Said,
    SaveFreezes,
    SeenConfiguration,
    with_attempt,
    with_closed,
    with_gpu_closed,
    with_job,
    without_faults,
)

__all__ = [
    "CloseHostIncident",
    "ClosedIncident",
    "Freeze",
    "Freezes",
    "HostFault",
    "HostMemory",
    "HostMemoryActivities",
    "HostRecord",
    "LoadFreezes",
    "RungAttempt",
    "Said",
    "SaveFreezes",
    "SeenConfiguration",
    "remember",
    "remember_attempt",
    "remember_gpu",
    "without_faults",
]


class HostMemory(Protocol):
    """The store. Every write is conditional on the version that was read; ProviderBusy when the race is lost too often."""

    def note_intent(self, token: str, what: str) -> bool:
        """As `activities.effects.IntentStore`."""
        ...

    def intent_age_s(self, token: str) -> float | None:
        """As `activities.effects.IntentStore`."""
        ...

    def withdraw_intent(self, token: str) -> None:
        """As `activities.effects.IntentStore`."""
        ...

    def recall(self, instance_id: str) -> HostRecord:
        """Return what is remembered of a host; an empty record with version 0 when nothing is."""
        ...

    def save(self, record: HostRecord) -> HostRecord:
        """Store the record if its version is still the stored one; returns it with the new version. Raises PreconditionFailed."""
        ...

    def records(self) -> list[HostRecord]: ...

    def gpus(self, serials: Sequence[str] | None = None) -> list[GpuRecord]:
        """Return what is remembered of these GPUs, of all without `serials`; unknown ones are left out."""
        ...

    def save_gpu(self, record: GpuRecord) -> GpuRecord:
        """As `save`, for a GPU."""
        ...

    def bandwidths(self, keys: Sequence[str] | None = None) -> list[BandwidthRecord]:
        """Return the clean group runs under these keys, under all without `keys`; unknown ones are left out."""
        ...

    def save_bandwidth(self, record: BandwidthRecord) -> BandwidthRecord:
        """As `save`, for clean group runs."""
        ...

    def save_incident(self, closed: ClosedIncident) -> None: ...

    def incidents(self, instance_id: str = "", limit: int = 100) -> list[ClosedIncident]: ...

    def configurations(self, instance_ids: Sequence[str]) -> list[SeenConfiguration]:
        """Return how these nodes were set up when they were last seen; unknown ones are left out."""
        ...

    def save_configuration(self, seen: SeenConfiguration) -> None:
        """Replace what is remembered of a node's set-up."""
        ...

    def freezes(self, cluster: str) -> list[Freeze]: ...

    def save_freezes(self, cluster: str, freezes: list[Freeze]) -> None: ...


WRITE_TRIES = 10
"""Conditional writes tried before the store counts as busy. Hotspare default: a host has one incident and one sweep."""


class HostMemoryActivities:
    """What workflows remember and recall."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory

    @activity.defn
    def close_host_incident(self, request: CloseHostIncident) -> HostRecord:
        """Store a closed incident, then its effect on the GPU and on the host; each once."""
        with as_application_error():
            self._memory.save_incident(request.closed)

            def change(record: HostRecord) -> HostRecord:
                return with_job(with_closed(record, request), request.closed.run_id.partition("~")[0], request.job)

            if request.gpu_serial:
                remember_gpu(self._memory, request.gpu_serial, lambda record: with_gpu_closed(record, request))
            return without_faults(remember(self._memory, request.closed.instance_id, change))

    @activity.defn
    def load_freezes(self, request: LoadFreezes) -> Freezes:
        """Return the freezes of a cluster, ended ones included."""
        with as_application_error():
            return Freezes(freezes=self._memory.freezes(request.cluster))

    @activity.defn
    def save_freezes(self, request: SaveFreezes) -> None:
        """Replace the freezes of a cluster."""
        with as_application_error():
            self._memory.save_freezes(request.cluster, request.freezes)


def remember(memory: HostMemory, instance_id: str, change: Callable[[HostRecord], HostRecord]) -> HostRecord:
    """Apply a change to a host's present record, again when another was quicker. Raises ProviderBusy when that never ends."""
    for _ in range(WRITE_TRIES):
        record = memory.recall(instance_id)
        changed = change(record)
        if changed == record:
            return record
        try:
            return memory.save(changed)
        except PreconditionFailed:
            continue
    raise ProviderBusy(f"host memory: {instance_id} was changed by others {WRITE_TRIES} times in a row; try again")


def remember_attempt(memory: HostMemory, instance_id: str, attempt: RungAttempt) -> None:
    """Append a disruptive step to a host's record, once. Done just before the step: what was not remembered is not done."""
    remember(memory, instance_id, lambda record: with_attempt(record, attempt))


def remember_gpu(memory: HostMemory, serial: str, change: Callable[[GpuRecord], GpuRecord]) -> GpuRecord:
    """Apply a change to a GPU's present record, again when another was quicker. Raises ProviderBusy when that never ends."""
    for _ in range(WRITE_TRIES):
        record = next(iter(memory.gpus([serial])), GpuRecord(serial=serial))
        changed = change(record)
        if changed == record:
            return record
        try:
            return memory.save_gpu(changed)
        except PreconditionFailed:
            continue
    raise ProviderBusy(f"host memory: GPU {serial} was changed by others {WRITE_TRIES} times in a row; try again")


def remember_bandwidth(memory: HostMemory, key: str, change: Callable[[BandwidthRecord], BandwidthRecord]) -> BandwidthRecord:
    """Apply a change to the present record of clean runs, again when another was quicker. Raises ProviderBusy as the others."""
    for _ in range(WRITE_TRIES):
        record = next(iter(memory.bandwidths([key])), BandwidthRecord(key=key))
        changed = change(record)
        if changed == record:
            return record
        try:
            return memory.save_bandwidth(changed)
        except PreconditionFailed:
            continue
    raise ProviderBusy(f"host memory: the clean runs of {key} were changed by others {WRITE_TRIES} times in a row; try again")
