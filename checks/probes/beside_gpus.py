"""Everything of a node beside its GPUs: links, PCIe, memory, disks, services, clock; read together, judged together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from checks.host import Host
from checks.model import Finding
from checks.pci_address import canonical
from checks.probes import edac, infiniband_findings, pcie_sysfs, storage
from checks.probes.clock import Clock, judge_clock, start_clock
from checks.probes.infiniband import Rdma, read_infiniband
from checks.probes.looks import Looks
from checks.probes.pci import PciDevice
from checks.probes.rates import worth_noting
from checks.probes.readings import OK, GpuReadings, NvmlState
from checks.probes.services import Services, judge_services, start_services
from checks.thresholds import Thresholds

IDLE = 0x1
"""Bit of the clocks event reasons that says that nothing runs. Source: nvml.h."""


@dataclass(frozen=True)
class BesideGpus:
    """One look at all of it."""

    rdma: Rdma
    pcie: tuple[pcie_sysfs.PcieDevice, ...]
    memory: edac.Edac
    storage: storage.Storage
    services: Services
    clock: Clock


def start_reading(host: Host, limits: Thresholds) -> Callable[[Sequence[PciDevice]], BesideGpus]:
    """Start the commands at once; what is returned reads the rest, of these PCI devices, while they run."""
    services = start_services(host, limits.command_deadline_s)
    clock = start_clock(host, limits.command_deadline_s)
    return lambda devices: BesideGpus(
        rdma=read_infiniband(host, devices),
        pcie=pcie_sysfs.read_pcie(host, devices),
        memory=edac.read_edac(host),
        storage=storage.read_storage(host, limits.mount_deadline_s),
        services=services(),
        clock=clock(),
    )


def judge_beside_gpus(
    seen: BesideGpus, nvml: NvmlState, instance_type: str, looks: Looks, limits: Thresholds, at: float, uptime_s: Optional[float]
) -> list[Finding]:
    """Return all findings, and remember in `looks` what the next look compares with."""
    told = {_address(gpu) for gpu in nvml.gpus if gpu.get("pcie_width").state == OK}
    names = sorted({gpu.get("name").text() for gpu in nvml.gpus})
    busy = {_address(gpu) for gpu in nvml.gpus if _works(gpu)}
    findings = [
        *infiniband_findings.judge_infiniband(seen.rdma, instance_type, looks, limits, at, uptime_s, names),
        *pcie_sysfs.judge_pcie(seen.pcie, looks, limits, at, told, busy),
        *edac.judge_edac(seen.memory, looks, limits, at),
        *storage.judge_storage(seen.storage, looks, limits, at),
        *judge_services(seen.services, instance_type, _persistence(nvml), at, uptime_s),
        *judge_clock(seen.clock, limits.max_clock_offset_s, at, uptime_s),
    ]
    if worth_noting(uptime_s):
        counters = (
            *infiniband_findings.counters_of(seen.rdma),
            *pcie_sysfs.counters_of(seen.pcie),
            *edac.counters_of(seen.memory),
        )
        for name, value in counters:
            looks.note(name, value)
    infiniband_findings.note_links(seen.rdma, looks)
    storage.note_mounts(seen.storage, looks)
    return findings


def _address(gpu: GpuReadings) -> str:
    return canonical(gpu.get("pci").text())


def _works(gpu: GpuReadings) -> bool:
    """Say whether a GPU runs something: a process alone may wait, clocks that are not idle do not."""
    reasons = gpu.get("clocks_event_reasons").number()
    return reasons is not None and not reasons & IDLE


def _persistence(nvml: NvmlState) -> Optional[bool]:
    """Say whether persistence mode is on everywhere, None where it was not told."""
    modes = [gpu.get("persistence_mode").number() for gpu in nvml.gpus]
    known = [mode for mode in modes if mode is not None]
    return all(known) if known else None
