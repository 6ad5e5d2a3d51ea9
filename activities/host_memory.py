"""What is remembered of hosts outside Temporal: one small record per host in a store with conditional writes.

A namespace forgets closed workflows within a day; strikes, known-bad serials, freezes and closed incidents must not.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from activities.message import Message
from checks.model import Action


class RungAttempt(Message):
    """One disruptive step that was taken on a host: the rung, when, for which fault, and whether it helped."""

    rung: Action
    at: datetime
    fault_class: str
    code: int | None = None
    gpu_serial: str = ""
    helped: bool | None = None
    incident: str = ""


class HostRecord(Message):
    """All that is remembered of one host. `version` is for conditional writes: 0 means not stored yet."""

    instance_id: str
    version: int = 0
    gpu_serials: list[str] = []
    attempts: list[RungAttempt] = []
    strikes: int = 0
    fate: str = ""
    qualified_at: datetime | None = None
    last_incident_closed_at: datetime | None = None


class ClosedIncident(Message):
    """A finished incident with its recorded decisions, for people and for replaying a changed policy."""

    incident: str
    run_id: str
    cluster: str
    instance_id: str
    opened_at: datetime
    closed_at: datetime
    fault_class: str
    outcome: str
    summary: list[str] = []
    decisions: list[str] = []


class Freeze(Message):
    """A time-boxed stop of new disruption. `scope` is "cluster", "node:<instance id>", "job:<name>" or "domain:<name>"."""

    scope: str
    until: datetime
    who: str
    why: str


class RecallHost(Message):
    """Ask for a host's record."""

    instance_id: str


class RecordAttempt(Message):
    """Append one attempt to a host's record; the same (incident, rung, at) is appended once."""

    instance_id: str
    attempt: RungAttempt
    gpu_serials: list[str] = []


class CloseHostIncident(Message):
    """Store a closed incident and its effect on the host: fate, strike, whether the last rung helped, qualification."""

    closed: ClosedIncident
    fate: str = ""
    strike: bool = False
    last_rung_helped: bool | None = None
    qualified_at: datetime | None = None
    gpu_serials: list[str] = []


class HostMemory(Protocol):
    """The store. Every write is conditional on the version that was read; ProviderBusy when the race is lost too often."""

    def note_intent(self, token: str, what: str) -> bool: ...

    def recall(self, instance_id: str) -> HostRecord: ...

    def save(self, record: HostRecord) -> HostRecord:
        """Store the record if its version is still the stored one; returns it with the new version. Raises PreconditionFailed."""
        ...

    def records(self) -> list[HostRecord]: ...

    def save_incident(self, closed: ClosedIncident) -> None: ...

    def incidents(self, instance_id: str = "", limit: int = 100) -> list[ClosedIncident]: ...

    def freezes(self, cluster: str) -> list[Freeze]: ...

    def save_freezes(self, cluster: str, freezes: list[Freeze]) -> None: ...
