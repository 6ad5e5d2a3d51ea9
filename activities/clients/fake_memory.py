"""Host memory in a dictionary, with the same conditional writes as the real store."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from activities.bandwidth_records import BandwidthRecord
from activities.clients.fake_points import Points
from activities.errors import PreconditionFailed
from activities.gpu_records import GpuRecord
from activities.host_memory import ClosedIncident, Freeze, HostRecord, SeenConfiguration


class FakeMemory:
    """In-memory `HostMemory`."""

    def __init__(self, points: Points | None = None) -> None:
        self._points = points or Points()
        self._lock = threading.Lock()
        self._intents: dict[str, float] = {}
        self._records: dict[str, HostRecord] = {}
        self._gpus: dict[str, GpuRecord] = {}
        self._bandwidths: dict[str, BandwidthRecord] = {}
        self._incidents: dict[tuple[str, str], ClosedIncident] = {}
        self._configurations: dict[str, SeenConfiguration] = {}
        self._freezes: dict[str, list[Freeze]] = {}

    def note_intent(self, token: str, what: str) -> bool:
        return self._points.carry_out("memory.intent", "", lambda: self._note_intent(token))

    def intent_age_s(self, token: str) -> float | None:
        with self._lock:
            return time.monotonic() - self._intents[token] if token in self._intents else None

    def withdraw_intent(self, token: str) -> None:
        with self._lock:
            self._intents.pop(token, None)

    def recall(self, instance_id: str) -> HostRecord:
        return self._points.carry_out("memory.recall", instance_id, lambda: self._recall(instance_id))

    def save(self, record: HostRecord) -> HostRecord:
        return self._points.carry_out("memory.save", record.instance_id, lambda: self._save(record))

    def records(self) -> list[HostRecord]:
        with self._lock:
            return [self._records[key] for key in sorted(self._records)]

    def gpus(self, serials: Sequence[str] | None = None) -> list[GpuRecord]:
        return self._points.carry_out("memory.gpus", "", lambda: self._some_gpus(serials))

    def save_gpu(self, record: GpuRecord) -> GpuRecord:
        return self._points.carry_out("memory.save_gpu", record.serial, lambda: self._save_gpu(record))

    def bandwidths(self, keys: Sequence[str] | None = None) -> list[BandwidthRecord]:
        return self._points.carry_out("memory.bandwidths", "", lambda: self._some_bandwidths(keys))

    def save_bandwidth(self, record: BandwidthRecord) -> BandwidthRecord:
        return self._points.carry_out("memory.save_bandwidth", "", lambda: self._save_bandwidth(record))

    def save_incident(self, closed: ClosedIncident) -> None:
        self._points.carry_out("memory.incident", closed.instance_id, lambda: self._save_incident(closed))

    def incidents(self, instance_id: str = "", limit: int = 100) -> list[ClosedIncident]:
        with self._lock:
            mine = [closed for closed in self._incidents.values() if instance_id in ("", closed.instance_id)]
        return sorted(mine, key=lambda closed: closed.closed_at, reverse=True)[:limit]

    def configurations(self, instance_ids: Sequence[str]) -> list[SeenConfiguration]:
        with self._lock:
            return [self._configurations[one] for one in instance_ids if one in self._configurations]

    def save_configuration(self, seen: SeenConfiguration) -> None:
        self._points.carry_out("memory.configuration", seen.instance_id, lambda: self._save_configuration(seen))

    def freezes(self, cluster: str) -> list[Freeze]:
        return self._points.carry_out("memory.freezes", cluster, lambda: list(self._freezes.get(cluster, [])))

    def save_freezes(self, cluster: str, freezes: list[Freeze]) -> None:
        self._points.carry_out("memory.keep_freezes", cluster, lambda: self._save_freezes(cluster, freezes))

    def _note_intent(self, token: str) -> bool:
        with self._lock:
            new = token not in self._intents
            self._intents.setdefault(token, time.monotonic())
            return new

    def _save_incident(self, closed: ClosedIncident) -> None:
        with self._lock:
            self._incidents[closed.incident, closed.run_id] = closed

    def _save_configuration(self, seen: SeenConfiguration) -> None:
        with self._lock:
            self._configurations[seen.instance_id] = seen

    def _save_freezes(self, cluster: str, freezes: list[Freeze]) -> None:
        with self._lock:
            self._freezes[cluster] = list(freezes)

    def _recall(self, instance_id: str) -> HostRecord:
        with self._lock:
            return self._records.get(instance_id, HostRecord(instance_id=instance_id))

    def _some_gpus(self, serials: Sequence[str] | None) -> list[GpuRecord]:
        with self._lock:
            return [self._gpus[one] for one in sorted(self._gpus) if serials is None or one in serials]

    def _save_gpu(self, record: GpuRecord) -> GpuRecord:
        with self._lock:
            stored = self._gpus.get(record.serial)
            if record.version != (stored.version if stored else 0):
                raise PreconditionFailed(f"host memory: {record.serial} was changed by somebody else")
            saved = self._gpus[record.serial] = record.model_copy(update={"version": record.version + 1})
            return saved

    def _some_bandwidths(self, keys: Sequence[str] | None) -> list[BandwidthRecord]:
        with self._lock:
            return [self._bandwidths[one] for one in sorted(self._bandwidths) if keys is None or one in keys]

    def _save_bandwidth(self, record: BandwidthRecord) -> BandwidthRecord:
        with self._lock:
            stored = self._bandwidths.get(record.key)
            if record.version != (stored.version if stored else 0):
                raise PreconditionFailed(f"host memory: {record.key} was changed by somebody else")
            saved = self._bandwidths[record.key] = record.model_copy(update={"version": record.version + 1})
            return saved

    def _save(self, record: HostRecord) -> HostRecord:
        with self._lock:
            stored = self._records.get(record.instance_id)
            if record.version != (stored.version if stored else 0):
                raise PreconditionFailed(f"host memory: {record.instance_id} was changed by somebody else")
            saved = record.model_copy(update={"version": record.version + 1})
            self._records[record.instance_id] = saved
            return saved
