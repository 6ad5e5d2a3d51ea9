"""The catalog's data is complete and valid, and codes that their line decides are decoded by the line."""

from __future__ import annotations

import pytest

from checks.catalog import (
    FAULT_CLASSES,
    Assessment,
    CatalogError,
    assess,
    assess_recovery,
    expected_gpus,
    gpu_family,
    lookup_signal,
    lookup_sxid,
    lookup_xid,
)
from checks.catalog.entries import _xid
from checks.catalog.loading import load
from checks.kernel_log import parse_line
from checks.kernel_log.host_lines import PATTERNS
from checks.model import Action
from workflows.decisions.settings import DEFAULT_LADDERS


def meaning(line: str) -> Assessment:
    event = parse_line(line)
    assert event is not None
    return assess(event)


def xid(code: int, text: str = "text") -> Assessment:
    return meaning(f"NVRM: Xid (PCI:0000:1b:00): {code}, {text}")


def test_every_xid_up_to_178_is_listed_with_a_source() -> None:
    entries = [lookup_xid(code) for code in range(1, 179)]
    assert [entry.code for entry in entries] == list(range(1, 179))
    assert all(entry.mnemonic != "UNKNOWN" and entry.source for entry in entries)


def test_every_fault_class_has_a_ladder() -> None:
    assert frozenset(DEFAULT_LADDERS) == FAULT_CLASSES


def test_every_host_pattern_has_a_meaning() -> None:
    assert {lookup_signal(signal).signal for signal in PATTERNS} == set(PATTERNS)


@pytest.mark.parametrize(
    ("code", "fault_class", "action"),
    [
        (79, "gpu_lost", Action.REBOOT_NODE),
        (119, "gsp_hang", Action.REBOOT_NODE),
        (120, "gsp_hang", Action.REBOOT_NODE),
        (64, "memory_exhausted", Action.REPLACE_NODE),
        (157, "memory_exhausted", Action.REPLACE_NODE),
        (161, "memory_exhausted", Action.REPLACE_NODE),
        (48, "memory_uncorrectable", Action.RESET_GPU),
        (95, "memory_uncorrectable", Action.RESET_GPU),
        (140, "memory_uncorrectable", Action.RESET_GPU),
        (94, "memory_contained", Action.RESTART_JOB),
        (74, "link", Action.RESET_GPU),
        (136, "link", Action.RESET_GPU),
        (155, "link", Action.RESET_GPU),
        (54, "hardware", Action.REPLACE_NODE),
        (13, "application", Action.RESTART_JOB),
        (31, "application", Action.RESTART_JOB),
        (151, "reboot_needed", Action.REBOOT_NODE),
        (62, "reset_needed", Action.RESET_GPU),
        (63, "none", Action.NONE),
        (43, "none", Action.NONE),
        (14, "none", Action.NONE),
        (1, "unknown_code", Action.CONTACT_SUPPORT),
        (51, "unknown_code", Action.CONTACT_SUPPORT),
        (4711, "unknown_code", Action.CONTACT_SUPPORT),
    ],
)
def test_each_code_has_its_class_and_first_action(code: int, fault_class: str, action: Action) -> None:
    assert (xid(code).fault_class, xid(code).action) == (fault_class, action)


def test_a_remap_that_is_already_pending_is_no_failure() -> None:
    assert xid(64, "Row Remapper: (0x0) - Attempting to remap a row that is already pending remapping.").action is Action.NONE
    assert xid(64, "DRAM Retirement failed due to no spare for retirement at 0x1234").action is Action.REPLACE_NODE


