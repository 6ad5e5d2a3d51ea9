"""Loads and validates the data files of the catalog: XIDs, SXids, host signals, instance types."""

from __future__ import annotations

import csv
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable, Optional, TypeVar

from checks.model import Action

FAULT_CLASSES = frozenset(
    {
        "none",
        "gpu_lost",
        "gsp_hang",
        "reset_needed",
        "reboot_needed",
        "memory_uncorrectable",
        "memory_exhausted",
        "memory_contained",
        "link",
        "fabric",
        "application",
        "hardware",
        "host",
        "configuration",
        "unknown_code",
        "slow_node",
        "unreachable",
    }
)
"""Every word a diagnosis may use. `slow_node` and `unreachable` are given by others: a burn-in, a node that does not answer."""


class CatalogError(ValueError):
    """A row of a data file is not valid; the message names file, row and value."""


@dataclass(frozen=True)
class XidEntry:
    """One XID. `reserved` codes should not be printed by a data-centre GPU; `at_fault` and `interrupts_job` are plain words."""

    code: int
    mnemonic: str
    meaning: str
    at_fault: str
    reserved: bool
    fault_class: str
    action: Action
    escalation: str
    interrupts_job: str
    note: str
    source: str


@dataclass(frozen=True)
class SxidEntry:
    """One NVSwitch fault. Which action holds is decided by the severity word in the line; None: no such line is known."""

    code: int
    name: str
    block: str
    meaning: str
    if_fatal: Optional[Action]
    if_nonfatal: Optional[Action]
    if_no_word: Optional[Action]
    escalation: str
    interrupts_job: str
    note: str


@dataclass(frozen=True)
class HostSignal:
    """One kind of fault line that has no NVIDIA code."""

    signal: str
    meaning: str
    fault_class: str
    action: Action
    escalation: str
    interrupts_job: str
    source: str


def lookup_xid(code: int) -> XidEntry:
    """Return what is known of an XID. A code that the catalog lacks is never harmless: a person is asked."""
    return _xids().get(code) or XidEntry(
        code=code,
        mnemonic="UNKNOWN",
        meaning="not in the catalog",
        at_fault="unknown",
        reserved=True,
        fault_class="unknown_code",
        action=Action.CONTACT_SUPPORT,
        escalation="",
        interrupts_job="",
        note="",
        source="no source",
    )


def lookup_sxid(code: int) -> SxidEntry:
    """Return what is known of an SXid. For an unlisted number the severity word of the line still decides."""
    return _sxids().get(code) or SxidEntry(code, "UNKNOWN", "", "not in the catalog", None, None, None, "", "", "")


def lookup_signal(signal: str) -> HostSignal:
    """Return the meaning of a host signal. Raises KeyError for a name that is not in `host_signals.csv`."""
    return _signals()[signal]


def expected_gpus(instance_type: str) -> Optional[int]:
    """Return how many GPUs an EC2 instance type has, None for a type that is not listed. Source: EC2 instance type pages."""
    known = _instance_types().get(instance_type)
    return known[0] if known else None


def gpu_family(instance_type: str) -> str:
    """Return the GPU family of an EC2 instance type, such as "H100"; empty for a type that is not listed."""
    known = _instance_types().get(instance_type)
    return known[1] if known else ""


@cache
def _xids() -> dict[int, XidEntry]:
    return {entry.code: entry for entry in _load("xid.csv", _xid)}


@cache
def _sxids() -> dict[int, SxidEntry]:
    return {entry.code: entry for entry in _load("sxid.csv", _sxid)}


@cache
def _signals() -> dict[str, HostSignal]:
    return {entry.signal: entry for entry in _load("host_signals.csv", _signal)}


@cache
def _instance_types() -> dict[str, tuple[int, str]]:
    return dict(_load("instance_types.csv", lambda row: (row["instance_type"], (int(row["gpus"]), row["family"]))))


Entry = TypeVar("Entry")


def _load(name: str, build: Callable[[dict[str, str]], Entry]) -> list[Entry]:
    """Read a data file of this package; a bad row is an error that names it."""
    content = pkgutil.get_data("checks.catalog", name)
    if not content:
        raise CatalogError(f"checks/catalog/{name} is missing or empty: unpack the checks archive again")
    entries = []
    for number, row in enumerate(csv.DictReader(content.decode("utf-8").splitlines()), start=2):
        try:
            entries.append(build(row))
        except (ValueError, KeyError, TypeError) as error:
            raise CatalogError(f"checks/catalog/{name} line {number}: {error}") from error
    return entries


def _xid(row: dict[str, str]) -> XidEntry:
    return XidEntry(
        code=int(row["code"]),
        reserved={"yes": True, "no": False}[row["reserved"]],
        action=Action(row["action"]),
        fault_class=_fault_class(row["fault_class"]),
        **_texts(row, "mnemonic", "meaning", "at_fault", "escalation", "interrupts_job", "note", "source"),
    )


def _sxid(row: dict[str, str]) -> SxidEntry:
    return SxidEntry(
        code=int(row["code"]),
        if_fatal=_optional_action(row["if_fatal"]),
        if_nonfatal=_optional_action(row["if_nonfatal"]),
        if_no_word=_optional_action(row["if_no_word"]),
        **_texts(row, "name", "block", "meaning", "escalation", "interrupts_job", "note"),
    )


def _signal(row: dict[str, str]) -> HostSignal:
    return HostSignal(
        action=Action(row["action"]),
        fault_class=_fault_class(row["fault_class"]),
        **_texts(row, "signal", "meaning", "escalation", "interrupts_job", "source"),
    )


def _texts(row: dict[str, str], *names: str) -> dict[str, Any]:
    return {name: row[name].strip() for name in names}


def _optional_action(word: str) -> Optional[Action]:
    return Action(word) if word else None


def _fault_class(word: str) -> str:
    if word not in FAULT_CLASSES:
        raise ValueError(f"{word!r} is no fault class")
    return word
