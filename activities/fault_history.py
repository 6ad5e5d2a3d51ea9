"""Remembers each fault of a node once per incident, and weighs what a probe saw with what was there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from activities.errors import HotspareError
from activities.host_memory import HostFault, HostMemory, HostRecord, remember
from activities.node_messages import Examine
from activities.node_words import evidence_of, weigh
from activities.probing import ProbeAnswer
from checks.catalog import Override
from checks.diagnosis import History, PastFault, PastRepair, with_log
from checks.model import Diagnosis, GpuRef


def weigh_with_past(memory: HostMemory, answer: ProbeAnswer, request: Examine, overrides: Mapping[str, Override]) -> Diagnosis:
    """Diagnose a node by what the probe saw, what was reported, and its faults of the last month, which these now belong to.

    Where host memory does not answer the node is diagnosed without a past, and the diagnosis says so.
    """
    incident = request.incident
    try:
        record = memory.recall(request.node.instance_id)
        past = _with_present(record, answer, request, overrides, incident)
        if _faults(past) != record.faults:
            remember(
                memory,
                request.node.instance_id,
                lambda now: now.model_copy(update={"faults": _faults(_with_present(now, answer, request, overrides, incident))}),
            )
    except HotspareError as error:
        found = weigh(answer, request, overrides, History(boot_id=answer.boot_id, incident=incident, job=request.job))
        return replace(found, because=(*found.because, f"whether it was there before is not known: {error}"))
    return weigh(answer, request, overrides, past)


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
