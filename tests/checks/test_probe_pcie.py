"""PCIe as the kernel tells of it: narrow and slow links, error counters."""

from __future__ import annotations

import pytest

from checks.model import Action, Verdict
from tests.checks.node import BUSES, TestNode
from tests.checks.watching import Watch, fault_class, gpus

HOUR = 3600.0
GPU = f"sys/bus/pci/devices/0000:{BUSES[2]}:00.0"


def widths(node: TestNode, current: str, most: str = "16", buses: tuple[str, ...] = BUSES) -> None:
    for bus in buses:
        node.write(f"sys/bus/pci/devices/0000:{bus}:00.0/current_link_width", f"{current}\n")
        node.write(f"sys/bus/pci/devices/0000:{bus}:00.0/max_link_width", f"{most}\n")


def test_a_narrow_link_of_one_gpu_asks_for_a_reboot(watch: Watch, node: TestNode) -> None:
    widths(node, "16")
    widths(node, "8", buses=(BUSES[2],))
    seen = watch.only("pcie_link")
    assert (seen.verdict, seen.action, seen.gpu and seen.gpu.pci) == (Verdict.WARN, Action.REBOOT_NODE, f"0000:{BUSES[2]}:00")
    assert fault_class([seen])[0] == "reboot_needed"
    watch.nvml = gpus(pcie_width=16)
    assert watch.ill(60) == []


@pytest.mark.parametrize(("current", "most"), [("16", "16"), ("8", "16"), ("0", "16"), ("63", "63"), ("255", "255"), ("", "")])
def test_links_as_wide_as_their_slots_or_that_do_not_tell_are_in_order(
    watch: Watch, node: TestNode, current: str, most: str
) -> None:
    widths(node, current, most)
    assert watch.ill() == []


def test_a_slow_link_counts_only_while_the_gpu_works(watch: Watch, node: TestNode) -> None:
    widths(node, "16")
    node.write(f"{GPU}/current_link_speed", "2.5 GT/s PCIe\n")
    node.write(f"{GPU}/max_link_speed", "32.0 GT/s PCIe\n")
    assert watch.ill() == []
    watch.nvml = gpus(clocks_event_reasons=1)
    assert watch.ill(60) == []
    watch.nvml = gpus(clocks_event_reasons=0)
    assert "2.5 GT/s in place of 32" in watch.only("pcie_link", 60).summary


def aer(node: TestNode, kind: str, errors: int, folder: str = GPU) -> None:
    total = {"fatal": "TOTAL_ERR_FATAL", "nonfatal": "TOTAL_ERR_NONFATAL", "correctable": "TOTAL_ERR_COR"}[kind]
    node.write(f"{folder}/aer_dev_{kind}", f"Undefined 0\nDLP {errors}\nSDES 0\n{total} {errors}\n")


def test_a_fatal_pcie_error_asks_for_a_reboot_and_a_new_one_at_once(watch: Watch, node: TestNode) -> None:
    aer(node, "fatal", 1)
    old = watch.only("pcie_aer")
    assert (old.verdict, old.action) == (Verdict.WARN, Action.REBOOT_NODE)
    aer(node, "fatal", 2)
    new = watch.only("pcie_aer", 60)
    assert (new.verdict, fault_class([new])) == (Verdict.CRITICAL, ("reboot_needed", Action.REBOOT_NODE))
    assert new.gpu is not None


def test_non_fatal_pcie_errors_count_when_they_rise_and_accuse_nobody(watch: Watch, node: TestNode) -> None:
    aer(node, "nonfatal", 5)
    assert watch.ill() == []
    aer(node, "nonfatal", 6)
    seen = watch.only("pcie_aer", 60)
    assert (seen.verdict, seen.action) == (Verdict.WARN, Action.RUN_DIAGNOSTICS)
    assert fault_class([seen]) == ("none", Action.NONE)


def test_corrected_pcie_errors_count_as_a_storm(watch: Watch, node: TestNode) -> None:
    aer(node, "correctable", 1_000_000)
    assert watch.ill() == []
    aer(node, "correctable", 1_000_099)
    assert watch.ill(60) == []
    aer(node, "correctable", 1_002_000)
    assert "corrects" in watch.only("pcie_aer", 600).summary


def test_pcie_errors_of_switches_cards_and_disks_count_too_but_not_of_what_does_not_matter(watch: Watch, node: TestNode) -> None:
    for number, (kind, vendor) in enumerate((("0x010802", "0x1d0f"), ("0x020700", "0x15b3"), ("0x060400", "0x8086"))):
        folder = f"sys/bus/pci/devices/0000:f{number}:00.0"
        node.write(f"{folder}/vendor", vendor)
        node.write(f"{folder}/class", kind)
        aer(node, "fatal", 1, folder)
    aer(node, "fatal", 1, "sys/bus/pci/devices/0000:05:00.0")
    places = sorted(one.summary.split(" at ")[0] for one in watch.ill())
    assert places == ["the InfiniBand card", "the NVMe disk", "the NVSwitch"]


def test_an_error_file_that_cannot_be_understood_is_unknown(watch: Watch, node: TestNode) -> None:
    node.write(f"{GPU}/aer_dev_fatal", "what?\n")
    assert watch.only("pcie_aer").verdict is Verdict.UNKNOWN
