"""The hardware of the instance types that a lab node can pretend to be: GPUs, PCI addresses, all-reduce rates.

Bus bandwidths in GB/s are public measurements of healthy machines: Azure's ND A100 v4 and ND H100 v5 tables, Oracle's H200
and B200 runs for one node; the AWS parallel-computing examples for p4de and p5 pairs. No figure for p5en or p6-b200 pairs
was found: they are taken as the nearest measured ones.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from infra.lab.gpu_counters import fresh_counters

HEAD_TYPE = "m5.xlarge"
"""Instance type of the head node: no GPU."""
DRIVER_VERSION = "580.95.05"
CUDA_VERSION = 13000
"""CUDA version of the driver as NVML counts: 1000 * major + 10 * minor."""


@dataclass(frozen=True)
class Rate:
    """Bus bandwidth of an all-reduce: `peak` GB/s for endless messages, half of it at `half_gb` GB of message."""

    peak: float
    half_gb: float

    def busbw(self, size_bytes: int) -> float:
        """Bus bandwidth for one message size."""
        size_gb = size_bytes / 2**30
        return self.peak * size_gb / (size_gb + self.half_gb)


@dataclass(frozen=True)
class Hardware:
    """One instance type. `pci` are the GPUs' addresses, `device` the PCI device id."""

    gpu_name: str
    device: str
    memory_mib: int
    pci: tuple[str, ...]
    node_rate: Rate
    group_rate: Rate
    nvlinks: int


_P5_PCI = tuple(f"0000:{bus}:00.0" for bus in ("53", "64", "75", "86", "97", "a8", "b9", "ca"))
_P4_PCI = tuple(f"0000:{bus}:{slot}.0" for bus in ("10", "20", "90", "a0") for slot in ("1c", "1d"))

HARDWARE = {
    "p4d.24xlarge": Hardware("NVIDIA A100-SXM4-40GB", "0x20b0", 40960, _P4_PCI, Rate(235.0, 0.022), Rate(78.8, 0.026), 12),
    "p4de.24xlarge": Hardware("NVIDIA A100-SXM4-80GB", "0x20b2", 81920, _P4_PCI, Rate(235.0, 0.022), Rate(78.8, 0.026), 12),
    "p5.48xlarge": Hardware("NVIDIA H100 80GB HBM3", "0x2330", 81559, _P5_PCI, Rate(481.0, 0.033), Rate(490.0, 0.12), 18),
    "p5en.48xlarge": Hardware("NVIDIA H200", "0x2335", 143771, _P5_PCI, Rate(482.0, 0.03), Rate(490.0, 0.12), 18),
    "p6-b200.48xlarge": Hardware("NVIDIA B200", "0x2901", 183359, _P5_PCI, Rate(851.0, 0.18), Rate(730.0, 0.27), 18),
}


def hardware_of(instance_type: str) -> Hardware:
    """Return the hardware of an instance type; ValueError names the types that the lab knows."""
    try:
        return HARDWARE[instance_type]
    except KeyError:
        raise ValueError(f"the lab knows no instance type {instance_type}; it knows {', '.join(HARDWARE)}") from None


def fresh_gpus(hardware: Hardware, seed: str) -> list[dict[str, Any]]:
    """Return healthy GPUs with serials and UUIDs of their own. The same seed gives the same GPUs."""
    gpus = []
    for index, pci in enumerate(hardware.pci):
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"gpu/{seed}/{index}")
        gpus.append(
            {
                "index": index,
                "uuid": f"GPU-{identity}",
                "serial": f"16{identity.int % 10**11:011d}",
                "pci": pci,
                "name": hardware.gpu_name,
                "device": hardware.device,
                "memory_mib": hardware.memory_mib,
                "lost": False,
                "hung": False,
                **{f"ecc_{since}_{kind}": 0 for since in ("volatile", "aggregate") for kind in ("uncorrected", "corrected")},
                "remap_correctable": 0,
                "remap_uncorrectable": 0,
                "remap_pending": 0,
                "remap_failure": 0,
                "recovery_action": 0,
                "temperature": 34 + index % 3,
                "clocks_event_reasons": 1,
                "nvlinks": hardware.nvlinks,
                "nvlinks_down": [],
                **fresh_counters(hardware.gpu_name),
            }
        )
    return gpus
