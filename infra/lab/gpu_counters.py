"""What a healthy GPU of the lab counts and measures besides memory totals: SRAM, spare rows, PCIe, NVLink, fabric, power."""

from __future__ import annotations

from typing import Any

HEALTHY_FABRIC_MASK = 0x21AA
"""Two bits each, 2 for "no fault"; configuration 1 for "none"; partition 2 for "not assigned". Source: nvml.h."""


def fresh_counters(gpu_name: str) -> dict[str, Any]:
    """Return the state of a healthy GPU, idle. `refused` maps an NVML function, or "field 230", to the code it answers with.

    Numbers of NVML fields are the keys of the `pcie` and `nvlink_errors` counters. Sources: data sheets of the boards (power,
    clocks, PCIe, NVLink); NVML's words for the rest.
    """
    ampere, blackwell = "A100" in gpu_name, "B200" in gpu_name
    generation = 4 if ampere else 5
    power_w = 400 if ampere else 1000 if blackwell else 700
    return {
        "refused": _refused(ampere),
        "sram": {},
        "banks": {"max": 640 if ampere else 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
        "repair_pending": [0, 0],
        "ecc_mode": [1, 1],
        "mig_mode": [0, 0],
        "thermal_margin": 52,
        "power_mw": {"draw": 71000, "limit": power_w * 1000, "default": power_w * 1000},
        "clocks": [1410, 1593] if ampere else [1980, 2619],
        "pcie": {"generation": generation, "generation_max": generation, "width": 16, "width_max": 16, "94": 0},
        "nvlink_generation": 3 if ampere else 5 if blackwell else 4,
        "nvlink_speed": 25000 if ampere else 53125 if blackwell else 26562,
        "nvlink_errors": {},
        "fabric": {"state": 3, "status": 0, "mask": HEALTHY_FABRIC_MASK, "summary": 1},
    }


def _refused(ampere: bool) -> dict[str, int]:
    """What the A100 does not have: thermal margins, pending repairs, a fabric that NVML tells of. 3 is "not supported"."""
    if not ampere:
        return {}
    functions = ("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetGpuFabricInfoV")
    return dict.fromkeys((*functions, "field 193", "field 194", "field 195", "field 196"), 3)
