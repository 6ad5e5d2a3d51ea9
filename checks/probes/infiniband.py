"""Reads RDMA ports from sysfs: InfiniBand, RoCE and EFA, their state, rate and the counters that tell of trouble."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from checks.host import Host
from checks.probes.kernel_numbers import decimal, whole
from checks.probes.pci import PciDevice

ROOT = "/sys/class/infiniband"
AMAZON = "0x1d0f"
MELLANOX = "0x15b3"
_EFA_DEVICE = re.compile(r"^0xefa[0-9a-f]$")
"""PCI device ids of EFA, one per generation. Source: Linux, drivers/infiniband/hw/efa."""
_RATE = re.compile(r"^([0-9.]+)\s*Gb/sec")
_BRIDGE_MARK = b"SW_MNG"
"""What the vital product data of a board's NVSwitch bridge says. Source: NVIDIA Fabric Manager user guide, DU-09883-001."""

IB_COUNTERS: dict[str, tuple[str, ...]] = {
    "counters": (
        *("link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors", "symbol_error"),
        *("link_error_recovery", "port_rcv_errors", "port_xmit_discards"),
    ),
    "hw_counters": ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart"),
}
EFA_COUNTERS: dict[str, tuple[str, ...]] = {
    "hw_counters": (
        *("retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events", "rx_drops"),
        *("rdma_read_wr_err", "rdma_write_wr_err"),
    )
}
"""Counters by folder. Sources: Linux, Documentation/ABI/stable/sysfs-class-infiniband and the EFA driver's hw_counters."""


@dataclass(frozen=True)
class RdmaPort:
    """One port. Numbers before the colon in `state` and `phys_state`, None where they could not be read.

    `kind` is "efa", "infiniband" or "ethernet" (RoCE). `bridge` marks the board's own way to its NVSwitches: no network card.
    """

    device: str
    port: int
    kind: str
    model: str = ""
    state: Optional[int] = None
    phys_state: Optional[int] = None
    rate_gbits: Optional[float] = None
    counters: dict[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    bridge: bool = False

    @property
    def place(self) -> str:
        """The port's name for people, and the start of its counters' names."""
        return f"{self.device}/{self.port}"


@dataclass(frozen=True)
class Rdma:
    """All ports. `error` says why they could not be listed; `efa_functions` are EFA devices that the PCI bus has."""

    ports: tuple[RdmaPort, ...] = ()
    efa_functions: int = 0
    error: str = ""


def read_infiniband(host: Host, devices: Sequence[PciDevice]) -> Rdma:
    """Read every RDMA port. A node without any is no error: it has none, or its driver is not loaded."""
    amazon = [one.name for one in devices if one.vendor == AMAZON]
    functions = sum(_is_efa(host.read_text(f"/sys/bus/pci/devices/{name}/device")) for name in amazon)
    names = host.list(ROOT)
    if names is None:
        error = f"{ROOT} is there but could not be listed" if host.exists(ROOT) else ""
        return Rdma(efa_functions=functions, error=error)
    ports = tuple(port for name in names for port in _ports(host, name))
    return Rdma(ports, functions)


def _is_efa(device: Optional[str]) -> bool:
    return bool(device and _EFA_DEVICE.match(device))


def _ports(host: Host, name: str) -> list[RdmaPort]:
    folder = f"{ROOT}/{name}"
    vendor, model = (host.read_text(f"{folder}/device/{file}") or "" for file in ("vendor", "device"))
    efa = vendor == AMAZON and _is_efa(model)
    numbers = host.list(f"{folder}/ports")
    if numbers is None:
        return [RdmaPort(name, 0, "efa" if efa else "infiniband", model, unread=("ports",))]
    bridge = vendor == MELLANOX and _BRIDGE_MARK in (host.read_bytes(f"{folder}/device/vpd", 4096) or b"")
    return [_port(host, name, number, model, efa, bridge) for number in map(whole, numbers) if number is not None]


def _port(host: Host, device: str, number: int, model: str, efa: bool, bridge: bool) -> RdmaPort:
    folder = f"{ROOT}/{device}/ports/{number}"
    state, phys = (_number_of(host.read_text(f"{folder}/{file}")) for file in ("state", "phys_state"))
    layer = (host.read_text(f"{folder}/link_layer") or "").lower()
    kind = "efa" if efa else "ethernet" if layer == "ethernet" else "infiniband"
    rate = _RATE.match(host.read_text(f"{folder}/rate") or "")
    counters, unread = _counters(host, folder, EFA_COUNTERS if efa else IB_COUNTERS)
    if state is None:
        unread = ["state", *unread]
    if not efa:
        counters.update(_carrier(host, device, kind))
    gbits = decimal(rate.group(1)) if rate else None
    return RdmaPort(device, number, kind, model, state, phys, gbits, counters, tuple(unread), bridge)


def _counters(host: Host, port: str, wanted: dict[str, tuple[str, ...]]) -> tuple[dict[str, int], list[str]]:
    """Read the counters that a port has. Drivers differ in what they count: an absent one is nothing, nor one that they refuse.

    Source: Linux, drivers/infiniband/core/sysfs.c, which prints "N/A" or fails where the device has no such counter.
    """
    read, unread, refused = {}, [], []
    for folder, names in wanted.items():
        there = set(host.list(f"{port}/{folder}") or ())
        for name in names:
            if name not in there:
                continue
            text = host.read_text(f"{port}/{folder}/{name}")
            value = whole(text)
            if value is not None:
                read[name] = value
            elif text is None:
                refused.append(name)
            elif not text.startswith("N/A"):
                unread.append(name)
    return read, unread if read else [*unread, *refused]


def _carrier(host: Host, device: str, kind: str) -> dict[str, int]:
    """How often the network interface of a RoCE port lost or found its carrier."""
    if kind != "ethernet":
        return {}
    interfaces = host.list(f"{ROOT}/{device}/device/net") or []
    texts = [host.read_text(f"{ROOT}/{device}/device/net/{name}/carrier_changes") for name in interfaces]
    numbers = [number for number in map(whole, texts) if number is not None]
    return {"carrier_changes": sum(numbers)} if numbers else {}


def _number_of(text: Optional[str]) -> Optional[int]:
    """The number of a line such as "4: ACTIVE"."""
    return whole((text or "").split(":", 1)[0].strip())
