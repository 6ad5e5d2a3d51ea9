"""What NVML says of one GPU of eight is judged by what it means: replaced, reset, rebooted, told, or left alone."""

from __future__ import annotations

from typing import Any

import pytest

from checks.diagnosis import Timing, diagnose
from checks.model import Action, Finding, Verdict
from checks.probes.nvml_findings import judge_nvml
from checks.probes.readings import ERROR, LOST, NO_PERMISSION, NOT_SUPPORTED, OK, GpuReadings, NvmlState, Reading

HEALTHY: dict[str, Any] = {
    "handle": True,
    "uuid": "GPU-x",
    "name": "NVIDIA H100 80GB HBM3",
    "pci": "00000000:53:00.0",
    "ecc_mode": [1, 1],
    "ecc_uncorrected_volatile": 0,
    "ecc_uncorrected_volatile_sram": 0,
    "remapped_rows": [0, 0, 0, 0],
    "row_remap_histogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
    "repair_pending": [0, 0],
    "memory_unrepairable": 0,
    "sram_ecc": {"volatileUncParity": 0, "volatileUncSecDed": 0, "bThresholdExceeded": 0},
    "recovery_action": 0,
    "temperature_c": 41,
    "thermal_margin_c": 40,
    "slowdown_margin_c": -2,
    "clocks_event_reasons": 0,
    "power_limit_mw": 700000,
    "power_limit_default_mw": 700000,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "pcie_fatal": 0,
    "nvlink_states": [1] * 18,
    "nvlink_errors": {"counters": ["replay", "recovery", "crc"], "nonzero": {}},
    "fabric": {"state": 3, "status": 0, "mask": 0x21AA, "summary": 1},
}
UP_S = 3600.0


def node(everywhere: dict[str, Any] | None = None, **gpu_2: Any) -> NvmlState:
    """Eight GPUs; the values of the third are changed. A `Reading` stands for itself."""

    def gpu(index: int) -> GpuReadings:
        values = {**HEALTHY, "serial": f"165{index}", **(everywhere or {}), **(gpu_2 if index == 2 else {})}
        return GpuReadings(index, {name: one if isinstance(one, Reading) else Reading(OK, one) for name, one in values.items()})

    return NvmlState("read", driver_version="580.95.05", gpus=tuple(gpu(index) for index in range(8)))


def judged(state: NvmlState, up_s: float = UP_S) -> list[Finding]:
    return judge_nvml(state, 1e9, up_s)


def accused(state: NvmlState, up_s: float = UP_S) -> list[tuple[str, Verdict, Action]]:
    return [(one.check, one.verdict, one.action) for one in judged(state, up_s) if one.verdict is not Verdict.OK]


def test_a_healthy_node_has_nothing_but_ok() -> None:
    findings = judged(node())
    assert {one.verdict for one in findings} == {Verdict.OK}
    assert {one.check for one in findings} >= {"sram_threshold", "repair_pending", "nvlink", "fabric", "pcie", "clocks"}