@pytest.mark.parametrize(
    ("code", "text", "fault_class", "action"),
    [
        (94, "Contained: SM (0x1). RST: No, D-RST: No", "memory_contained", Action.RESTART_JOB),
        (94, "Contained: LTC (0x1). RST: No, D-RST: Yes", "memory_uncorrectable", Action.RESET_GPU),
        (95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", "memory_uncorrectable", Action.RESET_GPU),
        (95, "Uncontained: LTC (0x2). RST: No, D-RST: No", "memory_contained", Action.RESTART_JOB),
        (95, "Uncontained", "memory_uncorrectable", Action.RESET_GPU),
    ],
)
def test_containment_errors_follow_the_reset_flag_of_the_line(code: int, text: str, fault_class: str, action: Action) -> None:
    assert (xid(code, text).fault_class, xid(code, text).action) == (fault_class, action)


def test_a_double_bit_error_tells_dram_from_sram() -> None:
    assert "DRAM" in xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer").because
    assert "SRAM" in xid(48, "An uncorrectable double bit error (DBE) has been detected on GPU").because


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (0, Action.NONE),
        (1, Action.RESET_GPU),
        (2, Action.REBOOT_NODE),
        (3, Action.RESTART_JOB),
        (4, Action.RESET_GPU),
        (5, Action.CONTACT_SUPPORT),
        (6, Action.RESET_GPU),
        (7, Action.POWER_CYCLE),
        (99, Action.CONTACT_SUPPORT),
    ],
)
def test_the_recovery_action_is_decoded_by_number_whatever_the_words(number: int, action: Action) -> None:
    for words in ("Node Reboot Required", "OS Reboot", "???"):
        assert xid(154, f"GPU recovery action changed from 0x0 (None) to {number:#x} ({words})").action is action
    assert assess_recovery(number, "NVML").action is action


def test_a_recovery_line_without_its_number_goes_to_a_person() -> None:
    assert xid(154, "GPU recovery action changed from 0x0 (No").action is Action.CONTACT_SUPPORT


def test_nvlink_five_follows_the_word_of_the_line() -> None:
    assert xid(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1 0x0)").action is Action.RESET_GPU
    assert xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x1 0x0)").action is Action.NONE
    assert xid(149, "unreadable").action is Action.RESET_GPU


@pytest.mark.parametrize(
    ("line", "fault_class", "action"),
    [
        ("20034, Fatal, Link 48 LTSSM Fault Up", "fabric", Action.REBOOT_NODE),
        ("20034, Non-fatal, Link 48 LTSSM Fault Up", "none", Action.NONE),
        ("10003, Fatal, unhandled interrupt in _fn(12)", "fabric", Action.REBOOT_NODE),
        ("12028, Non-fatal, Link 61 egress non-posted PRIV error (First)", "application", Action.RESTART_JOB),
        ("19084, Non-fatal, Link 3 AN1 Heartbeat Timeout Error", "fabric", Action.REBOOT_NODE),
        ("99999, Fatal, Link 3 new", "fabric", Action.REBOOT_NODE),
        ("99999, new text", "unknown_code", Action.CONTACT_SUPPORT),
    ],
)
def test_a_switch_fault_follows_the_severity_word_not_the_number(line: str, fault_class: str, action: Action) -> None:
    seen = meaning(f"nvidia-nvswitch1: SXid (PCI:0000:06:00.0): {line}")
    assert (seen.fault_class, seen.action) == (fault_class, action)


def test_switch_faults_are_listed() -> None:
    assert lookup_sxid(22013).name == "MINION_NONFATAL"
    assert lookup_sxid(1).name == "UNKNOWN"


def test_instance_types_know_their_gpus() -> None:
    assert (expected_gpus("p5.48xlarge"), gpu_family("p5.48xlarge")) == (8, "H100")
    assert (expected_gpus("m5.large"), gpu_family("m5.large")) == (None, "")


def test_a_bad_row_is_an_error_that_names_file_line_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    header = "code,mnemonic,meaning,at_fault,reserved,fault_class,action,escalation,interrupts_job,note,source"
    row = "79,X,lost,hardware,no,gpu_lsot,REBOOT_NODE,,yes,,here"
    monkeypatch.setattr("checks.catalog.loading.pkgutil.get_data", lambda package, name: f"{header}\n{row}\n".encode())
    with pytest.raises(CatalogError, match=r"xid.csv line 2: 'gpu_lsot' is no fault class"):
        load("xid.csv", _xid)
