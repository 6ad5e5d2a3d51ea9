"""The host itself: which boot, how long up, which instance type, how much memory is left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from checks.host import Host
from checks.model import Finding, Verdict

_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)
_INSTANCE_TYPE = re.compile(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")


@dataclass(frozen=True)
class HostState:
    """What the kernel says of itself. `uptime_s` and `memory_percent` (available) are None where they could not be read."""

    boot_id: str
    uptime_s: Optional[float]
    instance_type: str
    memory_percent: Optional[float]


def read_host(host: Host) -> HostState:
    """Read boot id, uptime, instance type (DMI product name: on Nitro instances that is the type) and memory."""
    product = host.read_text("/sys/devices/virtual/dmi/id/product_name") or ""
    return HostState(
        boot_id=host.read_text("/proc/sys/kernel/random/boot_id") or "",
        uptime_s=_uptime(host.read_text("/proc/uptime")),
        instance_type=product if _INSTANCE_TYPE.match(product) else "",
        memory_percent=_memory(host.read_text("/proc/meminfo")),
    )


def judge_host(state: HostState, min_memory_percent: float, at: float) -> list[Finding]:
    """Boot id and uptime must be readable: without them no evidence can be dated. Memory counts where it can be read."""
    if not state.boot_id or state.uptime_s is None:
        summary = "boot id or uptime could not be read, so evidence cannot be dated"
        findings = [Finding("host", Verdict.UNKNOWN, summary, seen_at=at)]
    else:
        findings = [Finding("host", Verdict.OK, f"up for {state.uptime_s / 3600:.1f} h", f"boot {state.boot_id}", at)]
    if state.memory_percent is not None and state.memory_percent < min_memory_percent:
        summary = f"{state.memory_percent:.1f} % of the system memory is available"
        findings.append(Finding("memory", Verdict.WARN, summary, f"threshold {min_memory_percent:g} %", at))
    return findings


def _uptime(text: Optional[str]) -> Optional[float]:
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def _memory(text: Optional[str]) -> Optional[float]:
    found = {name: int(kilobytes) for name, kilobytes in _MEMORY.findall(text or "")}
    if not found.get("MemTotal") or "MemAvailable" not in found:
        return None
    return 100.0 * found["MemAvailable"] / found["MemTotal"]