@pytest.mark.parametrize(
    ("changed", "check", "verdict", "action", "fault_class"),
    [
        ({"memory_unrepairable": 1}, "memory_unrepairable", Verdict.CRITICAL, Action.REPLACE_NODE, "memory_exhausted"),
        ({"remapped_rows": [0, 9, 0, 1]}, "row_remap_failure", Verdict.CRITICAL, Action.REPLACE_NODE, "memory_exhausted"),
        ({"remapped_rows": [0, 512, 0, 0]}, "row_remap_limit", Verdict.WARN, Action.REPLACE_NODE, "memory_exhausted"),
        ({"sram_ecc": {"bThresholdExceeded": 1}}, "sram_threshold", Verdict.WARN, Action.REPLACE_NODE, "memory_exhausted"),
        (
            {"retired_pages_sbe": 60, "retired_pages_dbe": 3},
            "retired_pages",
            Verdict.WARN,
            Action.REPLACE_NODE,
            "memory_exhausted",
        ),
        ({"remapped_rows": [0, 1, 1, 0]}, "row_remap_pending", Verdict.WARN, Action.RESET_GPU, "reset_needed"),
        ({"repair_pending": [1, 0]}, "repair_pending", Verdict.WARN, Action.RESET_GPU, "reset_needed"),
        ({"retired_pages_pending": 1}, "page_retirement_pending", Verdict.WARN, Action.RESET_GPU, "reset_needed"),
        ({"ecc_uncorrected_volatile_sram": 1}, "ecc_sram_uncorrected", Verdict.WARN, Action.RESET_GPU, "reset_needed"),
        ({"recovery_action": 2}, "recovery_action", Verdict.CRITICAL, Action.REBOOT_NODE, "reboot_needed"),
        ({"nvlink_states": [1] * 17 + [0]}, "nvlink_down", Verdict.CRITICAL, Action.RESET_GPU, "link"),
        (
            {"fabric": {"state": 3, "status": 0, "mask": 0x21A9, "summary": 1}},
            "fabric",
            Verdict.CRITICAL,
            Action.REBOOT_NODE,
            "fabric",
        ),
        (
            {"fabric": {"state": 3, "status": 0, "mask": 0, "summary": 2}},
            "fabric",
            Verdict.CRITICAL,
            Action.REBOOT_NODE,
            "fabric",
        ),
        ({"fabric": {"state": 2, "status": 0}}, "fabric", Verdict.WARN, Action.REBOOT_NODE, "fabric"),
        ({"pcie_width": 8}, "pcie_link", Verdict.WARN, Action.REBOOT_NODE, "reboot_needed"),
        ({"pcie_generation": 1}, "pcie_link", Verdict.WARN, Action.REBOOT_NODE, "reboot_needed"),
        ({"pcie_fatal": 1}, "pcie_fatal", Verdict.WARN, Action.REBOOT_NODE, "reboot_needed"),
        ({"ecc_mode": [0, 1]}, "ecc_mode", Verdict.WARN, Action.REBOOT_NODE, "configuration"),
        (
            {"row_remap_histogram": {**HEALTHY["row_remap_histogram"], "none": 1}},
            "spare_rows",
            Verdict.WARN,
            Action.RUN_DIAGNOSTICS,
            "none",
        ),
        ({"thermal_margin_c": -3}, "thermal_margin", Verdict.WARN, Action.CONTACT_SUPPORT, "none"),
        ({"clocks_event_reasons": 0x80}, "clocks", Verdict.WARN, Action.CONTACT_SUPPORT, "none"),
        ({"power_limit_mw": 350000}, "power_limit", Verdict.WARN, Action.RUN_DIAGNOSTICS, "none"),
        ({"pcie_replays": 60 * 32}, "pcie_replays", Verdict.WARN, Action.RUN_DIAGNOSTICS, "none"),
    ],
)
def test_each_bad_reading_is_one_finding_with_its_action_and_fault_class(
    changed: dict[str, Any], check: str, verdict: Verdict, action: Action, fault_class: str
) -> None:
    state = node(**changed)
    assert accused(state) == [(check, verdict, action)]
    finding = next(one for one in judged(state) if one.check == check)
    assert finding.gpu is not None
    assert finding.gpu.serial == "1652"
    diagnosis = diagnose(judged(state), timing=Timing(1e9, UP_S))
    assert diagnosis.fault_class == fault_class
    assert diagnosis.at_boundary == (verdict is Verdict.WARN and fault_class != "none")


@pytest.mark.parametrize(
    "changed",
    [
        {"ecc_uncorrected_volatile": 3, "ecc_uncorrected_aggregate": 7},
        {"ecc_corrected_volatile": 20_000_000},
        {"row_remap_histogram": {**HEALTHY["row_remap_histogram"], "low": 2}},
        {"clocks_event_reasons": 0x1 | 0x4 | 0x2},
        {"clocks_event_reasons": 0x400000},
        {"clocks_event_reasons": 0x1, "pcie_generation": 1},
        {"thermal_margin_c": -2},
        {"pcie_nonfatal": 5},
        {"pcie_replays": 60 * 31},
        {"nvlink_errors": {"counters": ["crc"], "nonzero": {"crc": {"4": 900}, "recoveries_done": {"4": 1}}}},
        {"name": "NVIDIA GeForce RTX 4090", "ecc_mode": [0, 0]},
        {"mig_mode": [1, 1], "remapped_rows": Reading(NOT_SUPPORTED), "row_remap_histogram": Reading(NOT_SUPPORTED)},
    ],
)
def test_what_is_normal_is_no_accusation(changed: dict[str, Any]) -> None:
    assert accused(node(**changed)) == []


