"""The one JSON document that a probe answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Optional

from checks.model import Diagnosis, Finding, GpuRef, KernelEvent, Verdict
from checks.parity import Configuration
from checks.probes.leftovers import Leftover

SCHEMA = 1

EVENTS_LIMIT = 200
"""Events in the document at most, the newest. Hotspare default: one crash can print thousands of lines."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds a GPU."""

    pid: int
    gpu_index: int
    name: str


@dataclass(frozen=True)
class ProbeReport:
    """Everything that one probe saw and says. `gpu_processes` is None where they could not be read."""

    boot_id: str
    uptime_s: Optional[float]
    taken_at: float
    instance_type: str
    gpus: tuple[GpuRef, ...]
    gpu_processes: Optional[tuple[GpuProcess, ...]]
    findings: tuple[Finding, ...]
    events: tuple[KernelEvent, ...]
    diagnosis: Diagnosis
    readings: Optional[dict[str, Any]] = None
    driver_version: str = ""
    configuration: Optional[Configuration] = None
    leftovers: Optional[tuple[Leftover, ...]] = None

    @property
    def verdict(self) -> Verdict:
        """The worst finding."""
        return worst(finding.verdict for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain data; enums are written by their value."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "verdict": self.verdict.value,
            "boot_id": self.boot_id,
            "uptime_s": self.uptime_s,
            "taken_at": self.taken_at,
            "instance_type": self.instance_type,
            "driver_version": self.driver_version,
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "gpu_processes": None if self.gpu_processes is None else [asdict(process) for process in self.gpu_processes],
            "findings": [_plain(finding) for finding in self.findings],
            "events": [_plain(event) for event in _newest(self.events)],
            "dropped": max(0, len(self.events) - EVENTS_LIMIT),
            "diagnosis": _plain(self.diagnosis),
        }
        if self.leftovers is not None:
            document["leftovers"] = [asdict(process) for process in self.leftovers]
        if self.configuration is not None:
            document["configuration"] = self.configuration.to_json()
        if self.readings is not None:
            document["readings"] = self.readings
        return document


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of several: CRITICAL before UNKNOWN before WARN before OK; of none at all, UNKNOWN."""
    given = set(verdicts)
    for verdict in (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN, Verdict.OK):
        if verdict in given:
            return verdict
    return Verdict.UNKNOWN


def _newest(events: Sequence[KernelEvent]) -> Sequence[KernelEvent]:
    return events[-EVENTS_LIMIT:]


def _plain(value: Any) -> Any:
    return {name: _value(item) for name, item in asdict(value).items()}


def _value(item: Any) -> Any:
    if isinstance(item, Enum):
        return item.value
    return list(item) if isinstance(item, tuple) else item
