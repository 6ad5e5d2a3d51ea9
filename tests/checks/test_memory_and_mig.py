"""A memory error as the kernel log and NVML tell it together, and the same faults on a GPU that MIG splits."""

from __future__ import annotations

from typing import Any

import pytest

from checks.diagnosis import Hardware, Timing, diagnose
from checks.kernel_log import read_lines
from checks.model import Action, Diagnosis
from checks.probes.nvml_findings import judge_nvml
from tests.checks.test_nvml_findings import HEALTHY, MIG, UP_S, node

NOW = 1e9
PLACE = "PCI:0000:53:00"
CONTAINED = f"NVRM: Xid ({PLACE}): 94, pid=77, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
UNCONTAINED = f"NVRM: Xid ({PLACE}): 95, pid=77, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"
LINK = f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


def diagnosed(line: str, **gpu: Any) -> Diagnosis:
    """The diagnosis of a kernel line seen ten seconds ago and a GPU with these readings."""
    events = list(read_lines([f"[{UP_S - 10:.6f}] {line}"])) if line else []
    findings = judge_nvml(node(**{**gpu, "pci": "00000000:53:00.0"}), NOW, UP_S)
    one = [finding for finding in findings if finding.gpu is None or finding.gpu.serial == "1652"]
    return diagnose(one, events, timing=Timing(NOW, UP_S), hardware=Hardware("p5.48xlarge"))


@pytest.mark.parametrize(
    ("line", "changed", "fault_class", "action", "at_boundary"),
    [
        # The error by itself: no remap repairs SRAM, so a reset when the job allows it, and nobody replaces a GPU for it.
        ("", {"ecc_uncorrected_volatile_sram": 1, "ecc_uncorrected_volatile": 1}, "reset_needed", Action.RESET_GPU, True),
        # The line by itself: it was contained, the job is restarted. So it is with an error in DRAM, which rows stand in for.
        (CONTAINED, {}, "memory_contained", Action.RESTART_JOB, False),
        (CONTAINED, {"ecc_uncorrected_volatile": 1}, "memory_contained", Action.RESTART_JOB, False),
        # Both: the job has died, so its end is here, and the reset covers the restart.
        (
            CONTAINED,
            {"ecc_uncorrected_volatile_sram": 1, "ecc_uncorrected_volatile": 1},
            "reset_needed",
            Action.RESET_GPU,
            True,
        ),
        (CONTAINED, {"remapped_rows": [0, 1, 1, 0]}, "reset_needed", Action.RESET_GPU, True),
        # NVIDIA's own flag, or a failed remap, is the end of the board whatever else was seen.
        (
            CONTAINED,
            {"sram_ecc": {**HEALTHY["sram_ecc"], "bThresholdExceeded": 1}, "ecc_uncorrected_volatile_sram": 9},
            "memory_exhausted",
            Action.REPLACE_NODE,
            True,
        ),
        (CONTAINED, {"remapped_rows": [0, 9, 0, 1]}, "memory_exhausted", Action.REPLACE_NODE, False),
    ],
)
def test_an_sram_error_asks_for_a_reset_at_the_jobs_end_and_a_contained_one_in_dram_for_the_job_alone(
    line: str, changed: dict[str, Any], fault_class: str, action: Action, at_boundary: bool
) -> None:
    diagnosis = diagnosed(line, **changed)
    assert (diagnosis.fault_class, diagnosis.action, diagnosis.at_boundary) == (fault_class, action, at_boundary)
    assert ("94" in " ".join(diagnosis.because)) == bool(line)


@pytest.mark.parametrize("line", [UNCONTAINED, LINK])
def test_on_a_gpu_that_mig_splits_what_needs_a_reset_needs_the_node(line: str) -> None:
    whole, split = diagnosed(line), diagnosed(line, **MIG)
    assert whole.action is Action.RESET_GPU
    assert (split.fault_class, split.action) == ("reboot_needed", Action.REBOOT_NODE)
    assert "MIG is on" in split.because[0]


def test_a_line_that_names_a_gpu_instance_says_that_mig_is_on() -> None:
    instance = UNCONTAINED.replace(PLACE, f"{PLACE} GPU-I:05 GPU-CI:00")
    assert diagnosed(instance).action is Action.REBOOT_NODE


def test_a_contained_error_in_a_mig_slice_restarts_the_job_of_that_slice_alone() -> None:
    assert diagnosed(CONTAINED.replace(PLACE, f"{PLACE} GPU-I:05"), **MIG).action is Action.RESTART_JOB
