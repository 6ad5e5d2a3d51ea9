"""Every reading of NVML is taken through NVML's own bindings and tagged, against the lab's driver in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from infra.lab.hardware import fresh_gpus, hardware_of

REPOSITORY = Path(__file__).resolve().parents[2]
READ = "import json; from checks.probes.nvml import read_nvml; print(json.dumps(read_nvml(60).to_json()))"
NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, VERSION_MISMATCH, UNKNOWN = 3, 4, 15, 25, 999

Gpus = list[dict[str, Any]]
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Returns the readings of every GPU, as [state, value, detail]."""

    def read_all(change: Callable[[Gpus], None] | None = None, instance_type: str = "p5.48xlarge") -> list[dict[str, Any]]:
        gpus = fresh_gpus(hardware_of(instance_type), "seed")
        if change:
            change(gpus)
        state = tmp_path / "var/lib/lab/gpus.json"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text(json.dumps({"driver": "580.95.05", "cuda": 13000, "gpus": gpus, "processes": []}))
        bindings = Path(pynvml.__file__).parent
        paths = (REPOSITORY / "infra/lab/nvidia", REPOSITORY, bindings)
        environment = {
            "HOTSPARE_HOST_ROOT": str(tmp_path),
            "PATH": os.defpath,
            "PYTHONPATH": os.pathsep.join(str(path) for path in paths),
        }
        done = subprocess.run(
            [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        document = json.loads(done.stdout)
        assert document["outcome"] == "read", document["detail"]
        return [gpu["values"] for gpu in document["gpus"]]

    return read_all


def test_every_reading_of_a_healthy_gpu_is_taken_or_named_as_not_supported(read: Read) -> None:
    for values in read():
        missing = {name for name, reading in values.items() if reading[0] != "ok"}
        pages = {f"retired_pages_{kind}" for kind in ("sbe", "dbe", "pending", "pending_sbe", "pending_dbe")}
        banks = {f"bank_{name}" for name in ("remaps_active", "remaps_inactive", "groups_full", "groups_none", "remap_pending")}
        inactive = {"remapped_rows_corrected_inactive", "remapped_rows_uncorrected_inactive"}
        assert missing == {"memory_unrepairable", *pages, *banks, *inactive, "c2c_states", "c2c_errors"}
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
