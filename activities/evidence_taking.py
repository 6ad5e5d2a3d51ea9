"""One evidence bundle while it is gathered: its parts so far, what the looks beside the node found, and what is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from activities.ec2_messages import InstanceStatus, InstanceView
from activities.evidence_case import CaseFacts, fault_lines, support_case
from activities.evidence_gathering import NodeReader
from activities.evidence_parts import DMESG, JOURNAL, SUPPORT_CASE, Part
from activities.evidence_redaction import Redactor
from activities.evidence_spool import Spool
from activities.host_memory import HostRecord
from activities.jobs.protocol import JobStatus
from activities.node_messages import CollectEvidence, Gpu, Opinion
from activities.probing import ProbeAnswer
from checks.model import Verdict

WHY_LIMIT = 600
"""Characters kept of why a part is missing. Hotspare default: the last lines of an error; the manifest stays readable."""


@dataclass
class Found:
    """What the looks beside the node found, for the text of the support case and the paths of logs."""

    view: InstanceView | None = None
    status: InstanceStatus | None = None
    job: JobStatus | None = None
    record: HostRecord | None = None
    answer: ProbeAnswer | None = None


@dataclass
class Taking:
    """One bundle while it is gathered."""

    request: CollectEvidence
    redactor: Redactor
    spool: Spool
    began: datetime
    found: Found = field(default_factory=Found)
    parts: dict[str, Part] = field(default_factory=dict)

    def take(self, part: Part) -> Part:
        """Add a part, cleaned."""
        cleaned = self.redactor.clean(part.text)
        part = replace(
            part,
            text=cleaned.text,
            why=self.redactor.clean(part.why).text[:WHY_LIMIT],
            secrets=part.secrets + cleaned.secrets,
            serials=part.serials + cleaned.serials,
        )
        self.parts[part.name] = part
        if part.held:
            self.spool.keep(part)
        return part

    def mark_boards(self) -> None:
        """Look again for serial numbers: one that a late part named may stand in an early one."""
        for part in list(self.parts.values()):
            marked = self.redactor.mark(part.text)
            why = self.redactor.mark(part.why).text
            self.parts[part.name] = replace(part, text=marked.text, why=why, serials=part.serials + marked.serials)


def case_of(taking: Taking) -> str:
    """The text of a support case about what was gathered."""
    request, found, answer = taking.request, taking.found, taking.found.answer
    booted = answer.taken_at - timedelta(seconds=answer.uptime_s) if answer is not None and answer.uptime_s else None
    logs = [taking.parts[name] for name in (JOURNAL, DMESG, "console.txt") if name in taking.parts]
    lines = next((lines for log in logs if (lines := fault_lines(log.text, booted))), [])
    findings = [finding for finding in (answer.findings if answer else ()) if finding.verdict is not Verdict.OK]
    return support_case(
        CaseFacts(
            node=request.node,
            incident=request.incident,
            at=taking.began,
            opened_at=request.opened_at,
            opinion=request.opinion or seen_by_probe(answer),
            reports=request.reports,
            findings=[f"{finding.check}: {finding.verdict.value}: {finding.summary}" for finding in findings],
            fault_lines=lines,
            view=found.view,
            status=found.status,
            attempts=found.record.attempts if found.record else (),
            strikes=found.record.strikes if found.record else 0,
            driver=answer.driver_version if answer else "",
            boot_id=answer.boot_id if answer else "",
            uptime_s=answer.uptime_s if answer else None,
            parts=[part.line for part in taking.parts.values() if part.name != SUPPORT_CASE],
        )
    )


def about(taking: Taking, reader: NodeReader, remark: str) -> dict[str, object]:
    """The head of the manifest."""
    request, node, parts = taking.request, taking.request.node, taking.parts.values()
    answer = taking.found.answer
    return {
        "incident": request.incident,
        "node": {"instance_id": node.instance_id, "name": node.name, "instance_type": node.instance_type, "zone": node.zone},
        "boot_id": answer.boot_id if answer is not None else "",
        "began_at": taking.began.isoformat(timespec="seconds"),
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "deadline_s": reader.deadline_s,
        "nvml": reader.no_nvml or "touched",
        "node_stopped_answering": bool(reader.gone),
        "taken_out": {
            "secrets": sum(part.secrets for part in parts),
            "serials": sum(part.serials for part in parts),
            **({"remark": remark} if remark else {}),
        },
    }


def seen_by_probe(answer: ProbeAnswer | None) -> Opinion | None:
    """The probe's own diagnosis, for a bundle that is taken outside of an incident."""
    if answer is None or answer.diagnosis.fault_class == "none":
        return None
    seen, gpu = answer.diagnosis, answer.diagnosis.gpu
    return Opinion(
        fault_class=seen.fault_class,
        action=seen.action,
        confidence=seen.confidence,
        because=list(seen.because),
        code=seen.code,
        gpu=Gpu(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci) if gpu is not None else Gpu(),
    )
