"""Every reading of NVML is taken through NVML's own bindings and tagged, against the lab's driver in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.checks.lab_driver import (
    CORRUPTED_INFOROM,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    VERSION_MISMATCH,
    Gpus,
    Readings,
    read_lab_gpus,
)

Read = Callable[..., Readings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Returns the readings of every GPU, as [state, value, detail]."""
    return partial(read_lab_gpus, tmp_path)


def test_every_reading_of_a_healthy_gpu_is_taken_or_named_as_not_supported(read: Read) -> None:
    for values in read():
        missing = {name for name, reading in values.items() if reading[0] != "ok"}
        pages = {f"retired_pages_{kind}" for kind in ("sbe", "dbe", "pending", "pending_sbe", "pending_dbe")}
        banks = {f"bank_{name}" for name in ("remaps_active", "remaps_inactive", "groups_full", "groups_none", "remap_pending")}
        limits = {"slowdown_temperature_c", "memory_max_temperature_c"}
        inactive = {"remapped_rows_corrected_inactive", "remapped_rows_uncorrected_inactive"}
        assert missing == {"memory_unrepairable", *pages, *banks, *inactive, *limits, "c2c_states", "c2c_errors"}
        assert {values[name][0] for name in missing} == {"not_supported"}
        assert values["nvlink_states"][1] == [1] * 18
        assert values["fabric"][1] == {"state": 3, "status": 0, "clique": 0, "mask": 0x21AA, "summary": 1}
        assert values["slowdown_margin_c"][1] == -2


@pytest.mark.parametrize(
    ("instance_type", "counters", "speed"),
    [("p4d.24xlarge", "replay", 25000), ("p5.48xlarge", "crc", 26562), ("p6-b200.48xlarge", "recoveries_failed", 53125)],
)
def test_nvlink_counters_are_those_of_the_generation(read: Read, instance_type: str, counters: str, speed: int) -> None:
    (gpu, *_) = read(instance_type=instance_type)
    given = gpu["nvlink_errors"][1]["counters"]
    assert counters in given
    assert not {"replay", "recoveries_failed"} <= set(given)
    assert set(gpu["nvlink_speeds"][1]) == {speed}


