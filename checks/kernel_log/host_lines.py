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
_PROCESS = re.compile(r"(?:Killed process (\d{1,10}) \(([^)]{0,64})\)|task (.{1,64}):(\d{1,10}) )")


def parse_host(message: Message, probed_gpu: str = "") -> Optional[KernelEvent]:
    """Return the host event that a message carries, else None.

    `probed_gpu` is the PCI bus id of the last "The NVIDIA GPU ..." line: the line that says it is lost does not repeat it.
    """
    signal, match = _match(message.text)
    if not match:
        return None
    pci = _REPORTED_DEVICE.search(message.text) or _PCI_IN_TEXT.search(message.text)
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