def test_recoveries_of_an_nvlink_that_failed_ask_for_a_reset_and_other_errors_for_diagnostics() -> None:
    failed = {"counters": ["recoveries_failed"], "nonzero": {"recoveries_failed": {"7": 1}, "receive_errors": {"7": 40}}}
    assert accused(node(nvlink_errors=failed)) == [("nvlink_recovery_failed", Verdict.WARN, Action.RESET_GPU)]
    replays = {"counters": ["replay"], "nonzero": {"replay": {"3": 2}}}
    assert accused(node(nvlink_errors=replays)) == [("nvlink_errors", Verdict.WARN, Action.RUN_DIAGNOSTICS)]


def test_a_power_limit_lowered_on_every_gpu_is_somebodys_wish() -> None:
    assert accused(node({"power_limit_mw": 500000})) == []


def test_pcie_cards_without_nvlink_and_fabric_have_no_finding_about_them() -> None:
    absent = Reading(NOT_SUPPORTED)
    findings = judged(node(dict.fromkeys(("nvlink_states", "nvlink_errors", "fabric"), absent)))
    assert {one.verdict for one in findings} == {Verdict.OK}
    assert not {"nvlink", "fabric"} & {one.check for one in findings}


def test_bridged_cards_that_differ_in_pairs_are_not_accused() -> None:
    state = node()
    pairs = tuple(
        GpuReadings(gpu.index, {**gpu.values, "nvlink_states": Reading(OK, [1] * (12 if gpu.index < 4 else 8))})
        for gpu in state.gpus
    )
    assert accused(NvmlState("read", gpus=pairs)) == []


def test_a_fabric_that_is_not_up_right_after_boot_is_given_time() -> None:
    joining: dict[str, Any] = {"fabric": {"state": 2, "status": 0}}
    assert accused(node(joining), up_s=100.0) == []
    assert "fabric" not in {one.check for one in judged(node(joining), up_s=100.0)}
    assert len(accused(node(joining), up_s=301.0)) == 8


def test_a_single_gpu_of_a_bigger_board_has_no_fabric_to_join() -> None:
    (alone, *_) = node({"fabric": {"state": 1, "status": 0}}).gpus
    assert accused(NvmlState("read", gpus=(alone,))) == []


def test_what_only_root_may_read_is_neither_ok_nor_a_fault() -> None:
    findings = judged(node({"sram_ecc": Reading(ERROR, detail=NO_PERMISSION)}))
    assert {one.verdict for one in findings} == {Verdict.OK}
    assert "sram_threshold" not in {one.check for one in findings}
    assert NO_PERMISSION in next(one.evidence for one in findings if one.check == "nvml")


@pytest.mark.parametrize("name", ["ecc_uncorrected_volatile", "remapped_rows", "recovery_action", "repair_pending"])
def test_a_memory_reading_that_fails_leaves_the_gpu_unknown(name: str) -> None:
    changed: dict[str, Any] = {name: Reading(ERROR, detail="Unknown Error")}
    assert accused(node(**changed)) == [("unreadable", Verdict.UNKNOWN, Action.NONE)]


def test_a_gpu_lost_between_two_readings_is_lost() -> None:
    assert accused(node(nvlink_states=Reading(LOST))) == [("gpu_lost", Verdict.CRITICAL, Action.REBOOT_NODE)]


MIG: dict[str, Any] = {"mig_mode": [1, 1], "remapped_rows": Reading(NOT_SUPPORTED), "row_remap_histogram": Reading(NOT_SUPPORTED)}


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"repair_pending": [0, 1]}, "repair_pending"),
        ({"ecc_uncorrected_volatile_sram": 2}, "ecc_sram_uncorrected"),
        ({"recovery_action": 1}, "recovery_action"),
        ({"bank_remap_pending": 1}, "bank_remap_pending"),
    ],
)
def test_with_mig_on_a_reset_is_not_supported_so_the_node_is_rebooted(changed: dict[str, Any], check: str) -> None:
    ((found, _, action),) = accused(node(**{**MIG, **changed}))
    assert (found, action) == (check, Action.REBOOT_NODE)
    assert diagnose(judged(node(**{**MIG, **changed})), timing=Timing(1e9, UP_S)).fault_class == "reboot_needed"
    ((_, _, action),) = accused(node(**changed))
    assert action is Action.RESET_GPU


def test_with_mig_on_row_remaps_are_not_said_to_be_in_order() -> None:
    findings = judged(node(MIG))
    assert {one.verdict for one in findings} == {Verdict.OK}
    assert "row_remap" not in {one.check for one in findings}


