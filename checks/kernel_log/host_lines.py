"""Recognises the kernel's own fault lines: a GPU lost without any XID, driver start failures, machine checks, storage, memory.

Each rule has a signal name; what the signal means is in the catalog (`host_signals.csv`).
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from checks.kernel_log.envelope import Message, stamp_before
from checks.model import KernelEvent


class Pattern(NamedTuple):
    """How a host fault line looks. Every line that `regex` matches holds one of `words`: a quick search comes first."""

    words: tuple[str, ...]
    regex: re.Pattern[str]


def _pattern(regex: str, *words: str) -> Pattern:
    return Pattern(words, re.compile(regex))


PATTERNS: dict[str, Pattern] = {
    "gpu_lost_at_probe": _pattern(r"NVRM: fallen off the bus and is not responding to commands", "NVRM: fallen off"),
    "wpr2_latched": _pattern(r"NVRM: .{0,200}unexpected WPR2 already up", "WPR2 already up"),
    "driver_start_failed": _pattern(r"NVRM: .{0,200}RmInitAdapter failed!", "RmInitAdapter failed!"),
    "gpu_reset_required": _pattern(r"NVRM: .{0,200}NV_ERR_RESET_REQUIRED", "NV_ERR_RESET_REQUIRED"),
    "driver_mismatch": _pattern(r"NVRM: API mismatch", "NVRM: API mismatch"),
    "inforom_corrupted": _pattern(r"infoROM is corrupted at gpu", "infoROM is corrupted"),
    "machine_check_uncorrected": _pattern(r"\[Hardware Error\]: event severity: (?:recoverable|fatal)", "[Hardware Error]"),
    "machine_check": _pattern(r"mce: \[Hardware Error\]", "[Hardware Error]"),
    "memory_uncorrected": _pattern(r"EDAC MC\d+: \d+ UE ", "EDAC MC"),
    "pcie_fatal": _pattern(
        r"(?:AER: Uncorrected \(Fatal\) error|PCIe Bus Error: severity=Uncorrected \(Fatal\))", "Uncorrected (Fatal)"
    ),
    "lockup": _pattern(r"(?:soft lockup - CPU#\d+ stuck for|Watchdog detected hard LOCKUP)", "soft lockup", "hard LOCKUP"),
    "kernel_bug": _pattern(r"(?:Kernel panic|BUG: unable to handle)", "Kernel panic", "BUG: unable"),
    "storage_lost": _pattern(
        r"(?:Disabling device after reset failure|XFS .{0,80}Shutting down filesystem|EXT4-fs error"
        r"|Remounting filesystem read-only)",
        "after reset failure",
        "Shutting down filesystem",
        "EXT4-fs error",
        "Remounting filesystem",
    ),
    "out_of_memory": _pattern(r"(?:Out of memory: |Memory cgroup out of memory: )?Killed process \d+ \(", "Killed process"),
    "hung_task": _pattern(r"task .{1,80}:\d+ .{0,40}blocked for more than \d+ seconds", "blocked for more than"),
}
"""Signal name to the pattern of its line. Sources: kernel and driver print formats as gathered in `host_signals.csv`."""

WORDS = tuple(dict.fromkeys(word for pattern in PATTERNS.values() for word in pattern.words))
"""Every host fault line holds one of these."""

_PROBED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_PCI_IN_TEXT = re.compile(r"\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\b")
_PROCESS = re.compile(r"(?:Killed process (\d{1,10}) \(([^)]{0,64})\)|task (.{1,64}):(\d{1,10}) )")


def parse_host(message: Message, probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the host event that a message carries, else None.

    `probed_gpu` is the PCI bus id of the last "The NVIDIA GPU ..." line: the line that says it is lost does not repeat it.
    """
    signal, match = _match(message.text)
    if not match:
        return None
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


def _match(text: str) -> tuple[str, Optional[re.Match[str]]]:
    for signal, pattern in PATTERNS.items():
        if any(word in text for word in pattern.words):
            match = pattern.regex.search(text)
            if match:
                return signal, match
    return "", None


def probed_gpu(line: str) -> str:
    """Return the PCI bus id of a "The NVIDIA GPU ..." line, the first of the three lines of a GPU lost at probe, else empty."""
    match = _PROBED_GPU.search(line)
    return match.group(1) if match else ""
