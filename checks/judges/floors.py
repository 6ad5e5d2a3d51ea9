"""Bus-bandwidth floors of all-reduce per GPU family, node count and message size: shipped seeds, and own ones over them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional, Union

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


OwnFloors = Mapping[str, Union[float, Floor]]
"""Floors of one's own, by key. A number is where a run fails; it warns at the same distance from its reference as shipped ones.

Keys: "p5.48xlarge/2" for all-reduce over two nodes, "p5.48xlarge/2@1G" for messages from 1 GiB up (the largest that fits holds),
"p5.48xlarge/host_to_device_memcpy_ce" for a test of nvbandwidth, "ib_write_bw/400" for a link of 400 Gb/s, in Gb/s. A GPU family
("H100/2") holds for all its types.
"""


def own_floor(own: OwnFloors, key: str) -> Floor:
    """Return the floor that is set under a key."""
    value = own[key]
    if isinstance(value, Floor):
        return value
    return Floor(value, round(value / FAIL_SHARE * WARN_SHARE, 1), f'settings, floor "{key}"')


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
    if re.search(r"\b(?:PCIe|NVL|MIG)\b", gpu_name):
        return ""
    return next((family for family, word in _GPU_NAMES if word in gpu_name), "")


def contradiction(instance_type: str, gpu_name: str) -> str:
    """Say that an output is of other GPUs than the instance type has; empty where both agree or one is not known."""
    told, printed = gpu_family(instance_type), family_of("", gpu_name)
    return f"the output is of {gpu_name}, but {instance_type} has {told}" if told and printed and told != printed else ""


_GPU_NAMES = (
    ("A100", "A100-SXM4"),
    ("H100", "H100 80GB HBM3"),
    ("GB200", "NVIDIA GB200"),
    ("H200", "NVIDIA H200"),
    ("B200", "NVIDIA B200"),
)
"""GPU names of the boards that the seeds hold for. PCIe and NVL cards have other links between GPUs and no seed."""


def find_floor(own: OwnFloors, instance_type: str, family: str, nodes: int, ranks: int, size_bytes: int) -> Optional[Floor]:
    """Return the floor for a run, own ones first, None where there is none.

    A group of more than two nodes without a floor of its own is held to that of the next smaller group, and the source says so.
    """
    mine = _find_own(own, instance_type, nodes, size_bytes) or _find_own(own, family, nodes, size_bytes)
    if mine:
        return mine
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


_COPY_REFERENCES = (
    ("H100", ("host_to_device", "device_to_host"), 55.0, "PCIe 5 x16, 55 to 57 GB/s on healthy H100 nodes"),
    ("H200", ("host_to_device", "device_to_host"), 55.0, "PCIe 5 x16 as H100, unmeasured"),
    ("B200", ("host_to_device", "device_to_host"), 55.0, "PCIe 5 x16 as H100, unmeasured"),
    ("A100", ("host_to_device", "device_to_host"), 23.5, "PCIe 4 x16; Azure health checks fail an A100 below 21 GB/s"),
    ("H100", ("device_to_device",), 276.0, "276 GB/s per pair of H100, README of nvbandwidth"),
    ("H200", ("device_to_device",), 276.0, "as H100: the same NVLink, unmeasured"),
)
"""References of single copies, GB/s, by family and direction; bidirectional tests have none. Source: in the last column."""

_COPY_TEST = re.compile(r"(host_to_device|device_to_host|device_to_device)_memcpy_(?:(?:read|write)_)?(?:ce|sm)")


def find_copy_floor(own: OwnFloors, instance_type: str, family: str, test: str) -> Optional[Floor]:
    """Return the floor of one test of nvbandwidth, own ones first, None where there is none."""
    for key in (f"{instance_type}/{test}", f"{family}/{test}"):
        if key in own:
            return own_floor(own, key)
    match = _COPY_TEST.fullmatch(test)
    for one, directions, reference, source in _COPY_REFERENCES:
        if match and one == family and match.group(1) in directions:
            return Floor(
                round(FAIL_SHARE * reference, 2), round(WARN_SHARE * reference, 2), f"shipped, {FAIL_SHARE:.0%}: {source}"
            )
    return None


_OWN_KEY = re.compile(r"(?P<machine>[^/@]+)/(?P<nodes>\d{1,6})(?:@(?P<size>\d{1,12})(?P<unit>[KMGT]?))?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _find_own(own: OwnFloors, machine: str, nodes: int, size_bytes: int) -> Optional[Floor]:
    """Find the own floor of the same node count, else of the next smaller above one, for the largest message that fits."""
    best: Optional[tuple[int, int, str]] = None
    for key in own:
        match = _OWN_KEY.fullmatch(key)
        if not match or not machine or match["machine"] != machine:
            continue
        group, size = int(match["nodes"]), int(match["size"] or 0) * _UNITS[match["unit"] or ""]
        if size <= size_bytes and (group == nodes or 1 < group < nodes) and (best is None or (group, size) > best[:2]):
            best = (group, size, key)
    if best is None:
        return None
    floor = own_floor(own, best[2])
    return Floor(floor.fail_gbs, floor.warn_gbs, floor.source + _borrowed(best[0], nodes))


def _borrowed(from_nodes: int, nodes: int) -> str:
    return "" if from_nodes == nodes else f"; no floor for {nodes} nodes, so the one for {from_nodes} nodes"