@pytest.mark.parametrize("shift", [0, 2, 4, 6])
@pytest.mark.parametrize(("value", "is_fault"), [(0, False), (1, True), (2, False), (3, False)])
def test_each_field_of_the_fabrics_health_is_a_fault_only_where_it_says_so(shift: int, value: int, is_fault: bool) -> None:
    mask = 0x21AA & ~(3 << shift) | value << shift
    found = accused(node(fabric={"state": 3, "status": 0, "mask": mask, "summary": 1}))
    assert [check for check, _, _ in found] == ["fabric"] * is_fault


@pytest.mark.parametrize(
    ("configuration", "words"),
    [(2, "system GUID"), (3, "chassis"), (4, "no partition"), (5, "too few NVLinks"), (6, "firmware"), (7, "location"), (9, "9")],
)
def test_a_wrong_fabric_configuration_says_which(configuration: int, words: str) -> None:
    mask = 0x20AA | configuration << 8
    state = node(fabric={"state": 3, "status": 0, "mask": mask, "summary": 1})
    (finding,) = [one for one in judged(state) if one.check == "fabric"]
    assert words in finding.summary


def test_partition_and_fabric_manager_of_the_health_are_told_and_accuse_nobody() -> None:
    mask = 0x1AA | 1 << 12 | 2 << 14
    state = node({"fabric": {"state": 3, "status": 0, "mask": mask, "summary": 1}})
    assert accused(state) == []
    broken = node(fabric={"state": 3, "status": 0, "mask": mask & ~3 | 1, "summary": 1})
    (finding,) = [one for one in judged(broken) if one.check == "fabric" and one.verdict is not Verdict.OK]
    assert "partition assigned yes, fabric manager disconnected" in finding.evidence


A100_HEAT: dict[str, Any] = {
    "thermal_margin_c": Reading(NOT_SUPPORTED),
    "slowdown_margin_c": Reading(NOT_SUPPORTED),
    "slowdown_temperature_c": 89,
    "memory_temperature_c": 60,
    "memory_max_temperature_c": 95,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"inforom_corrupt": 1}, [("inforom", Verdict.WARN, Action.REBOOT_NODE)]),
        ({"inforom_corrupt": Reading(ERROR, detail="Unknown Error")}, []),
        ({"bank_remap_pending": 1}, [("bank_remap_pending", Verdict.WARN, Action.RESET_GPU)]),
        ({"bank_groups_none": 1, "bank_groups_full": 511}, [("spare_banks", Verdict.WARN, Action.RUN_DIAGNOSTICS)]),
        ({"bank_remaps_active": 3, "bank_remap_pending": 0, "bank_groups_none": 0}, []),
        ({"retired_pages_pending_dbe": 1}, [("page_retirement_pending", Verdict.WARN, Action.RESET_GPU)]),
        (A100_HEAT | {"temperature_c": 88}, []),
        (A100_HEAT | {"temperature_c": 89}, [("thermal_margin", Verdict.WARN, Action.CONTACT_SUPPORT)]),
        (A100_HEAT | {"memory_temperature_c": 95}, [("thermal_margin", Verdict.WARN, Action.CONTACT_SUPPORT)]),
        (A100_HEAT | {"slowdown_temperature_c": 0, "temperature_c": 88}, []),
        ({"c2c_states": [1, 0, 1, 1]}, [("c2c_down", Verdict.WARN, Action.RUN_DIAGNOSTICS)]),
        ({"c2c_states": [0, 0]}, []),
        ({"c2c_errors": {"counters": ["replays"], "nonzero": {"replays": {"0": 12}, "interrupt_errors": {"0": 1}}}}, []),
        ({"nvlink_quality": {"fec": [4_000_000_000] + [7] * 15, "raw_errors": 99999, "raw_ber": "15e-8"}}, []),
        ({"nvlink_errors": {"counters": [], "nonzero": {"recoveries": {"1": 2}, "recoveries_done": {"1": 2}}}}, []),
        ({"violation_power_ns": 10**15, "violation_thermal_ns": 10**9}, []),
    ],
)
def test_boards_banks_and_links_to_the_cpu_are_judged_by_what_they_mean(
    changed: dict[str, Any], expected: list[tuple[str, Verdict, Action]]
) -> None:
    assert accused(node(**changed)) == expected
