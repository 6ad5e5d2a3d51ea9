"""Recognises the kernel's own fault lines: a GPU lost without any XID, driver start failures, machine checks, storage, memory.

Each rule has a signal name; what the signal means is in the catalog (`host_signals.csv`).
"""

from __future__ import annotations

import re
from typing import Optional

from checks.kernel_log.envelope import Message, stamp_before
from checks.model import KernelEvent

PATTERNS: dict[str, str] = {
    "gpu_lost_at_probe": r"NVRM: fallen off the bus and is not responding to commands",
    "wpr2_latched": r"NVRM: .{0,200}unexpected WPR2 already up",
    "driver_start_failed": r"NVRM: .{0,200}RmInitAdapter failed!",
    "gpu_reset_required": r"NVRM: .{0,200}NV_ERR_RESET_REQUIRED",
    "driver_mismatch": r"NVRM: API mismatch",
    "inforom_corrupted": r"infoROM is corrupted at gpu",
    "machine_check_uncorrected": r"\[Hardware Error\]: event severity: (?:recoverable|fatal)",
    "machine_check": r"mce: \[Hardware Error\]",
    "memory_uncorrected": r"EDAC MC\d+: \d+ UE ",
    "pcie_fatal": r"(?:AER: Uncorrected \(Fatal\) error|PCIe Bus Error: severity=Uncorrected \(Fatal\))",
    "lockup": r"(?:soft lockup - CPU#\d+ stuck for|Watchdog detected hard LOCKUP)",
    "kernel_bug": r"(?:Kernel panic|BUG: unable to handle)",
    "storage_lost": (
        r"(?:Disabling device after reset failure|XFS .{0,80}Shutting down filesystem|EXT4-fs error"
        r"|Remounting filesystem read-only)"
    ),
    "out_of_memory": r"(?:Out of memory: |Memory cgroup out of memory: )?Killed process \d+ \(",
    "hung_task": r"task .{1,80}:\d+ .{0,40}blocked for more than \d+ seconds",
}
"""Signal name to the pattern of its line. Sources: kernel and driver print formats as gathered in `host_signals.csv`."""

_ANY = re.compile("|".join(f"(?P<{signal}>{pattern})" for signal, pattern in PATTERNS.items()))
_PROBED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_PCI_IN_TEXT = re.compile(r"\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\b")
_PROCESS = re.compile(r"(?:Killed process (\d{1,10}) \(([^)]{0,64})\)|task (.{1,64}):(\d{1,10}) )")


def parse_host(message: Message, probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the host event that a message carries, else None.

    `probed_gpu` is the PCI bus id of the last "The NVIDIA GPU ..." line: the line that says it is lost does not repeat it.
    """
    match = _ANY.search(message.text)
    if not match:
        return None
    signal = match.lastgroup or ""
    pci = _PCI_IN_TEXT.search(message.text)
    process = _PROCESS.search(message.text)
    return KernelEvent(
        kind="host",
        code=None,
        text=message.text[match.start() :].strip(),
        raw=message.text.strip(),
        pci=pci.group(1) if pci else probed_gpu if signal == "gpu_lost_at_probe" else "",
        pid=(process.group(1) or process.group(4)) if process else "",
        name=(process.group(2) or process.group(3)) if process else "",
        monotonic_s=stamp_before(message.text, match.start()) if message.monotonic_s is None else message.monotonic_s,
        signal=signal,
    )


def probed_gpu(line: str) -> str:
    """Return the PCI bus id of a "The NVIDIA GPU ..." line, the first of the three lines of a GPU lost at probe, else empty."""
    match = _PROBED_GPU.search(line)
    return match.group(1) if match else ""
