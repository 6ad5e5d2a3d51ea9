"""Decodes what NVML says of a GPU's place in the NVSwitch fabric: the state, and the health mask with all its fields."""

from __future__ import annotations

FABRIC_STATES = ("not supported", "not started", "in progress", "completed")

FAULTS = {"degraded bandwidth": 0, "route recovery": 2, "unhealthy route": 4, "access time-out recovery": 6}
"""Shift of each two-bit field in which 1 means fault and 2 none. Source: nvml.h."""

CONFIGURATIONS = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "GPU firmware does not fit",
    7: "wrong location",
    8: "GPU in an invalid state",
}
"""Four bits from bit 8: 0 not supported, 1 none, from 2 on what is wrong with the configuration. Source: nvml.h."""

TOLD = {"partition assigned": (12, {1: "yes", 2: "no"}), "fabric manager": (14, {1: "connected", 2: "disconnected"})}
"""Two-bit fields that are no fault by themselves: a healthy node of one host has no partition. Source: nvml.h."""


def fabric_faults(mask: int) -> list[str]:
    """Name the faults in a health mask; a field whose value is not known is none."""
    faults = [words for words, shift in FAULTS.items() if mask >> shift & 3 == 1]
    configuration = mask >> 8 & 15
    if configuration >= 2:
        words = CONFIGURATIONS.get(configuration, f"number {configuration}")
        faults.append(f"wrong configuration: {words}")
    return faults


def fabric_words(mask: int) -> str:
    """Say what a health mask tells besides faults, and which of its bits nobody knows."""
    told = [f"{words} {values[mask >> shift & 3]}" for words, (shift, values) in TOLD.items() if mask >> shift & 3 in values]
    shifts = (*FAULTS.values(), *(shift for shift, _ in TOLD.values()))
    unknown = mask >> 16 << 16 | sum(3 << shift for shift in shifts if mask >> shift & 3 == 3)
    return ", ".join([*told, *[f"bits {unknown:#x} not known"] * bool(unknown)])
