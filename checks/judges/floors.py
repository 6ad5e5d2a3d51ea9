"""Bus-bandwidth floors of all-reduce per GPU family, node count and message size: shipped seeds, and own ones over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from checks.catalog.entries import gpu_family

FAIL_SHARE = 0.90
WARN_SHARE = 0.95
"""Below these shares of the reference a run fails or warns. Hotspare default, from the spread of published runs."""

GIB = 1 << 30


@dataclass(frozen=True)
class Floor:
    """Below `fail_gbs` a run fails, below `warn_gbs` it warns (in-place busbw of the largest message, GB/s)."""

    fail_gbs: float
    warn_gbs: float
    source: str


@dataclass(frozen=True)
class _Seed:
    family: str
    nodes: int
    gpus_per_node: int
    from_bytes: int
    fail_gbs: float
    warn_gbs: float
    note: str


_SEEDS = (
    _Seed("A100", 1, 8, GIB, 210.0, 220.0, "0.90 and 0.95 of healthy A100 runs"),
    _Seed("A100", 2, 8, GIB, 70.0, 74.0, "0.90 and 0.95 of p4de runs over 400 Gb/s EFA"),
    _Seed("H100", 1, 8, GIB, 430.0, 455.0, "0.90 and 0.95 of healthy H100 runs (Azure ND H100 v5: 479)"),
    _Seed("H100", 2, 8, GIB, 390.0, 415.0, "at 1 GB, 0.90 and 0.95 of healthy H100 pairs"),
    _Seed("H100", 2, 8, 16 * GIB, 435.0, 460.0, "at 16 GB, 0.90 and 0.95 of healthy H100 pairs (OCI: 471 to 487)"),
    _Seed("H200", 1, 8, GIB, 430.0, 455.0, "as H100: the same NVLink"),
    _Seed("H200", 2, 8, GIB, 390.0, 415.0, "as H100 at 1 GB, unmeasured"),
    _Seed("H200", 2, 8, 16 * GIB, 435.0, 460.0, "as H100 at 16 GB, unmeasured"),
    _Seed("B200", 1, 8, GIB, 755.0, 800.0, "0.90 and 0.95 of healthy B200 runs (843)"),
    _Seed("GB200", 18, 4, 8 * GIB, 750.0, 790.0, "one NVL72 rack at 8 GB"),
    _Seed("GB200", 36, 4, 8 * GIB, 730.0, 770.0, "two NVL72 racks at 8 GB"),
)
"""Shipped floors. Source: published runs of each type, 0.90 (fail) and 0.95 (warn) of the reference."""


def family_of(instance_type: str, gpu_name: str) -> str:
    """Return the GPU family of an instance type or, where that is not known, of the GPU's printed name; empty if neither."""
    known = gpu_family(instance_type)
    if known:
        return known
    for family, words in _GPU_NAMES:
        if all(word in gpu_name for word in words):
            return family
    return ""


_GPU_NAMES = (
    ("A100", ("A100-SXM4",)),
    ("H100", ("H100 80GB HBM3",)),
    ("GB200", ("GB200",)),
    ("H200", ("NVIDIA H200",)),
    ("B200", ("NVIDIA B200",)),
)
"""GPU names of the boards that the seeds hold for. PCIe and NVL cards carry other names and have no seed."""


def find_floor(
    own: Mapping[str, float], instance_type: str, family: str, nodes: int, ranks: int, size_bytes: int
) -> Optional[Floor]:
    """Return the floor for a run, own ones first, None where there is none.

    A group of more than two nodes without a floor of its own is held to that of the next smaller group, and the source says so.
    """
    for group in _group_sizes(own, instance_type, nodes):
        key = f"{instance_type}/{group}"
        fail = own[key]
        note = f'settings, floor "{key}"' + _borrowed(group, nodes)
        return Floor(fail, round(fail / FAIL_SHARE * WARN_SHARE, 1), note)
    fitting = [
        seed
        for seed in _SEEDS
        if seed.family == family
        and seed.from_bytes <= size_bytes
        and seed.gpus_per_node * nodes == ranks
        and (seed.nodes == nodes or 1 < seed.nodes < nodes)
    ]
    if not fitting:
        return None
    best = max(fitting, key=lambda seed: (seed.nodes, seed.from_bytes))
    return Floor(best.fail_gbs, best.warn_gbs, f"shipped floor for {family}, {best.note}" + _borrowed(best.nodes, nodes))


def _group_sizes(own: Mapping[str, float], instance_type: str, nodes: int) -> list[int]:
    """Return the node counts of own floors that fit, best first: the same count, else the next smaller above one."""
    parts = [key.rpartition("/") for key in own]
    sizes = [int(count) for name, _, count in parts if name == instance_type and count.isdigit()]
    return sorted((size for size in sizes if size == nodes or 1 < size < nodes), reverse=True)


def _borrowed(from_nodes: int, nodes: int) -> str:
    return "" if from_nodes == nodes else f"; no floor for {nodes} nodes, so the one for {from_nodes} nodes"
