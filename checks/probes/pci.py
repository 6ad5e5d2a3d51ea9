"""GPUs as the PCI bus lists them, compared with what NVML counts and what the instance type has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from checks.catalog import expected_gpus
from checks.host import Host
from checks.model import Action, Finding, GpuRef, Verdict
from checks.pci_address import canonical
from checks.probes.readings import OK, NvmlState

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""PCI classes of a GPU: VGA and 3D controller; NVSwitches have another. Source: PCI code and ID assignment specification."""


@dataclass(frozen=True)
class PciDevice:
    """One device of the bus as sysfs names it, its vendor and its class code, both in hex."""

    name: str
    vendor: str
    kind: str

    @property
    def is_gpu(self) -> bool:
        """Say whether it is a GPU of NVIDIA."""
        return self.vendor == NVIDIA and self.kind.startswith(GPU_CLASSES)


@dataclass(frozen=True)
class PciGpus:
    """GPUs on the bus. `readable` is False where sysfs is missing; `dead` are those whose configuration space reads all ones.

    `devices` is everything on the bus.
    """

    readable: bool
    addresses: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    devices: tuple[PciDevice, ...] = ()


def read_pci(host: Host) -> PciGpus:
    """List what is on the bus, and the GPUs among it."""
    names = host.list(DEVICES)
    if names is None:
        return PciGpus(False)
    devices = tuple(_device(host, name) for name in names)
    addresses, dead = [], []
    for name in (device.name for device in devices if device.is_gpu):
        addresses.append(canonical(name))
        # A device that is gone answers every read with ones, while sysfs still shows the values it had.
        if host.read_bytes(f"{DEVICES}/{name}/config", 4) == b"\xff\xff\xff\xff":
            dead.append(canonical(name))
    return PciGpus(True, tuple(addresses), tuple(dead), devices)


def _device(host: Host, name: str) -> PciDevice:
    vendor, kind = (host.read_text(f"{DEVICES}/{name}/{file}") or "" for file in ("vendor", "class"))
    return PciDevice(name, vendor, kind)


def judge_pci(pci: PciGpus, nvml: NvmlState, instance_type: str, expected_override: int, at: float) -> list[Finding]:
    """Compare the counts. A GPU can be gone without any XID, so a missing one is a finding of its own."""
    if not pci.readable:
        return [Finding("gpu_count", Verdict.UNKNOWN, f"the PCI bus could not be listed ({DEVICES})", seen_at=at)]
    return [*(_dead(address, at) for address in pci.dead), _count(pci, nvml, instance_type, expected_override, at)]


def _dead(address: str, at: float) -> Finding:
    summary = f"the GPU at {address} does not answer on PCIe"
    evidence = "its configuration space reads all ones"
    return Finding("pci_dead", Verdict.CRITICAL, summary, evidence, at, Action.REBOOT_NODE, None, GpuRef(pci=address))


def _count(pci: PciGpus, nvml: NvmlState, instance_type: str, expected_override: int, at: float) -> Finding:
    on_bus = len(pci.addresses)
    expected = expected_override or expected_gpus(instance_type)
    answering = sum(gpu.get("handle").state == OK for gpu in nvml.gpus) if nvml.outcome == "read" else None
    evidence = f"PCI {on_bus}, NVML {_words(answering)}, expected {_words(expected)} ({instance_type or 'type not known'})"
    seen = on_bus if answering is None else min(answering, on_bus)
    wanted = max(on_bus, expected or 0)
    if nvml.outcome == "read" and not nvml.gpus and on_bus == wanted > 0:
        # GPUs fail one by one; a driver library that knows of none at all is too old, too new or not up yet.
        summary = (
            f"NVML lists none of the {on_bus} GPUs that are on the bus: the reader or the driver is in question, not the GPUs"
        )
        return Finding("gpu_count", Verdict.UNKNOWN, summary, evidence, at)
    if seen < wanted:
        summary = f"{seen} of {wanted} GPUs are there"
        return Finding("gpu_count", Verdict.CRITICAL, summary, evidence, at, Action.REBOOT_NODE, None, _missing(pci, nvml))
    if wanted == 0:
        return Finding("gpu_count", Verdict.UNKNOWN, "no GPU is on the bus and none is known to belong there", evidence, at)
    summary = f"all {seen} GPUs are on the bus" + (
        " and answer" if answering is not None else "; whether they answer was not asked"
    )
    return Finding("gpu_count", Verdict.OK, summary, evidence, at)


def _words(count: Optional[int]) -> str:
    return "not known" if count is None else str(count)


def _missing(pci: PciGpus, nvml: NvmlState) -> Optional[GpuRef]:
    """Name the GPU that NVML misses, where it is exactly one."""
    if nvml.outcome != "read":
        return None
    answered = {canonical(gpu.get("pci").text()) for gpu in nvml.gpus if gpu.get("pci").state == OK}
    missing = [address for address in pci.addresses if address not in answered]
    return GpuRef(pci=missing[0]) if len(missing) == 1 else None
