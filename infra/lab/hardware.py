"""The hardware of the instance types that a lab node can pretend to be: GPUs, PCI addresses, all-reduce rates.

Bus bandwidths in GB/s are public measurements of healthy machines: Azure's ND A100 v4 and ND H100 v5 tables, Oracle's H200
and B200 runs for one node; the AWS parallel-computing examples for p4de and p5 pairs. No figure for p5en or p6-b200 pairs
was found: they are taken as the nearest measured ones. EFA devices and instance stores are those of the EC2 instance type pages
(https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
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
    """One instance type. `pci` are the GPUs' addresses, `device` the PCI device id.

    `efa` are the addresses of the EFA devices, `efa_device` their PCI device id, `efa_gbits` the rate of each; `disks` counts
    the instance store, each of `disk_gb`.
    """

    gpu_name: str
    device: str
    memory_mib: int
    pci: tuple[str, ...]
    node_rate: Rate
    group_rate: Rate
    nvlinks: int
    efa: tuple[str, ...]
    efa_device: str
    efa_gbits: int
    disk_gb: int
    disks: int = 8


def _before(addresses: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Addresses on the `count` buses before each GPU's, where P5 instances have their EFA devices."""
    buses = [int(address[5:7], 16) - back for address in addresses for back in range(count, 0, -1)]
    return tuple(f"0000:{bus:02x}:00.0" for bus in buses)


_P5_PCI = tuple(f"0000:{bus}:00.0" for bus in ("53", "64", "75", "86", "97", "a8", "b9", "ca"))
_P4_PCI = tuple(f"0000:{bus}:{slot}.0" for bus in ("10", "20", "90", "a0") for slot in ("1c", "1d"))
_P4_EFA = tuple(f"0000:{bus}:1b.0" for bus in ("10", "20", "90", "a0"))
_P4_RATES = (Rate(235.0, 0.022), Rate(78.8, 0.026))
_P5_RATES = (Rate(481.0, 0.033), Rate(490.0, 0.12))

_P4D = Hardware("NVIDIA A100-SXM4-40GB", "0x20b0", 40960, _P4_PCI, *_P4_RATES, 12, _P4_EFA, "0xefa1", 100, 1000)
_P5 = Hardware("NVIDIA H100 80GB HBM3", "0x2330", 81559, _P5_PCI, *_P5_RATES, 18, _before(_P5_PCI, 4), "0xefa2", 100, 3800)
_P5EN = replace(
    _P5,
    gpu_name="NVIDIA H200",
    device="0x2335",
    memory_mib=143771,
    node_rate=Rate(482.0, 0.03),
    efa=_before(_P5_PCI, 2),
    efa_device="0xefa3",
    efa_gbits=200,
)
_P6_B200 = replace(
    _P5EN,
    gpu_name="NVIDIA B200",
    device="0x2901",
    memory_mib=183359,
    node_rate=Rate(851.0, 0.18),
    group_rate=Rate(730.0, 0.27),
    efa=_before(_P5_PCI, 1),
    efa_gbits=400,
)

HARDWARE = {
    "p4d.24xlarge": _P4D,
    "p4de.24xlarge": replace(_P4D, gpu_name="NVIDIA A100-SXM4-80GB", device="0x20b2", memory_mib=81920),
    "p5.48xlarge": _P5,
    "p5en.48xlarge": _P5EN,
    "p6-b200.48xlarge": _P6_B200,
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