def test_nvlink_errors_are_told_by_counter_and_link(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[1]["nvlink_errors"] = {"161": {"4": 7}, "163": {"4": 900, "9": 1}}
        gpus[2]["nvlinks_down"] = [14]

    gpus = read(change)
    assert gpus[1]["nvlink_errors"][1]["nonzero"] == {"replay": {"4": 7}, "crc": {"4": 900, "9": 1}}
    assert gpus[2]["nvlink_states"][1].index(0) == 14
    assert len(gpus[2]["nvlink_speeds"][1]) == 17
    assert gpus[3]["nvlink_errors"][1]["nonzero"] == {}


def test_memory_errors_are_told_by_place(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0].update(ecc_volatile_uncorrected=5, sram={"volatile_uncorrected": 2, "threshold": 1})
        gpus[0]["banks"]["low"] = 3
        gpus[0]["repair_pending"] = [1, 0]

    (gpu, *_) = read(change)
    assert gpu["ecc_uncorrected_volatile"][1] == 5
    assert (gpu["ecc_uncorrected_volatile_dram"][1], gpu["ecc_uncorrected_volatile_sram"][1]) == (3, 2)
    assert (gpu["sram_ecc"][1]["volatileUncParity"], gpu["sram_ecc"][1]["bThresholdExceeded"]) == (2, 1)
    assert gpu["row_remap_histogram"][1]["low"] == 3
    assert gpu["repair_pending"][1] == [1, 0]


@pytest.mark.parametrize(
    ("code", "state", "detail"),
    [
        (NOT_SUPPORTED, "not_supported", "Not Supported"),
        (VERSION_MISMATCH, "not_supported", "Argument version mismatch"),
        (NO_PERMISSION, "error", "this user may not ask for it"),
        (UNKNOWN, "error", "Unknown Error"),
        (GPU_IS_LOST, "lost", "GPU is lost"),
    ],
)
def test_a_refused_reading_is_tagged_by_its_reason_and_never_zero(read: Read, code: int, state: str, detail: str) -> None:
    refused = {
        "nvmlDeviceGetSramEccErrorStatus": "sram_ecc",
        "nvmlDeviceGetTotalEccErrors": "ecc_uncorrected_volatile",
        "nvmlDeviceGetGpuFabricInfoV": "fabric",
        "nvmlDeviceGetPcieReplayCounter": "pcie_replays",
        "field 230": "recovery_action",
    }

    def change(gpus: Gpus) -> None:
        gpus[4]["refused"] = dict.fromkeys(refused, code)

    gpus = read(change)
    for name in refused.values():
        assert gpus[4][name][:2] == [state, None], name
    assert gpus[4]["sram_ecc"][2] == detail
    assert gpus[4]["temperature_c"][0] == "ok"
    assert gpus[5]["sram_ecc"][0] == "ok"


def test_a_field_call_that_fails_as_a_whole_tags_every_field(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0]["refused"] = {"nvmlDeviceGetFieldValues": UNKNOWN}

    (gpu, *_) = read(change)
    assert gpu["recovery_action"][:2] == gpu["nvlink_count"][:2] == gpu["pcie_fatal"][:2] == ["error", None]


def test_a_lost_gpu_is_lost_and_the_others_answer(read: Read) -> None:
    gpus = read(lambda gpus: gpus[6].update(lost=True))
    assert gpus[6] == {"handle": ["lost", None, "GPU is lost"]}
    assert all(gpu["uuid"][0] == "ok" for index, gpu in enumerate(gpus) if index != 6)


def test_all_readings_of_a_node_stay_small(read: Read) -> None:
    assert len(json.dumps(read())) < 36_000


FAMILIES = ["p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"]
REFUSABLE = {
    "nvmlDeviceGetInforomConfigurationChecksum": "inforom_corrupt",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": "memory_unrepairable",
    "nvmlDeviceGetRepairStatus": "repair_pending",
    "nvmlDeviceGetRowRemapperHistogram": "row_remap_histogram",
    "nvmlDeviceGetMemoryErrorCounter": "ecc_uncorrected_volatile_sram",
    "nvmlDeviceGetMarginTemperature": "thermal_margin_c",
    "nvmlDeviceGetTemperatureThreshold": "slowdown_temperature_c",
    "nvmlDeviceGetPowerManagementDefaultLimit": "power_limit_default_mw",
    "nvmlDeviceGetMigMode": "mig_mode",
    "field 74": "violation_power_ns",
    "field 75": "violation_thermal_ns",
    "field 77": "violation_board_limit_ns",
    "field 79": "violation_reliability_ns",
    "field 92": "retired_pages_pending_sbe",
    "field 93": "retired_pages_pending_dbe",
    "field 269": "slow_software_thermal_ns",
    "field 270": "slow_hardware_thermal_ns",
    "field 271": "slow_power_brake_ns",
    "field 301": "remapped_rows_corrected_inactive",
    "field 302": "remapped_rows_uncorrected_inactive",
    "field 303": "bank_remaps_active",
    "field 304": "bank_remaps_inactive",
    "field 305": "bank_groups_full",
    "field 306": "bank_groups_none",
    "field 307": "bank_remap_pending",
    "field 170": "c2c_count",
}


@pytest.mark.parametrize("instance_type", FAMILIES)
@pytest.mark.parametrize(
    ("code", "state"),
    [
        (NOT_SUPPORTED, "not_supported"),
        (FUNCTION_NOT_FOUND, "not_supported"),
        (VERSION_MISMATCH, "not_supported"),
        (NO_PERMISSION, "error"),
        (UNKNOWN, "error"),
        (GPU_IS_LOST, "lost"),
    ],
)
def test_every_way_of_refusing_a_reading_is_told_apart_on_every_family(
    read: Read, instance_type: str, code: int, state: str
) -> None:
    gpus = read(lambda gpus: gpus[1].update(refused=dict.fromkeys(REFUSABLE, code)), instance_type)
    for function, name in REFUSABLE.items():
        assert gpus[1][name][:2] == [state, None], function
    assert gpus[1]["temperature_c"][0] == "ok"


@pytest.mark.parametrize("instance_type", FAMILIES)
def test_a_deep_look_at_a_healthy_gpu_has_no_failed_reading_on_any_family(read: Read, instance_type: str) -> None:
    for values in read(instance_type=instance_type, deep=True):
        assert {name for name, reading in values.items() if reading[0] not in ("ok", "not_supported")} == set()
        assert (values["nvlink_quality"][0] == "ok") == instance_type.startswith("p6")
        assert (values["slow_power_brake_ns"][0] == "ok") != instance_type.startswith("p4d")


def test_what_error_correction_does_on_healthy_links_is_summed_up_and_no_error(read: Read) -> None:
    (gpu, *_) = read(instance_type="p6-b200.48xlarge", deep=True)
    quality = gpu["nvlink_quality"][1]
    assert quality["fec"][0] == 18 * 4_870_000_000
    assert sum(quality["fec"][1:]) == 0
    assert quality["raw_errors"] == 18 * (210 + 185)
    assert quality["effective_ber"] == quality["symbol_ber"] == "15e-255"
    assert quality["raw_ber"] == "5e-12"
    assert gpu["nvlink_errors"][1]["nonzero"] == {}


def test_the_worst_link_gives_the_bit_error_rate(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0]["nvlink_errors"] = {"220": {"9": 2 << 8 | 9, "10": 7 << 8 | 10}, "240": {"9": 3}}

    (gpu, *_) = read(change, "p6-b200.48xlarge", deep=True)
    assert gpu["nvlink_quality"][1]["effective_ber"] == "2e-9"
    assert gpu["nvlink_quality"][1]["fec"][5] == 3


@pytest.mark.parametrize("deep", [False, True])
def test_a_corrupted_inforom_is_told_in_quick_and_deep_looks(read: Read, deep: bool) -> None:
    gpus = read(lambda gpus: gpus[2].update(inforom=CORRUPTED_INFOROM), deep=deep)
    assert [gpu["inforom_corrupt"] for gpu in gpus] == [["ok", int(index == 2)] for index in range(8)]


def test_only_a_deep_look_reads_the_flash_of_the_inforom(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0]["refused"] = {"nvmlDeviceValidateInforom": UNKNOWN}

    assert read(change)[0]["inforom_corrupt"] == ["ok", 0]
    assert read(change, deep=True)[0]["inforom_corrupt"][0] == "error"


def test_links_to_a_grace_cpu_are_read_link_by_link(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0]["c2c"] = {"links": 10, "171": {"3": 0}, "232": {"4": 12}, "231": {"4": 1}}

    gpus = read(change)
    assert gpus[0]["c2c_states"][1] == [int(link != 3) for link in range(10)]
    assert gpus[0]["c2c_errors"][1]["nonzero"] == {"interrupt_errors": {"4": 1}, "replays": {"4": 12}}
    assert gpus[1]["c2c_count"][:2] == ["ok", 0]
    assert gpus[1]["c2c_states"][0] == "not_supported"


@pytest.mark.parametrize(("code", "state"), [(UNKNOWN, "error"), (GPU_IS_LOST, "lost"), (NO_PERMISSION, "error")])
def test_a_link_to_the_cpu_that_cannot_be_read_is_not_taken_for_healthy(read: Read, code: int, state: str) -> None:
    gpus = read(lambda gpus: gpus[0].update(c2c={"links": 2}, refused={"field 231": code}))
    assert gpus[0]["c2c_states"][0] == gpus[0]["c2c_errors"][0] == state


def test_banks_pages_and_the_flag_of_unrepairable_memory_are_read_where_a_driver_has_them(read: Read) -> None:
    def change(gpus: Gpus) -> None:
        gpus[0]["fields"].update({"303": 2, "304": 1, "305": 510, "306": 1, "307": 1, "29": 3, "30": 1, "31": 1, "93": 1})
        gpus[0]["memory_unrepairable"] = 1

    (gpu, *_) = read(change)
    assert [gpu[f"bank_{name}"][1] for name in ("remaps_active", "remaps_inactive", "groups_full", "groups_none")] == [
        2,
        1,
        510,
        1,
    ]
    assert gpu["bank_remap_pending"][1] == gpu["memory_unrepairable"][1] == gpu["retired_pages_pending"][1] == 1
    assert (gpu["retired_pages_sbe"][1], gpu["retired_pages_pending_dbe"][1]) == (3, 1)


def test_a_deep_look_stays_small_too(read: Read) -> None:
    assert len(json.dumps(read(instance_type="p6-b200.48xlarge", deep=True))) < 40_000
