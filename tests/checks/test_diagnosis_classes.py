"""Class and action of every outcome agree: the first rung of the class's ladder never does more than the action asks."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import checks.catalog
from checks.catalog import FAULT_CLASSES, Assessment, BadOverride, Machine, assess, assess_recovery, read_overrides
from checks.catalog.assess import START_STATUS
from checks.catalog.entries import signal_names
from checks.catalog.links import register_bits, unit_errors
from checks.catalog.overrides import CLASS_OF_ACTION
from checks.diagnosis import Timing, diagnose
from checks.diagnosis.candidates import FINDING_CLASSES, RECOVERY_CLASSES
from checks.diagnosis.facts import RANK
from checks.model import Action, Finding, KernelEvent, Verdict
from workflows.decisions.settings import DEFAULT_LADDERS

FOLDER = Path(checks.catalog.__file__).parent
XID_TEXTS = (
    "text",
    "row already pending",
    "All reserved rows for bank are remapped",
    "Contained: SM (0x1). RST: No, D-RST: No",
    "Uncontained: L2TAG (0x1). RST: Yes, D-RST: No",
    "Uncontained: FBHUB (0x1). RST: No, D-RST: Yes",
    "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer",
)


def numbers(file: str) -> list[int]:
    with (FOLDER / file).open(encoding="utf-8") as rows:
        return [int(row["code"]) for row in csv.DictReader(rows)]


def xid(code: int, text: str, severity: str = "", recovery: int | None = None) -> KernelEvent:
    return KernelEvent("xid", code, text, text, severity=severity, recovery_to=recovery)


def every_event() -> Iterator[KernelEvent]:
    for code, text, severity in product([*numbers("xid.csv"), 999], XID_TEXTS, ("", "Fatal", "Nonfatal")):
        yield xid(code, text, severity)
    for number in range(10):
        yield xid(154, "GPU recovery action changed", recovery=number)
    for row in register_bits():
        for bit in row.bits:
            registers = [f"{1 << bit:#x}" if place == row.register else "0x0" for place in range(1, 8)]
            yield xid(74, f"NVLink: fatal error detected on link 3({', '.join(registers)})")
    for error, word in product(unit_errors(), ("Fatal", "Nonfatal")):
        words = f"({error.values[1]:#010x} {error.status or 1:#010x} 0x0 0x0 0x0)"
        yield xid(error.code, f"{error.units[1]} {word} XC0 i0 Link 02 {words}", word)
    for code, severity in product([*numbers("sxid.csv"), 99999], ("", "Fatal", "Non-fatal", "Correctable")):
        yield KernelEvent("sxid", code, "text", "raw", severity=severity)
    for name in signal_names():
        yield KernelEvent("host", None, "text", "raw", signal=name)
    for status in START_STATUS:
        yield KernelEvent("host", None, f"RmInitAdapter failed! (0x23:{status:#x}:1426)", "raw", signal="driver_start_failed")


def does_more(fault_class: str, action: Action) -> bool:
    ladder = DEFAULT_LADDERS[fault_class]
    return bool(ladder) and RANK.index(ladder[0]) > RANK.index(action)


@pytest.mark.parametrize("driver", ["", "570.124.06", "580.95.05"])
def test_whatever_a_line_says_its_class_begins_with_no_more_than_its_action(driver: str) -> None:
    seen: dict[tuple[str, Action], Assessment] = {}
    for event in every_event():
        meaning = assess(event, Machine(driver))
        seen.setdefault((meaning.fault_class, meaning.action), meaning)
    assert [meaning for meaning in seen.values() if does_more(meaning.fault_class, meaning.action)] == []
    assert {fault_class for fault_class, _ in seen} >= FAULT_CLASSES - {"slow_node", "unreachable"}


def test_an_action_that_disrupts_has_a_class_that_can_take_it() -> None:
    disruptive = RANK[RANK.index(Action.RESET_GPU) :]
    for event in every_event():
        meaning = assess(event)
        if meaning.action in disruptive:
            assert meaning.action in DEFAULT_LADDERS[meaning.fault_class], meaning


@pytest.mark.parametrize("number", range(10))
def test_the_drivers_recovery_action_has_one_class_in_log_and_nvml(number: int) -> None:
    meaning = assess_recovery(number, "GPU 3")
    assert not does_more(meaning.fault_class, meaning.action)
    assert meaning.action is Action.NONE or RECOVERY_CLASSES[meaning.action] == meaning.fault_class


@pytest.mark.parametrize("action", sorted(CLASS_OF_ACTION))
def test_a_class_chosen_for_an_action_begins_with_no_more(action: Action) -> None:
    assert not does_more(CLASS_OF_ACTION[action], action)


@pytest.mark.parametrize("check", [*FINDING_CLASSES, "recovery_action"])
@pytest.mark.parametrize("verdict", [Verdict.WARN, Verdict.CRITICAL])
@pytest.mark.parametrize("action", sorted(CLASS_OF_ACTION))
def test_a_reading_that_asks_for_no_repair_is_of_no_class_that_repairs(check: str, verdict: Verdict, action: Action) -> None:
    repairs = RANK[RANK.index(Action.RESET_GPU) :]
    found = diagnose([Finding(check, verdict, "a reading", action=action)], timing=Timing(0.0))
    assert action in repairs or DEFAULT_LADDERS[found.fault_class][:1] in ([], [Action.RESTART_JOB])


def test_a_rung_that_no_fault_asks_for_is_refused_as_an_override() -> None:
    with pytest.raises(BadOverride, match="rung of the ladder"):
        read_overrides({"xid:79": {"action": "SOFT_REBOOT"}})
