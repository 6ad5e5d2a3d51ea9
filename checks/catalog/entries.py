"""What is known of each code: XIDs, SXids, host signals, ECC rules, instance types, and where each value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Optional

from checks.catalog.loading import fault_class, interrupts, load, optional_action, sourced, texts
from checks.model import Action


@dataclass(frozen=True)
class XidEntry:
    """One XID. `reserved` codes should not be printed by a data-centre GPU; `at_fault` and `interrupts_job` are plain words.

    `families` are the GPU families for which NVIDIA lists it, None where that is not published. `nvidia_immediate` and
    `nvidia_investigatory` are NVIDIA's own buckets. From driver `recovery_since` on an XID 154 says what is needed.
    """

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
    families: Optional[tuple[str, ...]] = None
    nvidia_immediate: str = ""
    nvidia_investigatory: str = ""
    recovery_since: str = ""


@dataclass(frozen=True)
class SxidEntry:
    """One NVSwitch fault. Which action holds is decided by the severity word in the line; None: no such line is known.

    `a100_switch` and `h100_switch` say how each generation's driver prints it, empty where it does not.
    """

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
    a100_switch: str = ""
    h100_switch: str = ""


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


@dataclass(frozen=True)
class EccRule:
    """One rule for memory errors; of several that hold, the first counts."""

    order: int
    condition: str
    action: Action
    escalation: str
    interrupts_job: str
    source: str


@dataclass(frozen=True)
class InstanceType:
    """What an EC2 instance type has. `efa` is None where it is not known."""

    gpus: int
    family: str
    efa: Optional[int]
    nvlink: str


@dataclass(frozen=True)
class Provenance:
    """Where the values of one column come from, and of which edition they are."""

    file: str
    column: str
    version: str
    source: str
    address: str


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


def signal_names() -> tuple[str, ...]:
    """Every host signal's name."""
    return tuple(_signals())


@cache
def ecc_rules() -> tuple[EccRule, ...]:
    """The rules for memory errors, in order."""
    return tuple(load("ecc_rules.csv", _ecc_rule))


@cache
def provenance() -> tuple[Provenance, ...]:
    """Where the catalog's values come from."""
    columns = ("file", "column", "version", "source", "address")
    return tuple(load("sources.csv", lambda row: Provenance(**texts(row, *columns))))


def expected_gpus(instance_type: str) -> Optional[int]:
    """Return how many GPUs an EC2 instance type has, None for a type that is not listed. Source: EC2 instance type pages."""
    known = _instance_types().get(instance_type)
    return known.gpus if known else None


def expected_efa(instance_type: str) -> Optional[int]:
    """Return how many EFA interfaces an EC2 instance type can have, None where it is not known.

    Source: EC2 API DescribeInstanceTypes, NetworkInfo.EfaInfo.MaximumEfaInterfaces.
    """
    known = _instance_types().get(instance_type)
    return known.efa if known else None


def nvlink_kind(instance_type: str) -> str:
    """Return what joins the GPUs of an instance type: "switch" (NVSwitches of its own board), "rack" (an NVL72), else ""."""
    known = _instance_types().get(instance_type)
    return known.nvlink if known else ""


def gpu_family(instance_type: str) -> str:
    """Return the GPU family of an EC2 instance type, such as "H100"; empty for a type that is not listed."""
    known = _instance_types().get(instance_type)
    return known.family if known else ""


@cache
def _xids() -> dict[int, XidEntry]:
    return {entry.code: entry for entry in load("xid.csv", _xid)}


@cache
def _sxids() -> dict[int, SxidEntry]:
    return {entry.code: entry for entry in load("sxid.csv", _sxid)}


@cache
def _signals() -> dict[str, HostSignal]:
    return {entry.signal: entry for entry in load("host_signals.csv", _signal)}


@cache
def _instance_types() -> dict[str, InstanceType]:
    return dict(load("instance_types.csv", lambda row: (row["instance_type"], _instance_type(row))))


def _instance_type(row: dict[str, str]) -> InstanceType:
    efa = int(row["efa"]) if row["efa"] else None
    return InstanceType(int(row["gpus"]), row["family"], efa, {"switch": "switch", "rack": "rack", "": ""}[row["nvlink"]])


def _xid(row: dict[str, str]) -> XidEntry:
    return XidEntry(
        code=int(row["code"]),
        reserved={"yes": True, "no": False}[row["reserved"]],
        action=Action(row["action"]),
        fault_class=fault_class(row["fault_class"]),
        interrupts_job=interrupts(row["interrupts_job"]),
        source=sourced(row["source"]),
        families=None if row["families"] == "?" else tuple(row["families"].split()),
        **texts(row, "mnemonic", "meaning", "at_fault", "escalation", "note"),
        **texts(row, "nvidia_immediate", "nvidia_investigatory", "recovery_since"),
    )


def _sxid(row: dict[str, str]) -> SxidEntry:
    return SxidEntry(
        code=int(row["code"]),
        if_fatal=optional_action(row["if_fatal"]),
        if_nonfatal=optional_action(row["if_nonfatal"]),
        if_no_word=optional_action(row["if_no_word"]),
        interrupts_job=interrupts(row["interrupts_job"]),
        **texts(row, "name", "block", "meaning", "escalation", "note", "a100_switch", "h100_switch"),
    )


def _signal(row: dict[str, str]) -> HostSignal:
    return HostSignal(
        action=Action(row["action"]),
        fault_class=fault_class(row["fault_class"]),
        interrupts_job=interrupts(row["interrupts_job"]),
        source=sourced(row["source"]),
        **texts(row, "signal", "meaning", "escalation"),
    )


def _ecc_rule(row: dict[str, str]) -> EccRule:
    return EccRule(
        order=int(row["order"]),
        action=Action(row["action"]),
        interrupts_job=interrupts(row["interrupts_job"]),
        source=sourced(row["source"]),
        **texts(row, "condition", "escalation"),
    )
