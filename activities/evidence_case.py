"""Writes the text of an AWS support case: what a support engineer asks for first, in the order in which the case form asks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from activities.ec2_messages import InstanceStatus, InstanceView
from activities.host_memory import RungAttempt
from activities.inventory import Node
from activities.node_messages import Opinion, Report
from checks.kernel_log import parse_all
from checks.model import Action

LINES = 25
"""Fault lines quoted, the newest. Hotspare default: a burst of one fault is below it, and the logs are attached."""

_ASKED = {
    Action.REPLACE_NODE: "Please take the host out of service and tell us when it is done, or why you think it healthy.",
    Action.CONTACT_SUPPORT: "Please tell us what this fault means on this instance type, and what you recommend.",
}
_HARDWARE = frozenset({"gpu_lost", "memory_exhausted", "memory_uncorrectable", "hardware", "host", "link", "fabric", "gsp_hang"})


@dataclass(frozen=True)
class CaseFacts:
    """What is known when the bundle is made. Absent means not known, never "none"."""

    node: Node
    incident: str
    at: datetime
    opened_at: datetime | None = None
    opinion: Opinion | None = None
    reports: Sequence[Report] = ()
    findings: Sequence[str] = ()
    fault_lines: Sequence[str] = ()
    view: InstanceView | None = None
    status: InstanceStatus | None = None
    attempts: Sequence[RungAttempt] = ()
    strikes: int = 0
    driver: str = ""
    boot_id: str = ""
    uptime_s: float | None = None
    parts: Sequence[str] = field(default_factory=tuple)


def support_case(facts: CaseFacts) -> str:
    """Return the text, ready to be pasted once a person has read it."""
    blocks = [
        ("Subject", [_subject(facts)]),
        ("Service and severity", ["EC2, GPU instance. Severity: choose by what stands still while this node is out."]),
        ("Instance", _instance(facts)),
        ("Times (UTC)", _times(facts)),
        ("What was seen", _seen(facts)),
        ("Kernel lines", list(facts.fault_lines) or ["no fault line could be read; see the parts that are missing"]),
        ("EC2 status checks", [_status(facts.status)]),
        ("What was tried", _tried(facts)),
        ("What we ask", _asked(facts)),
        ("Attached", [*facts.parts, "Serial numbers of boards are replaced by marks: the same mark is the same board."]),
    ]
    return "\n\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in blocks) + "\n"


def fault_lines(log: str, booted_at: datetime | None = None) -> list[str]:
    """The newest fault lines of a kernel log. Those with a time since boot get their time of day too, where that can be known."""
    found: list[str] = []
    for line in log.splitlines():
        events = [event for event in parse_all(line) if event.kind in ("xid", "sxid")]
        if events:
            stamp = events[0].monotonic_s
            early = stamp is not None and booted_at is not None and line.lstrip().startswith("[")
            found.append(f"{utc(booted_at + timedelta(seconds=stamp))} {line}" if early and booted_at and stamp else line)
    return found[-LINES:]


def utc(at: datetime) -> str:
    """A time as every text here has it."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _subject(facts: CaseFacts) -> str:
    kind = facts.node.instance_type or (facts.view.instance_type if facts.view else "") or "GPU instance"
    codes = sorted({report.xid for report in facts.reports if report.xid is not None} | _code(facts.opinion))
    said = ", ".join(f"XID {code}" for code in codes) or (facts.opinion.fault_class if facts.opinion else "GPU fault")
    return f"{kind} {facts.node.instance_id}: {said}"


def _code(opinion: Opinion | None) -> set[int]:
    return {opinion.code} if opinion is not None and opinion.code is not None else set()


def _instance(facts: CaseFacts) -> list[str]:
    view, node = facts.view, facts.node
    rows = {
        "Instance id": node.instance_id,
        "Type": node.instance_type or (view.instance_type if view else ""),
        "Availability Zone": node.zone or (view.zone if view else ""),
        "Capacity reservation": (view.capacity_reservation or "none, says EC2") if view else "",
        "Placement group": (view.placement_group or "none, says EC2") if view else "",
        "Image": view.image_id if view else "",
        "State": view.state if view else node.state,
        "NVIDIA driver": facts.driver,
        "Boot id": facts.boot_id,
    }
    return [f"{name}: {value or 'not known'}" for name, value in rows.items()]


def _times(facts: CaseFacts) -> list[str]:
    seen = sorted(report.seen_at for report in facts.reports if report.seen_at is not None)
    rows = [("First report", seen[0] if seen else None), ("Last report", seen[-1] if seen else None)]
    rows += [("Incident opened", facts.opened_at), ("Evidence taken", facts.at)]
    if facts.uptime_s is not None:
        rows.append(("Last boot", facts.at - timedelta(seconds=facts.uptime_s)))
    return [f"{name}: {utc(at) if at else 'not known'}" for name, at in rows]


def _seen(facts: CaseFacts) -> list[str]:
    lines = []
    if (opinion := facts.opinion) is not None:
        gpu = f", GPU {opinion.gpu.pci or opinion.gpu.uuid or opinion.gpu.index}" if opinion.gpu != type(opinion.gpu)() else ""
        lines.append(f"Diagnosis: {opinion.fault_class}{gpu}; recommended action: {opinion.action.value}")
        lines += [f"because {reason}" for reason in opinion.because]
    lines += [f"Check {finding}" for finding in facts.findings]
    lines += [
        f"Reported by {report.source}: {report.what or report.raw}" for report in facts.reports if report.what or report.raw
    ]
    return list(dict.fromkeys(lines)) or ["not known"]


def _status(status: InstanceStatus | None) -> str:
    if status is None:
        return "could not be read"
    return f"instance {status.state}; system status {status.system}; instance status {status.instance}"


def _tried(facts: CaseFacts) -> list[str]:
    words = {True: "helped", False: "did not help", None: "result not known"}
    lines = [
        f"{utc(attempt.at)} {attempt.rung.value} for {attempt.fault_class}"
        f"{f' (XID {attempt.code})' if attempt.code is not None else ''}: {words[attempt.helped]}"
        for attempt in facts.attempts
    ]
    if facts.strikes:
        lines.append(f"{facts.strikes} incident{'s' if facts.strikes > 1 else ''} of this host ended without a cure before")
    if not lines and facts.opened_at is None:
        return ["no repair of this host is on record"]
    return lines or ["Nothing yet: the node was taken out of service, and this evidence was saved before any reset or reboot."]


def _asked(facts: CaseFacts) -> list[str]:
    opinion = facts.opinion
    lines = ["Please look at the health of the host behind this instance at the times above, and tell us what you find."]
    if opinion is not None and (asked := _ASKED.get(opinion.action)):
        lines.append(asked)
    if opinion is not None and opinion.fault_class in _HARDWARE:
        lines.append(
            "If the hardware is at fault: is a stop and start enough to get other hardware, or is the instance to be replaced?"
        )
    if facts.view is not None and facts.view.capacity_reservation:
        lines.append(
            f"Please confirm that the slot in {facts.view.capacity_reservation} stays ours while the instance is stopped."
        )
    return lines
