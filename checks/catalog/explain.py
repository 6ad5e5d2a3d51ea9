"""Tells people what a code, a host signal, a group of rules or a whole log line means; offline, from the catalog alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from checks.catalog.assess import DECODED_CODES, assess, listed_for
from checks.catalog.assessment import UNKNOWN_MACHINE, Assessment, Machine
from checks.catalog.entries import lookup_signal, lookup_sxid, lookup_xid, provenance, signal_names
from checks.catalog.overrides import key_of
from checks.catalog.rule_tables import Rules, ecc_table, recovery_table, tables_of
from checks.catalog.words import ACTION_WORDS, JOB_WORDS, LINE_DECIDES, in_words
from checks.kernel_log import parse_all
from checks.kernel_log.bursts import CONSEQUENCES
from checks.kernel_log.nvidia_lines import RECOVERY_ACTION_CHANGED
from checks.model import Action, KernelEvent

_CODE = re.compile(r"(s?xid)?[ #=-]{0,2}(\d{1,6})", re.ASCII)


class UnknownTopic(ValueError):
    """There is nothing to explain by this name; the message lists what there is."""


@dataclass(frozen=True)
class Explanation:
    """What is known of a topic. `facts` are labels and texts for people, `data` the same for programs."""

    topic: str
    title: str
    facts: tuple[tuple[str, str], ...]
    data: dict[str, Any]
    rules: tuple[Rules, ...] = ()
    sources: tuple[str, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data; rules as one object a row."""
        tables = {table.title: [dict(zip(table.columns, row)) for row in table.rows] for table in self.rules}
        return {"topic": self.topic, "title": self.title, **self.data, "rules": tables, "sources": list(self.sources)}


