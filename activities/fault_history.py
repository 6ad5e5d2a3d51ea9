"""Remembers each fault of a node once per incident, and weighs what a probe saw with what was there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from activities.errors import HotspareError
from activities.gpu_records import banned
from activities.host_ledger import Boards, boards_of, note_boards, with_lost, with_sight
from activities.host_memory import HostFault, HostMemory, HostRecord, RungAttempt, remember
from activities.node_messages import Examine
from activities.node_words import evidence_of, weigh
from activities.probing import ProbeAnswer
from checks.catalog import Override
from checks.diagnosis import History, PastFault, PastRepair, with_log
from checks.model import Action, Confidence, Diagnosis, GpuRef


@dataclass(frozen=True)
class Weighed:
    """A diagnosis with the past of the GPUs: which are banned, and what was tried on them under other instance ids."""

    diagnosis: Diagnosis
    banned: tuple[str, ...] = ()
    elsewhere: tuple[RungAttempt, ...] = ()


def weigh_with_past(memory: HostMemory, answer: ProbeAnswer, request: Examine, overrides: Mapping[str, Override]) -> Weighed:
    """Diagnose a node by what the probe saw, what was reported, and its faults of the last month, which these now belong to.

    The past of its GPUs counts wherever they were. What the look shows of host and GPUs is written into the ledger. Where host
    memory does not answer the node is diagnosed without a past, and the diagnosis says so.
    """
    incident = request.incident
    try:
        record = memory.recall(request.node.instance_id)
        known = boards_of(memory, request.node.instance_id, answer.gpus)
        whole = replace(answer, gpus=with_lost(answer.gpus, record, request.node, _booted_at(answer)))

        def change(now: HostRecord) -> HostRecord:
            now = with_sight(_with_earlier(now, known), request.node, answer.gpus, answer.taken_at)
            return now.model_copy(update={"faults": _faults(_with_present(now, whole, request, overrides, incident))})

        if change(record) != record:
            record = remember(memory, request.node.instance_id, change)
        note_boards(memory, request.node, answer.gpus, known, answer.taken_at)
    except HotspareError as error:
        found = weigh(answer, request, overrides, History(boot_id=answer.boot_id, incident=incident, job=request.job))
        return Weighed(replace(found, because=(*found.because, f"whether it was there before is not known: {error}")))
    past = _with_present(record, whole, request, overrides, incident)
    bans = tuple(banned(known.records))
    return Weighed(_not_to_serve(weigh(whole, request, overrides, past), bans), bans, tuple(known.attempts()))


def _booted_at(answer: ProbeAnswer) -> datetime | None:
    return None if answer.uptime_s is None else answer.taken_at - timedelta(seconds=answer.uptime_s)


def _not_to_serve(found: Diagnosis, bans: tuple[str, ...]) -> Diagnosis:
    """A host with a banned GPU is to be replaced, whatever it shows today."""
    if not bans:
        return found
    if found.action is Action.NONE:
        return Diagnosis("hardware", Action.REPLACE_NODE, Confidence.HIGH, bans)
    return replace(found, because=(*found.because, *bans))


def _with_earlier(record: HostRecord, known: Boards) -> HostRecord:
    """Return the record with the faults that its GPUs had in other hosts. A bus address there names nothing here."""
    seen = {(fault.kind, fault.code, round(fault.at), fault.gpu_serial) for fault in record.faults}
    moved = [
        fault.model_copy(update={"pci": ""})
        for host in known.earlier
        for fault in host.faults
        if fault.gpu_serial in known.serials and (fault.kind, fault.code, round(fault.at), fault.gpu_serial) not in seen
    ]
    return record.model_copy(update={"faults": [*moved, *record.faults]}) if moved else record


def history_of(record: HostRecord, boot_id: str, incident: str, job: str) -> History:
    """Return what is remembered of a host as the diagnosis takes it."""
    return History(
        faults=tuple(_past(fault) for fault in record.faults),
        repairs=tuple(PastRepair(attempt.at.timestamp(), attempt.rung) for attempt in record.attempts),
        boot_id=boot_id,
        incident=incident,
        job=job,
    )


def _with_present(
    record: HostRecord, answer: ProbeAnswer, request: Examine, overrides: Mapping[str, Override], incident: str
) -> History:
    timing, hardware = evidence_of(answer, request, overrides)
    return with_log(history_of(record, answer.boot_id, incident, request.job), answer.events, timing, hardware)


def _faults(history: History) -> list[HostFault]:
    return [
        HostFault(
            kind=fault.kind,
            code=fault.code,
            signal=fault.signal,
            at=round(fault.at, 3),
            until=round(fault.until, 3),
            gpu_serial=fault.gpu.serial,
            gpu_uuid=fault.gpu.uuid,
            pci=fault.gpu.pci,
            link=fault.link,
            unit=fault.unit,
            lasting=fault.lasting,
            boot_id=fault.boot_id,
            job=fault.job,
            incident=fault.incident,
        )
        for fault in history.faults
    ]


def _past(fault: HostFault) -> PastFault:
    return PastFault(
        kind=fault.kind,
        code=fault.code,
        at=fault.at,
        until=fault.until,
        signal=fault.signal,
        gpu=GpuRef(uuid=fault.gpu_uuid, pci=fault.pci, serial=fault.gpu_serial),
        link=fault.link,
        unit=fault.unit,
        lasting=fault.lasting,
        boot_id=fault.boot_id,
        job=fault.job,
        incident=fault.incident,
    )
