"""Folding of bursts: one event per GPU, with consequences under their causes."""

from __future__ import annotations

from checks.kernel_log import Burst, fold, read_lines


def bursts(*lines: str) -> list[Burst]:
    return fold(read_lines(lines))


def xid(at: float, code: int, bus: str = "1b", text: str = "text") -> str:
    return f"[{at:12.6f}] NVRM: Xid (PCI:0000:{bus}:00): {code}, {text}"


def codes(burst: Burst) -> tuple[list[int | None], list[int | None]]:
    return [event.code for event in burst.causes], [event.code for event in burst.consequences]


def test_what_follows_a_lost_gpu_folds_under_it() -> None:
    (burst,) = bursts(xid(100, 79), xid(101, 45), xid(101, 154, text="GPU recovery action changed from 0x0 (None) to 0x2 (x)"))
    assert codes(burst) == ([79], [45, 154])


def test_a_reset_channel_folds_under_the_mmu_fault_beside_it() -> None:
    (burst,) = bursts(xid(100, 31), xid(100.1, 43))
    assert codes(burst) == ([31], [43])


def test_a_reset_channel_alone_stays_a_cause() -> None:
    (burst,) = bursts(xid(100, 43))
    assert codes(burst) == ([43], [])


def test_a_thousand_repeats_are_one_cause() -> None:
    (burst,) = bursts(*(xid(100 + number * 0.01, 48) for number in range(1000)))
    assert codes(burst) == ([48], [])
    assert burst.lines == 1000


def test_three_minutes_of_silence_end_a_burst() -> None:
    assert len(bursts(xid(100, 31), xid(279, 31), xid(460, 31))) == 2


def test_gpus_are_told_apart_and_spellings_of_one_address_are_not() -> None:
    assert len(bursts(xid(100, 31, "1b"), xid(100, 31, "1c"))) == 2
    assert len(bursts("[100.0] NVRM: Xid (PCI:0000:1B:00.0): 31, a", "[100.1] NVRM: Xid (PCI:0000:1b:00): 31, a")) == 1


def test_channels_removed_on_peers_fold_under_the_fault_of_the_node() -> None:
    first, second = bursts(xid(100, 149, "1b", "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x1)"), xid(101, 45, "1c"))
    assert codes(first) == ([149], [])
    assert codes(second) == ([], [45])


def test_companion_lines_of_a_switch_fault_are_not_counted() -> None:
    (burst,) = bursts(
        "[  10.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "[  10.1] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00",
        "[  10.2] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Data {0x000001c0, 0x00000000}",
    )
    assert codes(burst) == ([20034], [])
    assert burst.lines == 1


def test_a_harmless_variant_never_hides_the_real_fault() -> None:
    (burst,) = bursts(
        xid(100, 64, text="Row Remapper: (0x0) - Attempting to remap a row that is already pending remapping."),
        xid(101, 64, text="Row Remapper Error: (0x0) - All reserved rows for bank are remapped"),
    )
    assert codes(burst) == ([64, 64], [])
