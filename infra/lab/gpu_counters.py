"""What a healthy GPU of the lab counts and measures besides memory totals: SRAM, spare rows, PCIe, NVLink, fabric, power.

The keys of a GPU's state, which faults and tests set (identity, `lost`, `hung`, ECC and row totals are in `infra.lab.hardware`):

    refused                {NVML function or "field N": NVML code} it answers with: 3 not supported, 4 no permission, 15 lost,
                           25 version of the structure, 999 unknown
    fields                 {"N": number}: NVML fields that are one number for the GPU; one that is not here is not supported.
                           29-31 and 92, 93 retired pages; 74, 75, 77, 79 violations, ns; 269-271 slowed down by software
                           thermal, hardware thermal, power brake, ns; 301, 302 inactive row remaps; 303-307 bank remaps
    sram                   {"volatile_uncorrected", "volatile_corrected", "aggregate_...", "threshold": number}
    banks                  {"max", "high", "partial", "low", "none": memory banks by spare rows left}
    repair_pending         [memory channel, TPC]
    memory_unrepairable    None (a driver before 590 cannot say), 0, 1
    inforom                0, or the code with which it fails: 14 corrupted
    ecc_mode, mig_mode     [current, after the next boot]
    thermal_margin         degrees below the limit; clocks_event_reasons: the bits of nvml.h
    temperature_limits     {"N": degrees}: NVML's absolute limits 0 shutdown, 1 slowdown, 2 memory, 3 GPU; {} from Hopper on
    power_mw               {"draw", "limit", "default"}
    clocks                 [SM, memory], MHz
    pcie                   {"generation", "generation_max", "width", "width_max", "N": NVML field N: 94, 95, 169, 173-183}
    nvlinks, nvlinks_down  how many links, and which are not active; nvlink_generation, nvlink_speed (Mbit/s)
    nvlink_errors          {"N": {"link": count}}: 161-163 of NVLink 3, 4; 206-215, 219-222, 235-250, 289-293 of NVLink 5
    nvlink_usual           {"N": count that each link has anyway}: what healthy NVLink 5 counts
    fabric                 {"state", "status", "mask", "summary"}: NVML's numbers
    c2c                    {"links": number, "N": {"link": count}}: links to a Grace CPU, and fields 171, 172, 231-233
"""

from __future__ import annotations

from typing import Any

HEALTHY_FABRIC_MASK = 0x21AA
"""Two bits each, 2 for "no fault"; configuration 1 for "none"; partition 2 for "not assigned". Source: nvml.h."""

BER_FLOOR = 0xFFF
"""The lowest bit error rate that NVML can tell: mantissa 15, exponent -255. Source: nvml.h."""

_NVLINK5_USUAL = {
    "220": BER_FLOOR,
    "222": BER_FLOOR,
    "235": 4_870_000_000,
    "289": 210,
    "290": 185,
    "291": 5 << 8 | 12,
    "292": 4 << 8 | 12,
    "293": 5 << 8 | 12,
}
"""What every healthy link shows: codewords that needed no correction by the billion, raw errors that are corrected, rates at
the floor. Source of the kind of values: nvml.h; of their size: a healthy B300 under driver 595."""


def fresh_counters(gpu_name: str) -> dict[str, Any]:
    """Return the state of a healthy GPU, idle, by the keys above.

    Sources: data sheets of the boards (power, clocks, PCIe, NVLink); NVML's words for the rest.
    """
    ampere, blackwell = "A100" in gpu_name, "B200" in gpu_name
    generation = 4 if ampere else 5
    power_w = 400 if ampere else 1000 if blackwell else 700
    return {
        "refused": _refused(ampere),
        "fields": _fields(ampere),
        "sram": {},
        "banks": {"max": 640 if ampere else 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
        "repair_pending": [0, 0],
        "memory_unrepairable": None,
        "inforom": 0,
        "ecc_mode": [1, 1],
        "mig_mode": [0, 0],
        "thermal_margin": 52,
        "temperature_limits": {"0": 92, "1": 89, "2": 95, "3": 85} if ampere else {},
        "power_mw": {"draw": 71000, "limit": power_w * 1000, "default": power_w * 1000},
        "clocks": [1410, 1593] if ampere else [1980, 2619],
        "pcie": {"generation": generation, "generation_max": generation, "width": 16, "width_max": 16, "94": 0},
        "nvlink_generation": 3 if ampere else 5 if blackwell else 4,
        "nvlink_speed": 25000 if ampere else 53125 if blackwell else 26562,
        "nvlink_errors": {},
        "nvlink_usual": dict(_NVLINK5_USUAL) if blackwell else {},
        "fabric": {"state": 3, "status": 0, "mask": HEALTHY_FABRIC_MASK, "summary": 1},
        "c2c": {"links": 0},
    }


def _refused(ampere: bool) -> dict[str, int]:
    """What the A100 does not have: thermal margins, pending repairs, a fabric that NVML tells of. 3 is "not supported"."""
    if not ampere:
        return {}
    functions = ("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetGpuFabricInfoV")
    return dict.fromkeys((*functions, "field 193", "field 194", "field 195", "field 196"), 3)


def _fields(ampere: bool) -> dict[str, int]:
    """Single numbers, all from zero: violations everywhere, times of slow clocks from Hopper on."""
    return dict.fromkeys(("74", "75", "77", "79", *(() if ampere else ("269", "270", "271"))), 0)
