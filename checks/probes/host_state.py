"""The host itself: which boot, how long up, which instance type, how much memory is left, how near the kernel's limits are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from checks.host import Host
from checks.model import Finding, Verdict
from checks.probes.kernel_numbers import decimal, whole

_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s+([0-9]{1,20}) kB", re.MULTILINE)
_INSTANCE_TYPE = re.compile(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")
_CONNECTIONS = "/proc/sys/net/netfilter/nf_conntrack"


@dataclass(frozen=True)
class Limit:
    """A table of the kernel that can become full."""

    name: str
    used: int
    most: int

    @property
    def percent(self) -> float:
        """How full it is."""
        return 100.0 * self.used / self.most if self.most else 0.0


@dataclass(frozen=True)
class HostState:
    """What the kernel says of itself. `uptime_s` and `memory_percent` (available) are None where they could not be read.

    `memory_unread` says that the kernel's account of memory is there but makes no sense.
    """

    boot_id: str
    uptime_s: Optional[float]
    instance_type: str
    memory_percent: Optional[float]
    limits: tuple[Limit, ...] = ()
    memory_unread: bool = False


def read_host(host: Host) -> HostState:
    """Read boot id, uptime, instance type (DMI product name: on Nitro instances that is the type), memory and limits."""
    product = host.read_text("/sys/devices/virtual/dmi/id/product_name") or ""
    account = host.read_text("/proc/meminfo")
    memory = _memory(account)
    return HostState(
        boot_id=host.read_text("/proc/sys/kernel/random/boot_id") or "",
        uptime_s=_uptime(host.read_text("/proc/uptime")),
        instance_type=product if _INSTANCE_TYPE.match(product) else "",
        memory_percent=memory,
        limits=tuple(_limits(host)),
        memory_unread=memory is None and host.exists("/proc/meminfo"),
    )


def judge_host(state: HostState, min_memory_percent: float, at: float, most_used_percent: float = 100.0) -> list[Finding]:
    """Boot id and uptime must be readable: without them no evidence can be dated. Memory and limits count where they are told."""
    if not state.boot_id or state.uptime_s is None:
        summary = "boot id or uptime could not be read, so evidence cannot be dated"
        findings = [Finding("host", Verdict.UNKNOWN, summary, seen_at=at)]
    else:
        findings = [Finding("host", Verdict.OK, f"up for {state.uptime_s / 3600:.1f} h", f"boot {state.boot_id}", at)]
    if state.memory_unread:
        findings.append(Finding("memory", Verdict.UNKNOWN, "the available memory could not be read", "/proc/meminfo", at))
    if state.memory_percent is not None and state.memory_percent < min_memory_percent:
        summary = f"{state.memory_percent:.1f} % of the system memory is available"
        findings.append(Finding("memory", Verdict.WARN, summary, f"threshold {min_memory_percent:g} %", at))
    for limit in state.limits:
        if limit.percent > most_used_percent:
            summary = f"the kernel's table of {limit.name} is {limit.percent:.0f} % full; raise its limit"
            evidence = f"{limit.used} of {limit.most}; threshold {most_used_percent:g} %"
            findings.append(Finding("limits", Verdict.WARN, summary, evidence, at))
    return findings


def _limits(host: Host) -> Iterable[Limit]:
    files = (host.read_text("/proc/sys/fs/file-nr") or "").split()
    connections = [host.read_text(f"{_CONNECTIONS}_{name}") for name in ("count", "max")]
    opened = (files[0], files[2]) if len(files) == 3 else (None, None)
    for name, pair in (("open files", opened), ("network connections", connections)):
        used, most = map(whole, pair)
        if used is not None and most is not None:
            yield Limit(name, used, most)


def _uptime(text: Optional[str]) -> Optional[float]:
    words = (text or "").split()
    return decimal(words[0]) if words else None


def _memory(text: Optional[str]) -> Optional[float]:
    found = {name: int(kilobytes) for name, kilobytes in _MEMORY.findall(text or "")}
    if not found.get("MemTotal") or "MemAvailable" not in found:
        return None
    return 100.0 * found["MemAvailable"] / found["MemTotal"]
