"""Everything that NVML tells of a GPU's health is read, or named here with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.probes.nvml_links import C2C_FIELDS, ERROR_FIELDS, QUALITY_FIELDS, SPEED_FIELD
from checks.probes.nvml_readings import FIELDS
from tests.checks.lab_driver import read_lab_gpus

READ: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetHandleByIndex": ("handle",),
    "identity": ("uuid", "serial", "name", "pci"),
    "nvmlDeviceGetMemoryInfo": ("memory_total_bytes", "memory_used_bytes"),
    "nvmlDeviceGetEccMode": ("ecc_mode",),
    "nvmlDeviceGetTotalEccErrors": tuple(
        f"ecc_{kind}_{counter}" for kind in ("corrected", "uncorrected") for counter in ("volatile", "aggregate")
    ),
    "nvmlDeviceGetMemoryErrorCounter": tuple(
        f"ecc_{kind}_{counter}_{place}"
        for kind in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
        for place in ("dram", "sram")
    ),
    "nvmlDeviceGetSramEccErrorStatus": ("sram_ecc",),
    "nvmlDeviceGetRemappedRows, _v2": (
        *("remapped_rows", "remapped_rows_corrected_inactive"),
        "remapped_rows_uncorrected_inactive",
    ),
    "nvmlDeviceGetRowRemapperHistogram": ("row_remap_histogram",),
    "nvmlDeviceGetRepairStatus": ("repair_pending",),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": ("memory_unrepairable",),
    "nvmlDeviceGetBankRemapperStatus_v1": (
        *("bank_remaps_active", "bank_remaps_inactive", "bank_groups_full", "bank_groups_none"),
        "bank_remap_pending",
    ),
    "retired pages": tuple(f"retired_pages_{kind}" for kind in ("sbe", "dbe", "pending", "pending_sbe", "pending_dbe")),
    "recovery action": ("recovery_action",),
    "nvmlDeviceValidateInforom, GetInforomConfigurationChecksum": ("inforom_corrupt",),
    "temperatures and margins": (
        *("temperature_c", "memory_temperature_c", "thermal_margin_c", "shutdown_margin_c", "slowdown_margin_c"),
        *("memory_max_margin_c", "gpu_max_margin_c", "slowdown_temperature_c", "memory_max_temperature_c"),
    ),
    "clocks": ("clocks_event_reasons", "clock_sm_mhz", "clock_memory_mhz", "clock_sm_max_mhz", "clock_application_mhz"),
    "times at lowered clocks": ("slow_software_thermal_ns", "slow_hardware_thermal_ns", "slow_power_brake_ns"),
    "violations": tuple(f"violation_{name}_ns" for name in ("power", "thermal", "board_limit", "reliability")),
    "power": ("power_mw", "power_limit_mw", "power_limit_default_mw"),
    "PCIe link": ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"),
    "PCIe errors": (
        *("pcie_replays", "pcie_replay_rollovers", "pcie_l0_to_recovery", "pcie_correctable", "pcie_naks_received"),
        *("pcie_receiver_errors", "pcie_bad_tlp", "pcie_naks_sent", "pcie_bad_dllp", "pcie_nonfatal", "pcie_fatal"),
        *("pcie_unsupported_requests", "pcie_lcrc_errors", "pcie_lane_errors"),
    ),
    "NVLink": ("nvlink_count", "nvlink_states", "nvlink_speeds", "nvlink_errors", "nvlink_quality"),
    "C2C": ("c2c_count", "c2c_states", "c2c_errors"),
    "nvmlDeviceGetGpuFabricInfoV": ("fabric",),
    "modes": ("mig_mode", "persistence_mode", "compute_mode"),
    "nvmlDeviceGetComputeRunningProcesses": ("process_ids",),
}
"""What NVML tells, and the readings that hold it."""

LEFT_OUT = {
    "nvmlDeviceGetTopologyCommonAncestor": "the PCIe tree; that links between GPUs are missing is seen by their states",
    "nvmlDeviceGetGpuFabricInfo_v4": "adds cliques to version 3, which drivers that know version 4 answer too",
    "nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts": "addresses behind the counts of the SRAM status",
    "nvmlEventSetWait": "events before registration are lost; states and the kernel log are read",
    "nvmlDeviceGetNvLinkErrorCounter": "the older form of the fields 161 to 163",
}

FIELDS_LEFT_OUT = {
    **dict.fromkeys((1, 2), "ECC mode, by nvmlDeviceGetEccMode"),
    **dict.fromkeys(range(3, 7), "ECC totals, by nvmlDeviceGetTotalEccErrors"),
    **dict.fromkeys(range(7, 29), "ECC by unit: DRAM and SRAM, by nvmlDeviceGetMemoryErrorCounter"),
    94: "nvmlDeviceGetPcieReplayCounter",
    **dict.fromkeys(range(142, 146), "nvmlDeviceGetRemappedRows"),
    165: "nvmlDeviceGetNvLinkState",
    172: "what a C2C link could carry, the same for all",
    **dict.fromkeys((205, 216, 217, 218, 226, 227), "deprecated"),
    291: "field 293 for both lanes",
    292: "field 293 for both lanes",
}

HEALTH_FIELDS = (
    *range(1, 32),
    *(74, 75, 77, 79, 82, 91, 92, 93, 94, 95),
    *range(142, 146),
    *range(161, 166),
    *range(169, 184),
    *range(193, 197),
    *range(205, 223),
    *(226, 227),
    *range(230, 234),
    *range(235, 251),
    *range(269, 272),
    *range(289, 294),
    *range(301, 308),
)
"""Numbers of the fields that tell of health: memory, repairs, violations, heat, links, recovery. Source: nvml.h."""


@pytest.mark.parametrize("instance_type", ["p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge"])
def test_each_reading_has_its_place_in_the_table_and_each_row_is_read(tmp_path: Path, instance_type: str) -> None:
    (gpu, *_) = read_lab_gpus(tmp_path, instance_type=instance_type, deep=True)
    assert set(gpu) == {name for names in READ.values() for name in names}
    assert not set(READ) & set(LEFT_OUT)


@pytest.mark.parametrize("number", HEALTH_FIELDS)
def test_each_field_of_health_is_read_or_has_a_reason_not_to_be(number: int) -> None:
    fields = {*FIELDS.values(), *ERROR_FIELDS.values(), *QUALITY_FIELDS.values(), *C2C_FIELDS.values(), SPEED_FIELD}
    assert (number in fields) != (number in FIELDS_LEFT_OUT)


def test_no_field_is_read_that_is_not_one_of_health() -> None:
    fields = {*FIELDS.values(), *ERROR_FIELDS.values(), *QUALITY_FIELDS.values(), *C2C_FIELDS.values(), SPEED_FIELD}
    assert fields - set(HEALTH_FIELDS) == set()
