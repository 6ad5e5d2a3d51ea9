"""Recognises the host's own fault lines: a GPU lost without any XID, driver start failures, machine checks, storage, memory.

Each rule has a signal name; what the signal means is in the catalog (`host_signals.csv`).
"""

from __future__ import annotations

import re
from typing import Optional

from checks.kernel_log.envelope import Message, stamp_before
from checks.kernel_log.host_patterns import PATTERNS, WORDS
from checks.model import KernelEvent

__all__ = ["PATTERNS", "WORDS", "parse_host", "probed_gpu"]

_PROBED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_PCI_IN_TEXT = re.compile(r"\b([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\b")
_REPORTED_DEVICE = re.compile(r"(?:received(?: from)?|source):? (?:id=)?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)")
_PROCESSES = (
    re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>.{0,64}?)\)(?:,| total-vm| score|\s*$)"),
    re.compile(r"Kill process (?P<pid>\d{1,10}) \((?P<name>.{0,64}?)\) score"),
    re.compile(r"oom-kill:.{0,2000},task=(?P<name>.{0,64}?),pid=(?P<pid>\d{1,10})"),
    re.compile(r"task (?P<name>.{1,64}):(?P<pid>\d{1,10}) .{0,40}blocked for"),
    re.compile(r"stuck for \d{1,6}s! \[(?P<name>.{1,64}):(?P<pid>\d{1,10})\]"),
    re.compile(r"(?P<name>[^\s\[]{1,64})\[(?P<pid>\d{1,10})\]: segfault at "),
)
_REQUESTER = re.compile(r"AER: .{0,60}\bid=([0-9a-fA-F]{4})\b|DPC: .{0,60}\bsource:0x([0-9a-fA-F]{4})\b")


def parse_host(message: Message, probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the host event that a message carries, else None.

    `probed_gpu` is the PCI bus id of the last "The NVIDIA GPU ..." line: the line that says it is lost does not repeat it.
    """
    signal, match = _match(message.text)
    if not match:
        return None
    pci = _REPORTED_DEVICE.search(message.text) or _PCI_IN_TEXT.search(message.text)
    process = next((found for found in (one.search(message.text) for one in _PROCESSES) if found), None)
    return KernelEvent(
        kind="host",
        code=None,
        text=message.text[match.start() :].strip(),
        raw=message.text.strip(),
        pci=_requester(message.text) or (pci.group(1) if pci else probed_gpu if signal == "gpu_lost_at_probe" else ""),
        pid=process["pid"] if process else "",
        name=process["name"] if process else "",
        monotonic_s=stamp_before(message.text, match.start()) if message.monotonic_s is None else message.monotonic_s,
        signal=signal,
        node=message.node,
        boot_id=message.boot_id,
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


def _requester(text: str) -> str:
    """Return the device that older kernels name by its requester id (bus, device, function in 16 bits), else empty."""
    found = _REQUESTER.search(text)
    number = int(found.group(1) or found.group(2), 16) if found else 0
    port = _PCI_IN_TEXT.search(text)
    if not number or not port:
        return ""
    return f"{port.group(1)[:4]}:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"
