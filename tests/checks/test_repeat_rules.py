"""The catalog's words on repeated faults, as data: every text is read, and those that state a rule have one."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import checks.catalog
from checks.catalog import assess, read_overrides
from checks.catalog.assessment import Machine
from checks.catalog.entries import ecc_rules, lookup_signal, lookup_sxid, lookup_xid, signal_names
from checks.catalog.links import register_bits
from checks.catalog.repeats import PLACES, _row, repeat_rules, texts_read
from checks.model import Action, KernelEvent

FOLDER = Path(checks.catalog.__file__).parent
STATES_A_RULE = re.compile(r"second|twice|\d\+|3rd|again|repeat|two jobs|different jobs|\b2 in\b|keeps to", re.IGNORECASE)


def numbers(file: str) -> list[int]:
    with (FOLDER / file).open(encoding="utf-8") as rows:
        return [int(row["code"]) for row in csv.DictReader(rows)]


def every_text() -> set[str]:
    found = {lookup_xid(code).escalation for code in numbers("xid.csv")}
    found |= {lookup_sxid(code).escalation for code in numbers("sxid.csv")}
    found |= {lookup_signal(name).escalation for name in signal_names()}
    found |= {row.escalation for row in register_bits()} | {rule.escalation for rule in ecc_rules()}
    return found - {""}


def test_every_text_of_the_catalog_has_been_read_for_rules() -> None:
    assert every_text() - texts_read() == set(), "add these texts to repeats.csv, with their rule or with why there is none"


def test_no_rule_belongs_to_a_text_that_the_catalog_no_longer_has() -> None:
    assert texts_read() - every_text() == set(), "take these texts out of repeats.csv"


def test_texts_that_speak_of_a_repeat_have_a_rule_and_others_have_none() -> None:
    assert {text for text in every_text() if STATES_A_RULE.search(text)} == {text for text in every_text() if repeat_rules(text)}


@pytest.mark.parametrize(
    ("code", "count", "hours", "per", "action"),
    [
        (13, 2, 24, "unit", Action.RUN_DIAGNOSTICS),
        (44, 2, 24, "device", Action.RESET_GPU),
        (48, 2, 168, "device", Action.RUN_DIAGNOSTICS),
        (63, 3, 720, "device", Action.RUN_DIAGNOSTICS),
        (79, 2, 720, "device", Action.REPLACE_NODE),
        (94, 3, 168, "device", Action.RUN_DIAGNOSTICS),
        (119, 2, 168, "device", Action.REPLACE_NODE),
        (120, 2, 168, "device", Action.REPLACE_NODE),
        (156, 2, 720, "device", Action.RUN_DIAGNOSTICS),
    ],
)
def test_the_rule_says_what_the_text_says(code: int, count: int, hours: float, per: str, action: Action) -> None:
    rule = assess(KernelEvent("xid", code, "text", "raw")).repeats[0]
    assert (rule.count, rule.within_s / 3600, rule.per, rule.action) == (count, hours, per, action)


def test_rules_that_need_other_jobs_or_a_repair_in_between_say_so() -> None:
    assert all(rule.other_jobs for code in (8, 31, 43) for rule in repeat_rules(lookup_xid(code).escalation))
    assert [rule.after_repair for rule in repeat_rules(lookup_xid(74).escalation)] == [False, True]
    assert all(rule.after_repair for code in range(144, 151) for rule in repeat_rules(lookup_xid(code).escalation))


def test_a_panic_twice_in_a_week_replaces_the_node() -> None:
    [rule] = assess(KernelEvent("host", None, "text", "raw", signal="kernel_bug")).repeats
    assert (rule.count, rule.within_s, rule.per, rule.action) == (2, 7 * 86_400.0, "node", Action.REPLACE_NODE)


def test_the_settings_word_on_a_code_goes_over_its_repeat_rule_too() -> None:
    event = KernelEvent("xid", 79, "text", "raw")
    assert assess(event, Machine(overrides=read_overrides({"xid:79": {"action": "NONE"}}))).repeats == ()
    own = {"xid:79": {"action": "REBOOT_NODE", "escalation": "replace_node on the second in 30 days"}}
    assert [rule.count for rule in assess(event, Machine(overrides=read_overrides(own))).repeats] == [2]


@pytest.mark.parametrize(
    ("column", "value"),
    [("count", "1"), ("within_h", "0"), ("per", "rack"), ("action", "reboot"), ("other_jobs", "maybe"), ("source", "")],
)
def test_a_rule_that_makes_no_sense_is_refused(column: str, value: str) -> None:
    good = {"text": "t", "count": "2", "within_h": "24", "per": PLACES[0], "action": "RESET_GPU", "source": "s"}
    flags = dict.fromkeys(("other_jobs", "after_repair", "harmless_too", "alone"), "no")
    assert _row({**good, **flags})[1] is not None
    with pytest.raises((ValueError, KeyError)):
        _row({**good, **flags, column: value})