def explain(words: Sequence[str], machine: Machine = UNKNOWN_MACHINE) -> Explanation:
    """Explain "79", "xid 79", "sxid 20034", "ecc", "recovery", "nvlink4", "nvlink5", a host signal, or a log line.

    Raises UnknownTopic.
    """
    text = " ".join(words).strip()
    events = parse_all(text)
    if events:
        return _line(events[0], machine)
    topic = " ".join(text.lower().replace(":", " ").replace("_", " ").split())
    code = _CODE.fullmatch(topic)
    if code:
        return _sxid(int(code.group(2)), machine) if code.group(1) == "sxid" else _xid(int(code.group(2)), machine)
    signal = topic[5:] if topic.startswith("host ") else topic
    signal = signal.replace(" ", "_")
    if signal in signal_names():
        return _signal(signal, machine)
    if topic in GROUPS:
        return GROUPS[topic]()
    known = [*GROUPS, *signal_names()]
    near = difflib.get_close_matches(signal, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise UnknownTopic(f"{text!r} is no topic; give an XID number, sxid and a number, a log line, or a name: {hint}")


def _xid(code: int, machine: Machine) -> Explanation:
    entry = lookup_xid(code)
    seen = assess(KernelEvent("xid", code, "", ""), machine)
    by_number = code == RECOVERY_ACTION_CHANGED and key_of(KernelEvent("xid", code, "", "")) not in machine.overrides
    listed = "not published" if entry.families is None else ", ".join(entry.families) or "none of A100 to GB200"
    facts = [("meaning", entry.meaning), ("at fault", entry.at_fault)]
    if by_number:
        facts.append(("first action", "what the number in the line asks for, see the table"))
    else:
        facts += _what_to_do(seen.action, seen.escalation, seen.interrupts_job)
        facts += [("fault class", seen.fault_class), ("why", seen.because)]
    if entry.reserved:
        facts.append(("reserved", "no data-centre GPU should print it: the driver's recovery action decides, else a person"))
    if code in LINE_DECIDES:
        facts.append(("the line decides", LINE_DECIDES[code]))
    if code in CONSEQUENCES:
        facts.append(
            (
                "follows from",
                "XID " + ", ".join(str(cause) for cause in sorted(CONSEQUENCES[code])) + ": then no fault of its own",
            )
        )
    facts += [("listed for", listed), ("note", entry.note)]
    if lookup_sxid(code).block:
        facts.append(("see also", f"it is a code of the NVSwitch: hotspare explain sxid {code}"))
    if entry.nvidia_immediate:
        facts.append(("NVIDIA says", " then ".join(filter(None, (entry.nvidia_immediate, entry.nvidia_investigatory)))))
    if entry.recovery_since:
        facts.append(("recovery action", f"the driver says it with an XID 154 too, since {entry.recovery_since}"))
    if machine.family and entry.families is not None and listed_for(machine.family) not in entry.families:
        facts.append((machine.family, "NVIDIA does not list the code for this GPU"))
    data = {
        **(_data(None, "", "", "depends") if by_number else _data_of(seen)),
        "code": code,
        "mnemonic": entry.mnemonic,
        "meaning": entry.meaning,
        "at_fault": entry.at_fault,
        "reserved": entry.reserved,
        "families": None if entry.families is None else list(entry.families),
        "decided_by_the_line": code in DECODED_CODES,
        "nvidia": {"immediate": entry.nvidia_immediate, "investigatory": entry.nvidia_investigatory},
        "note": entry.note,
        "because": seen.because,
    }
    return Explanation(f"xid:{code}", f"XID {code}  {entry.mnemonic}", _filled(facts), data, tables_of(code), _sources("xid.csv"))


def _sxid(code: int, machine: Machine) -> Explanation:
    entry = lookup_sxid(code)
    facts = [("meaning", f"{entry.meaning} ({entry.block})" if entry.block else entry.meaning)]
    actions = {}
    for word in ("Fatal", "Non-fatal", "Correctable", ""):
        seen = assess(KernelEvent("sxid", code, "", "", severity=word), machine)
        actions[word or "no word"] = seen.action.value
        facts.append((f"line says {word}" if word else "no severity word", ACTION_WORDS[seen.action]))
    facts += [
        ("the line decides", "numbers moved between driver versions, and one number differs between switch generations"),
        ("then", in_words(entry.escalation)),
        ("the job", JOB_WORDS[entry.interrupts_job]),
        ("A100 switch prints", entry.a100_switch),
        ("H100 switch prints", entry.h100_switch),
        ("note", entry.note),
    ]
    data = {
        "code": code,
        "name": entry.name,
        "block": entry.block,
        "meaning": entry.meaning,
        "actions": actions,
        "escalation": entry.escalation,
        "interrupts_job": entry.interrupts_job,
        "note": entry.note,
    }
    return Explanation(f"sxid:{code}", f"SXid {code}  {entry.name}", _filled(facts), data, (), _sources("sxid.csv"))


def _signal(name: str, machine: Machine) -> Explanation:
    entry = lookup_signal(name)
    seen = assess(KernelEvent("host", None, "", "", signal=name), machine)
    facts = [("meaning", entry.meaning), *_what_to_do(seen.action, seen.escalation, seen.interrupts_job)]
    facts.append(("fault class", seen.fault_class))
    data = {
        "signal": name,
        "meaning": entry.meaning,
        **_data_of(seen),
    }
    return Explanation(f"host:{name}", f"Host signal {name}", _filled(facts), data, (), (f"meaning: {entry.source}",))


def _line(event: KernelEvent, machine: Machine) -> Explanation:
    seen = assess(event, machine)
    name = f"host:{event.signal}" if event.kind == "host" else f"{event.kind}:{event.code}"
    process = " ".join(filter(None, (event.name, f"(pid {event.pid})" if event.pid else "")))
    facts = [
        ("means", seen.because),
        *_what_to_do(seen.action, seen.escalation, seen.interrupts_job),
        ("fault class", seen.fault_class),
        ("PCI address", event.pci),
        ("process", process),
        ("severity", event.severity),
        ("link", "" if event.link is None else str(event.link)),
        ("node", event.node),
        ("since boot", "" if event.monotonic_s is None else f"{event.monotonic_s:.6f} s"),
    ]
    shown = (
        "kind",
        "code",
        "signal",
        "pci",
        "pid",
        "name",
        "severity",
        "link",
        "node",
        "recovery_from",
        "recovery_to",
        "caused_by",
    )
    data = {
        **{key: getattr(event, key) for key in shown},
        **_data_of(seen),
        "because": seen.because,
    }
    what = {"xid": f"XID {event.code}", "sxid": f"SXid {event.code}"}.get(event.kind, event.signal)
    return Explanation(name, f"A line of {what}", _filled(facts), data)


def _ecc() -> Explanation:
    facts = (("read as", "the first rule that holds counts; what cannot be read is unknown, never zero"),)
    return Explanation("ecc", "Memory errors: ECC, row remap, repair", facts, {}, (ecc_table(),), ())


def _recovery() -> Explanation:
    facts = (("read as", "the number decides, whether an XID 154 line or NVML (field 230) says it"),)
    return Explanation("recovery", "The driver's recovery action", facts, {}, (recovery_table(),), _sources("recovery"))


def _nvlink4() -> Explanation:
    return Explanation("nvlink4", "XID 74: NVLink 1 to 4", (), {}, tables_of(74), _sources("nvlink4.csv"))


def _nvlink5() -> Explanation:
    rules = tuple(table for code in range(144, 151) for table in tables_of(code))
    return Explanation("nvlink5", "XIDs 144 to 150: NVLink 5", (), {}, rules, _sources("nvlink5.csv"))


GROUPS: dict[str, Callable[[], Explanation]] = {"ecc": _ecc, "recovery": _recovery, "nvlink4": _nvlink4, "nvlink5": _nvlink5}
"""Topics that are no single code."""


def _what_to_do(action: Action, escalation: str, job: str) -> tuple[tuple[str, str], ...]:
    first = f"{ACTION_WORDS[action]} ({action.value})"
    return (("first action", first), ("then", in_words(escalation)), ("the job", JOB_WORDS.get(job, job)))


def _data(action: Optional[Action], fault_class: str, escalation: str, job: str) -> dict[str, Any]:
    written = action.value if action else None
    return {"action": written, "fault_class": fault_class or None, "escalation": escalation, "interrupts_job": job}


def _data_of(seen: Assessment) -> dict[str, Any]:
    return _data(seen.action, seen.fault_class, seen.escalation, seen.interrupts_job)


def _filled(facts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in facts if text)


def _sources(file: str) -> tuple[str, ...]:
    """One line for each source of a data file: which values it gave, and its edition."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for row in provenance():
        if row.file == file:
            columns.setdefault((row.source, row.version, row.address), []).append(row.column.replace("_", " "))
    return tuple(f"{', '.join(names)}: {', '.join(filter(None, source))}" for source, names in columns.items())
