"""What is remembered of hosts outside Temporal: one small record per host in a store with conditional writes.

A namespace forgets closed workflows within a day; strikes, known-bad serials, freezes and closed incidents must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from temporalio import activity

from activities.errors import PreconditionFailed, ProviderBusy, as_application_error
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


class HostFault(Message):
    """One past fault of a host, as `checks.diagnosis.PastFault`. `incident` names the run of the incident that saw it."""

    kind: str
    code: int | None = None
    signal: str = ""
    at: float
    until: float
    gpu_serial: str = ""
    gpu_uuid: str = ""
    pci: str = ""
    link: int | None = None
    unit: str = ""
    lasting: bool = False
    boot_id: str = ""
    job: str = ""
    incident: str = ""


class HostRecord(Message):
    """All that is remembered of one host. `version` is for conditional writes: 0 means not stored yet.

    `handled_at` is when the last incident ended well: kernel lines up to then are history. `faults` are for the diagnosis alone
    and stay out of the histories of workflows.
    """

    instance_id: str
    version: int = 0
    gpu_serials: list[str] = []
    attempts: list[RungAttempt] = []
    strikes: int = 0
    fate: str = ""
    qualified_at: datetime | None = None
    last_incident_closed_at: datetime | None = None
    handled_at: datetime | None = None
    faults: list[HostFault] = []


class Said(Message):
    """What a person said to an incident: the word, who said it, when it was heard, and which step was asked about then."""

    at: datetime
    verb: str
    by: str
    reason: str = ""
    step: str = ""


class ClosedIncident(Message):
    """A finished incident with its recorded decisions, for people and for replaying a changed policy.

    `decisions` are the last ones, as `workflows.decisions.replayed` writes them; `decisions_made` counts those that came before
    too. `said` has every word of a person, those that came too late to be acted on included.
    """

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
    decisions_made: int = 0
    said: list[Said] = []


class Freeze(Message):
    """A time-boxed stop of new disruption. `scope` is "cluster", "node:<instance id>", "job:<name>" or "domain:<name>"."""

    scope: str
    until: datetime
    who: str
    why: str


class SeenConfiguration(Message):
    """How a node was set up when it was last looked at: the document of `checks.parity.Configuration`."""

    instance_id: str
    taken_at: datetime
    document: dict[str, Any] = {}


class CloseHostIncident(Message):
    """Store a closed incident and its effect on the host: fate, strike, whether the last rung helped, qualification.

    `job` is the job that the incident found on the host: its faults are remembered under it.
    """

    closed: ClosedIncident
    fate: str = ""
    strike: bool = False
    last_rung_helped: bool | None = None
    qualified_at: datetime | None = None
    gpu_serials: list[str] = []
    handled: bool = False
    job: str = ""


class LoadFreezes(Message):
    """Ask for the freezes of a cluster."""

    cluster: str


class SaveFreezes(Message):
    """Replace the freezes of a cluster. There is one writer: the cluster's keeper."""

    cluster: str
    freezes: list[Freeze] = []


class Freezes(Message):
    """The answer to `LoadFreezes`."""

    freezes: list[Freeze] = []


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

KEPT_ATTEMPTS = 50
"""Attempts remembered per host, newest last. Hotspare default: many times any budget; keeps the record small."""


class HostMemoryActivities:
    """What workflows remember and recall."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory

    @activity.defn
    def close_host_incident(self, request: CloseHostIncident) -> HostRecord:
        """Store a closed incident, then its effect on the host; both once."""
        with as_application_error():
            self._memory.save_incident(request.closed)

            def change(record: HostRecord) -> HostRecord:
                return with_job(with_closed(record, request), request.closed.run_id.partition("~")[0], request.job)

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


def without_faults(record: HostRecord) -> HostRecord:
    """Return the record as workflows carry it: past faults would be in each of their decisions."""
    return record.model_copy(update={"faults": []}) if record.faults else record


def with_job(record: HostRecord, incident: str, job: str) -> HostRecord:
    """Return the record with the job of an incident noted at its faults."""
    if not (incident and job):
        return record
    faults = [
        fault.model_copy(update={"job": job}) if fault.incident == incident and not fault.job else fault
        for fault in record.faults
    ]
    return record.model_copy(update={"faults": faults})


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


def with_attempt(record: HostRecord, new: RungAttempt) -> HostRecord:
    """Return the record with the attempt appended, or as it was if the attempt is there already."""
    if any((seen.incident, seen.rung, seen.at) == (new.incident, new.rung, new.at) for seen in record.attempts):
        return record
    return record.model_copy(update={"attempts": [*record.attempts, new][-KEPT_ATTEMPTS:]})


def with_closed(record: HostRecord, request: CloseHostIncident) -> HostRecord:
    """Return the record after an incident closed. The strike is counted once: a known closing time is not applied again."""
    closed = request.closed
    if record.last_incident_closed_at is not None and record.last_incident_closed_at >= closed.closed_at:
        return record
    attempts = list(record.attempts)
    if request.last_rung_helped is not None and attempts and attempts[-1].incident == closed.run_id:
        attempts[-1] = attempts[-1].model_copy(update={"helped": request.last_rung_helped})
    return record.model_copy(
        update={
            "attempts": attempts,
            "strikes": record.strikes + (1 if request.strike else 0),
            "fate": request.fate or record.fate,
            "qualified_at": request.qualified_at or record.qualified_at,
            "gpu_serials": request.gpu_serials or record.gpu_serials,
            "last_incident_closed_at": closed.closed_at,
            "handled_at": closed.closed_at if request.handled else record.handled_at,
        }
    )
