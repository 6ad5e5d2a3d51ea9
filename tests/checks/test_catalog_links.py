"""NVLink faults are decoded by the registers of the line, for the layout of the node's driver."""

from __future__ import annotations

import pytest

from checks.catalog import Assessment, Machine, assess
from checks.catalog.links import decode_nvlink5, register_bits, unit_errors
from checks.kernel_log import fold, parse_line, read_lines
from checks.model import Action

OLD, NEW = Machine(driver_version="570.158.01"), Machine(driver_version="580.95.05")


def meaning(code: int, text: str, machine: Machine = OLD) -> Assessment:
    event = parse_line(f"NVRM: Xid (PCI:0000:1b:00): {code}, {text}")
    assert event is not None
    return assess(event, machine)


@pytest.mark.parametrize(
    ("code", "text", "machine", "action"),
    [
        (149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000)", OLD, Action.RESET_GPU),
        (149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 01 (0x02600011 0x00000000)", NEW, Action.NONE),
        (149, "NETIR_INT  Fatal   XC0 i0 Link -1", OLD, Action.RESET_GPU),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x0)", OLD, Action.NONE),
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)", OLD, Action.NONE),
        (145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000004c2 0x00000001)", OLD, Action.RESET_GPU),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x04082907 0x00000008 0x0)", NEW, Action.NONE),
        (145, "RLW_SRC_TRACK Fatal XC1 i0 Link 10 (0x000000e2 0x00000010)", OLD, Action.RESET_GPU),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 10 (0x000000e2 0x00000012)", OLD, Action.RESET_GPU),
        (144, "SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000021 0x00000004)", OLD, Action.NONE),
        (144, "SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000010)", NEW, Action.RESET_GPU),
        (150, "MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0x00000000)", OLD, Action.RESET_GPU),
        (147, "TREX Nonfatal XC0 i0 Link 3 (0x0000000e 0x80000000)", NEW, Action.NONE),
    ],
)
def test_a_line_of_nvlink_five_means_its_row_of_the_table(code: int, text: str, machine: Machine, action: Action) -> None:
    assert meaning(code, text, machine).action is action


def test_the_layout_follows_the_driver_branch() -> None:
    text = "RLW_REMAP Fatal XC0 i0 Link 1 (0x00000004 0x00000040)"
    assert decode_nvlink5(145, text, 575) is not None
    assert decode_nvlink5(145, text, 570) is None
    assert decode_nvlink5(145, text, 0) is not None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("RLW_NEW_UNIT Fatal XC0 i0 Link 1 (0x00000001 0x00000040)", Action.RESET_GPU),
        ("RLW_REMAP Fatal XC0 i0 Link 1 (0x0000ffff 0x00000040)", Action.RESET_GPU),
        ("RLW_CTRL Fatal XC0 i0 Link 1 (0x00000062 0x80000000)", Action.RESET_GPU),
        ("RLW_REMAP Fatal XC0 i0 Link 1 (0x000", Action.RESET_GPU),
        ("cut of", Action.RESET_GPU),
        ("RLW_NEW_UNIT Nonfatal XC0 i0 Link 1 (0x1 0x40)", Action.NONE),
    ],
)
def test_what_has_no_row_follows_the_word_of_the_line_and_is_never_harmless_without_one(text: str, action: Action) -> None:
    assert meaning(145, text).action is action


def test_a_line_that_blames_the_far_end_says_so() -> None:
    because = meaning(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000)").because
    assert "reason 33 (the far end)" in because


@pytest.mark.parametrize(
    ("registers", "fault_class", "action"),
    [
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", "unknown_code", Action.RUN_DIAGNOSTICS),
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "none", Action.NONE),
        ("0x40800001, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "none", Action.NONE),
        ("0x40000010, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "link", Action.RESET_GPU),
        ("0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0", "fabric", Action.REBOOT_NODE),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", "none", Action.NONE),
        ("0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "link", Action.RESET_GPU),
        ("0x2, 0x0", "unknown_code", Action.CONTACT_SUPPORT),
        ("0x80000000, 0x0", "link", Action.RESET_GPU),
    ],
)
def test_a_link_fault_of_older_generations_is_read_by_its_registers(registers: str, fault_class: str, action: Action) -> None:
    seen = meaning(74, f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14({registers})")
    assert (seen.fault_class, seen.action) == (fault_class, action)


def test_a_link_fault_without_registers_asks_for_a_reset() -> None:
    assert meaning(74, "NVLink: fatal error detected on link 1").action is Action.RESET_GPU


def test_every_row_has_bits_within_its_mask_and_a_source() -> None:
    for row in unit_errors():
        assert row.code in range(144, 151)
        assert row.source
        for mask, value in zip(row.masks, row.values, strict=True):
            assert value & ~mask == 0
    assert {row.register for row in register_bits()} == {1, 3, 4, 5}


def test_a_harmless_line_does_not_hide_a_grave_one_of_the_same_link() -> None:
    lines = [
        "[ 10.0] NVRM: Xid (PCI:0000:1b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000000c2 0x00000001)",
        "[ 10.1] NVRM: Xid (PCI:0000:1b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000004c2 0x00000001)",
    ]
    (burst,) = fold(read_lines(lines))
    assert [assess(cause, OLD).action for cause in burst.causes] == [Action.NONE, Action.RESET_GPU]
