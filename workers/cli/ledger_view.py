"""What `hotspare ledger` shows, gathered from host memory: hosts with their strikes, GPUs with their bans, the past of each."""

from __future__ import annotations

import difflib
from datetime import datetime

from pydantic import BaseModel

from activities.errors import UnknownNode
from activities.gpu_records import GpuRecord
from activities.host_ledger import boards_of
from activities.host_memory import ClosedIncident, HostMemory, HostRecord, RungAttempt
from checks.model import GpuRef
from workflows.decisions.strikes import host_weight, weight

MOST_INCIDENTS = 2_000
"""Closed incidents that are read for the table, newest first. Hotspare default: a year of a cluster with five a day."""

SHOWN_INCIDENTS = 20
"""Closed incidents of one host that are shown, newest first. Hotspare default: a screenful."""


class LastIncident(BaseModel):
    """How a host's last incident ended."""

    fault_class: str
    outcome: str
    closed_at: datetime


class HostLine(BaseModel):
    """One host in the table. `weight` is what its strikes still weigh."""

    name: str
    instance_id: str
    zone: str
    reservation: str
    fate: str
    strikes: int
    weight: float
    last: LastIncident | None
    banned: list[str]
    seen_at: datetime | None


class GpuLine(BaseModel):
    """One GPU in the table: where it was last, and the word on it."""

    serial: str
    uuid: str
    host: str
    strikes: int
    weight: float
    known_bad: bool
    since: datetime | None
    by: str
    why: str


class Ledger(BaseModel):
    """The whole table: hosts, the weightiest first, and the GPUs on which there is a word or a strike."""

    hosts: list[HostLine] = []
    gpus: list[GpuLine] = []


class HostPast(BaseModel):
    """All that is remembered of one host, with what its boards went through elsewhere."""

    host: HostLine
    record: HostRecord
    gpus: list[GpuLine]
    elsewhere: list[RungAttempt]
    incidents: list[ClosedIncident]


class GpuPast(BaseModel):
    """All that is remembered of one GPU, with the disruptive steps taken for it in every host."""

    gpu: GpuLine
    record: GpuRecord
    attempts: list[RungAttempt]


class LedgerView:
    """Reads host memory for the ledger, as of `now`."""

    def __init__(self, memory: HostMemory, half_life_days: float, now: datetime) -> None:
        self._memory, self._half_life, self._now = memory, half_life_days, now

    def all(self) -> Ledger:
        """Every host, and every GPU that is more than seen."""
        gpus = {record.serial: record for record in self._memory.gpus()}
        last: dict[str, ClosedIncident] = {}
        for closed in self._memory.incidents(limit=MOST_INCIDENTS):
            last.setdefault(closed.instance_id, closed)
        hosts = [self._host(record, gpus, last.get(record.instance_id)) for record in self._memory.records()]
        told = [self._gpu(record) for record in gpus.values() if record.marks or record.strikes]
        return Ledger(
            hosts=sorted(hosts, key=lambda host: (-host.weight, -len(host.banned), host.name or host.instance_id)),
            gpus=sorted(told, key=lambda gpu: (not gpu.known_bad, -gpu.weight, gpu.serial)),
        )

    def of(self, what: str) -> HostPast | GpuPast:
        """The past of a host, by instance id or name, or of a GPU, by serial or UUID. Raises UnknownNode, naming the nearest."""
        wanted = what.strip().lower()
        records = self._memory.records()
        named = [one for one in records if wanted in (one.instance_id.lower(), one.name.lower())]
        if named:
            newest = max(
                named, key=lambda one: (one.seen_at is not None, one.seen_at or one.last_incident_closed_at or self._now)
            )
            return self._host_past(newest)
        gpus = self._memory.gpus()
        gpu = next((one for one in gpus if wanted in (one.serial.lower(), one.uuid.lower())), None)
        if gpu is None:
            known = {
                *(one.instance_id for one in records),
                *(one.name for one in records if one.name),
                *(one.serial for one in gpus),
            }
            near = difflib.get_close_matches(what, sorted(known), 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "hotspare ledger shows all that are known"
            raise UnknownNode(f"the ledger has no host and no GPU called {what!r}; {hint}")
        homes = {home.instance_id for home in gpu.homes}
        tried = [one for home in sorted(homes) for one in self._memory.recall(home).attempts if one.gpu_serial == gpu.serial]
        return GpuPast(gpu=self._gpu(gpu), record=gpu, attempts=sorted(tried, key=lambda one: one.at))

    def _host_past(self, record: HostRecord) -> HostPast:
        incidents = self._memory.incidents(record.instance_id, SHOWN_INCIDENTS)
        refs = [GpuRef(serial=serial) for serial in record.gpu_serials]
        boards = boards_of(self._memory, record.instance_id, refs)
        gpus = {one.serial: one for one in boards.records}
        return HostPast(
            host=self._host(record, gpus, incidents[0] if incidents else None),
            record=record,
            gpus=[self._gpu(one) for one in boards.records],
            elsewhere=boards.attempts(),
            incidents=incidents,
        )

    def _host(self, record: HostRecord, gpus: dict[str, GpuRecord], closed: ClosedIncident | None) -> HostLine:
        last = (
            LastIncident(fault_class=closed.fault_class, outcome=closed.outcome, closed_at=closed.closed_at) if closed else None
        )
        return HostLine(
            name=record.name,
            instance_id=record.instance_id,
            zone=record.zone,
            reservation=record.reservation,
            fate=record.fate,
            strikes=record.strikes,
            weight=round(host_weight(record, self._now, self._half_life), 2),
            last=last,
            banned=[serial for serial in record.gpu_serials if serial in gpus and gpus[serial].known_bad],
            seen_at=record.seen_at,
        )

    def _gpu(self, record: GpuRecord) -> GpuLine:
        word = record.marks[-1] if record.marks else None
        return GpuLine(
            serial=record.serial,
            uuid=record.uuid,
            host=record.home.instance_id if record.home else "",
            strikes=len(record.strikes),
            weight=round(weight(record.strikes, self._now, self._half_life), 2),
            known_bad=record.known_bad is not None,
            since=word.at if word else None,
            by=word.by if word else "",
            why=word.why if word else "",
        )
