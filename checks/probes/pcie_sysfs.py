"""PCIe as sysfs shows it: width and speed of the GPUs' links; error counters (AER) of GPUs, switches, network cards, disks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from checks.host import Host
from checks.model import Action, Finding, GpuRef, Verdict
from checks.pci_address import canonical
from checks.probes.kernel_numbers import decimal, whole
from checks.probes.looks import Looks
from checks.probes.pci import DEVICES, NVIDIA, PciDevice
from checks.probes.rates import rose, too_fast
from checks.thresholds import Thresholds

KINDS = {"0x0108": "NVMe disk", "0x0200": "network card", "0x0207": "InfiniBand card", "0x0680": "bridge"}
"""PCI classes whose errors matter for training; a bridge only if it is NVIDIA's: an NVSwitch. Source: PCI code assignment."""
AER_FILES = {"fatal": "aer_dev_fatal", "nonfatal": "aer_dev_nonfatal", "corrected": "aer_dev_correctable"}
"""Source: Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats."""
_SPEED = re.compile(r"^([0-9.]+) GT/s")
_WIDEST = 32
"""What is above is no width: a device that does not tell says 63 or 255. Source: PCI Express base specification, link width."""


@dataclass(frozen=True)
class PcieDevice:
    """One device. Widths in lanes and speeds in GT/s are None where they are not told; `errors` by kind, absent likewise."""

    address: str
    what: str
    width: Optional[int] = None
    width_max: Optional[int] = None
    speed: Optional[float] = None
    speed_max: Optional[float] = None
    errors: dict[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    @property
    def gpu(self) -> Optional[GpuRef]:
        """The GPU that it is, None for another device."""
        return GpuRef(pci=self.address) if self.what == "GPU" else None


def read_pcie(host: Host, devices: Sequence[PciDevice]) -> tuple[PcieDevice, ...]:
    """Read what matters of `devices`, which the bus was listed with."""
    return tuple(_read(host, device, what) for device in devices if (what := _what(device)))


def _what(device: PciDevice) -> str:
    if device.is_gpu:
        return "GPU"
    what = KINDS.get(device.kind[:6], "")
    if what == "bridge":
        return "NVSwitch" if device.vendor == NVIDIA else ""
    return what


def _read(host: Host, device: PciDevice, what: str) -> PcieDevice:
    folder = f"{DEVICES}/{device.name}"
    errors, unread = {}, []
    for kind, file in AER_FILES.items():
        text = host.read_text(f"{folder}/{file}")
        if text is None:
            unread += [file] if host.exists(f"{folder}/{file}") else []
            continue
        total = _total(text)
        if total is None:
            unread.append(file)
        else:
            errors[kind] = total
    address = canonical(device.name)
    if what != "GPU":
        return PcieDevice(address, what, errors=errors, unread=tuple(unread))
    widths = [_width(host.read_text(f"{folder}/{name}_link_width")) for name in ("current", "max")]
    speeds = [_speed(host.read_text(f"{folder}/{name}_link_speed")) for name in ("current", "max")]
    return PcieDevice(address, what, widths[0], widths[1], speeds[0], speeds[1], errors, tuple(unread))


def _total(text: str) -> Optional[int]:
    """The file's own total, else the sum of its lines; None for what is no such file."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        count = whole(number)
        if not name or count is None:
            return None
        counts[name] = count
    own = [count for name, count in counts.items() if name.startswith("TOTAL_ERR")]
    return own[-1] if own else sum(counts.values()) if counts else None


def _width(text: Optional[str]) -> Optional[int]:
    width = whole(text)
    return width if width is not None and 0 < width <= _WIDEST else None


def _speed(text: Optional[str]) -> Optional[float]:
    match = _SPEED.match(text or "")
    return decimal(match.group(1)) if match else None


def counters_of(devices: Sequence[PcieDevice]) -> Iterable[tuple[str, float]]:
    """Name every counter that later looks compare with."""
    for device in devices:
        yield from ((f"pcie/{device.address}/{kind}", count) for kind, count in device.errors.items())


def judge_pcie(
    devices: Sequence[PcieDevice],
    looks: Looks,
    limits: Thresholds,
    at: float,
    told_by_nvml: Collection[str] = (),
    busy: Collection[str] = (),
) -> list[Finding]:
    """Judge every device. GPUs in `told_by_nvml` had their link judged already; speed counts only for those in `busy`."""
    findings = []
    missed = [f"{one.address}: {', '.join(one.unread)}" for one in devices if one.unread]
    if missed:
        findings.append(Finding("pcie_aer", Verdict.UNKNOWN, "PCIe errors could not be read", "; ".join(missed)[:500], at))
    widest = max((one.width or 0 for one in devices if one.what == "GPU"), default=0)
    for device in devices:
        if device.what == "GPU" and device.address not in told_by_nvml:
            findings += _link(device, widest, device.address in busy, at)
        findings += _errors(device, looks, limits, at)
    watched = [one for one in devices if one.errors]
    if watched and not any(finding.check == "pcie_aer" for finding in findings):
        findings.append(Finding("pcie_aer", Verdict.OK, f"{len(watched)} PCIe devices count no errors that matter", seen_at=at))
    return findings


def _link(device: PcieDevice, widest: int, busy: bool, at: float) -> Iterable[Finding]:
    """An idle GPU lowers its speed by itself, never its width. GPUs that are all as narrow as the others sit in such slots."""
    below = []
    if device.width and device.width_max and device.width < device.width_max and (device.width < widest or device.width < 8):
        below.append(f"x{device.width} in place of x{device.width_max}")
    if busy and device.speed and device.speed_max and device.speed < device.speed_max:
        below.append(f"{device.speed:g} GT/s in place of {device.speed_max:g}")
    if below:
        summary = f"the GPU at {device.address} has a slow PCIe link: {', '.join(below)}"
        evidence = (
            f"sysfs: width {device.width} of {device.width_max}, speed {device.speed or '?'} of {device.speed_max or '?'} GT/s"
        )
        yield Finding("pcie_link", Verdict.WARN, summary, evidence, at, Action.REBOOT_NODE, None, device.gpu)


def _errors(device: PcieDevice, looks: Looks, limits: Thresholds, at: float) -> Iterable[Finding]:
    where = f"the {device.what} at {device.address}"
    name = f"pcie/{device.address}"
    fatal = device.errors.get("fatal", 0)
    if fatal:
        fresh = rose(looks, f"{name}/fatal", fatal, 0.0)
        verdict = Verdict.CRITICAL if fresh else Verdict.WARN
        evidence = f"aer_dev_fatal = {fatal} in this boot" + (
            f", +{fresh.amount:g} in {fresh.seconds / 60:.0f} min" if fresh else ""
        )
        summary = f"{where} had {fatal} fatal PCIe errors"
        yield Finding("pcie_aer", verdict, summary, evidence, at, Action.REBOOT_NODE, None, device.gpu)
    lost = rose(looks, f"{name}/nonfatal", device.errors.get("nonfatal", 0), 0.0)
    if lost:
        summary = f"{where} has new non-fatal PCIe errors: {lost.amount:g} in {lost.seconds / 60:.0f} min"
        evidence = f"aer_dev_nonfatal = {device.errors['nonfatal']}; in order: it does not rise"
        yield Finding("pcie_aer", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, device.gpu)
    limit = limits.pcie_corrected_per_min
    storm = too_fast(looks, f"{name}/corrected", device.errors.get("corrected", 0), limit / 60.0)
    if storm:
        summary = f"{where} corrects {storm.per_minute:.0f} PCIe errors a minute"
        evidence = f"aer_dev_correctable = {device.errors['corrected']}; threshold {limit:g} a minute"
        yield Finding("pcie_aer", Verdict.WARN, summary, evidence, at, Action.RUN_DIAGNOSTICS, None, device.gpu)
