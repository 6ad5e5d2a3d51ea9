"""The records that host memory keeps, and how each changes with a step or an incident's end. Nothing here has effects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from activities.gpu_records import GpuRecord, HostGpu, Mark, Strike, with_mark, with_strike
from activities.message import Message
from activities.names import FATE_REPLACED, FATE_RETIRED
from checks.model import Action, Verdict

KEPT_ATTEMPTS = 50
"""Attempts remembered per host, newest last. Hotspare default: many times any budget; keeps the record small."""

NOT_THE_GPU = ("configuration", "application", "unknown_code", "unreachable", "host", "fabric", "none", "")
"""Fault classes for which no GPU is banned though its host was given up: they are not the board's own."""


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


class SpareTest(Message):
    """How a scheduled test of a spare ended, in which boot, and when."""

    at: datetime
    verdict: Verdict
    because: list[str] = []
    boot_id: str = ""

    @property
    def passed(self) -> bool:
        """Whether every part of it ran and was well."""
        return self.verdict is Verdict.OK


class HostRecord(Message):
    """All that is remembered of one host. `version` is for conditional writes: 0 means not stored yet.

    `handled_at` is when the last incident ended well: kernel lines up to then are history. `strikes` counts all there ever were,
    `struck` tells the newest one by one, because an old strike weighs less. `faults` and `gpus` are for the diagnosis alone and
    stay out of the histories of workflows. `seen_at` is when name, place and GPUs were last written down. `spare_test` is the
    last one of a node of the pool. `succeeds` is the node in whose place its owner launched this one.
    """

    instance_id: str
    version: int = 0
    cluster: str = ""
    name: str = ""
    instance_type: str = ""
    zone: str = ""
    reservation: str = ""
    seen_at: datetime | None = None
    gpu_serials: list[str] = []
    gpus: list[HostGpu] = []
    attempts: list[RungAttempt] = []
    strikes: int = 0
    struck: list[Strike] = []
    fate: str = ""
    qualified_at: datetime | None = None
    last_incident_closed_at: datetime | None = None
    handled_at: datetime | None = None
    spare_test: SpareTest | None = None
    succeeds: str = ""
    faults: list[HostFault] = []


class SpareRecord(Message):
    """One spare as host memory has it. `bans`: why its GPUs are banned; `repaired_at`: since when it is on probation.

    `qualified_at` is when it last passed, by its own test or by the tests of the incident that repaired it.
    """

    instance_id: str
    test: SpareTest | None = None
    qualified_at: datetime | None = None
    repaired_at: datetime | None = None
    bans: list[str] = []


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

    `job` is the job that the incident found on the host: its faults are remembered under it. `gpu_serial` is the GPU that the
    incident accused: its record takes the strike too, and it is known bad once its host was given up for it.
    """

    closed: ClosedIncident
    fate: str = ""
    strike: bool = False
    last_rung_helped: bool | None = None
    qualified_at: datetime | None = None
    gpu_serials: list[str] = []
    handled: bool = False
    job: str = ""
    gpu_serial: str = ""


class LoadFreezes(Message):
    """Ask for the freezes of a cluster."""

    cluster: str


class SaveFreezes(Message):
    """Replace the freezes of a cluster. There is one writer: Cluster."""

    cluster: str
    freezes: list[Freeze] = []


class Freezes(Message):
    """The answer to `LoadFreezes`."""

    freezes: list[Freeze] = []


def without_faults(record: HostRecord) -> HostRecord:
    """Return the record as workflows carry it: past faults and boards would be in each of their decisions."""
    return record.model_copy(update={"faults": [], "gpus": []}) if record.faults or record.gpus else record


def with_job(record: HostRecord, incident: str, job: str) -> HostRecord:
    """Return the record with the job of an incident noted at its faults."""
    if not (incident and job):
        return record
    faults = [
        fault.model_copy(update={"job": job}) if fault.incident == incident and not fault.job else fault
        for fault in record.faults
    ]
    return record.model_copy(update={"faults": faults})


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
            "cluster": closed.cluster,
            "attempts": attempts,
            "strikes": record.strikes + (1 if request.strike else 0),
            "struck": with_strike(record.struck, strike_of(request)) if request.strike else record.struck,
            "fate": request.fate or record.fate,
            "qualified_at": request.qualified_at or record.qualified_at,
            "gpu_serials": _serials(record.gpu_serials, request.gpu_serials),
            "last_incident_closed_at": closed.closed_at,
            "handled_at": closed.closed_at if request.handled else record.handled_at,
        }
    )


def strike_of(request: CloseHostIncident) -> Strike:
    """The strike of an incident that closes."""
    closed = request.closed
    return Strike(at=closed.closed_at, fault_class=closed.fault_class, incident=closed.run_id, gpu_serial=request.gpu_serial)


def _serials(known: list[str], seen: list[str]) -> list[str]:
    """A GPU that no longer shows is still one of the host's; other serials are another host."""
    return known if set(seen) <= set(known) else seen


def with_gpu_closed(record: GpuRecord, request: CloseHostIncident) -> GpuRecord:
    """Return the record of the GPU that an incident accused: a strike, and a ban where its host was given up for it."""
    closed = request.closed
    if request.strike:
        record = record.model_copy(update={"strikes": with_strike(record.strikes, strike_of(request))})
    if request.fate not in (FATE_REPLACED, FATE_RETIRED) or closed.fault_class in NOT_THE_GPU:
        return record
    why = f"{closed.fault_class} on {closed.instance_id} was not mended"
    return with_mark(record, Mark(at=closed.closed_at, bad=True, by=closed.incident, why=why))
