"""The settings' word on a code counts before the shipped one, is checked, and is named in the reason."""

from __future__ import annotations

from typing import Any

import pytest

from checks.catalog import BadOverride, Machine, assess, read_overrides
from checks.catalog.entries import provenance
from checks.diagnosis import Hardware, Timing, diagnose
from checks.kernel_log import parse_line, read_lines
from checks.model import Action

LOST = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


def machine(**overrides: dict[str, str]) -> Machine:
    return Machine(overrides=read_overrides({key.replace("_", ":", 1): value for key, value in overrides.items()}))


def test_an_override_decides_and_says_so() -> None:
    event = parse_line(LOST)
    assert event is not None
    seen = assess(event, machine(xid_79={"action": "REPLACE_NODE", "why": "our slots stay dead"}))
    assert (seen.fault_class, seen.action) == ("hardware", Action.REPLACE_NODE)
    assert "the settings say REPLACE_NODE for xid:79 (our slots stay dead)" in seen.because
    assert seen.interrupts_job == "yes"


def test_an_override_counts_before_the_decoders_and_for_every_kind() -> None:
    for line, override in (
        ("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "xid_154"),
        ("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up", "sxid_20034"),
        ("nvme nvme1: Disabling device after reset failure: -19", "host_storage_lost"),
    ):
        event = parse_line(line)
        assert event is not None
        seen = assess(event, machine(**{override: {"action": "NONE", "interrupts_job": "no"}}))
        assert (seen.fault_class, seen.action, seen.interrupts_job) == ("none", Action.NONE, "no")


def test_other_codes_keep_the_shipped_meaning() -> None:
    event = parse_line(LOST)
    assert event is not None
    assert assess(event, machine(xid_48={"action": "NONE"})) == assess(event)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"79": {"action": "NONE"}}, "'79' is no code"),
        ({"xid:x": {"action": "NONE"}}, "'xid:x' is no code"),
        ({"host:locked": {"action": "NONE"}}, "no host signal is named 'locked'"),
        ({"xid:79": {"action": "REBOOT"}}, "xid:79: 'REBOOT' is not a valid Action"),
        ({"xid:79": {"why": "x"}}, "xid:79: action is missing"),
        ({"xid:79": {"action": "NONE", "klass": "x"}}, "xid:79: unknown key 'klass'"),
        ({"xid:79": {"action": "NONE", "fault_class": "gpu_lsot"}}, "'gpu_lsot' is no fault class"),
        ({"xid:79": {"action": "NONE", "interrupts_job": "maybe"}}, "'maybe' does not say what becomes of the job"),
        ({"xid:79": "NONE"}, "xid:79: expected a table of texts"),
        ({"xid:79": {"action": 7}}, "xid:79: expected a table of texts"),
    ],
)
def test_a_wrong_override_is_an_error_that_names_it(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadOverride, match=complaint):
        read_overrides(given)


def test_a_code_that_is_not_listed_for_the_gpu_family_is_said_to_be_so_and_still_acted_upon() -> None:
    event = parse_line("NVRM: Xid (PCI:0000:1b:00): 74, NVLink: fatal error detected on link 1")
    assert event is not None
    seen = assess(event, Machine(family="B200"))
    assert seen.action is Action.RESET_GPU
    assert "NVIDIA does not list it for B200" in seen.because
    assert "does not list" not in assess(event, Machine(family="H200")).because


def test_every_column_that_decides_has_a_version_and_a_source() -> None:
    known = {(row.file, row.column) for row in provenance()}
    assert {("xid.csv", "action"), ("xid.csv", "nvidia_immediate"), ("sxid.csv", "if_fatal"), ("nvlink5.csv", "action")} <= known
    assert all(row.version and row.source for row in provenance())


def test_the_diagnosis_follows_an_override() -> None:
    log = ["[   10.000001] " + LOST]
    timing = Timing(now=1_000_000.0, uptime_s=20.0)
    shipped = diagnose((), list(read_lines(log)), timing=timing)
    overrides = read_overrides({"xid:79": {"action": "REPLACE_NODE"}})
    own = diagnose((), list(read_lines(log)), timing=timing, hardware=Hardware(overrides=overrides))
    assert (shipped.action, own.action) == (Action.REBOOT_NODE, Action.REPLACE_NODE)
