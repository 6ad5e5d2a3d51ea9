"""Reads the fault lines that the NVIDIA driver prints: XID (GPU) and SXid (NVSwitch), old and new formats.

Only the shape of a line is known here; what a code means is the catalog's business.
"""

from __future__ import annotations

import re
from typing import Optional

from checks.kernel_log.envelope import Message, stamp_before
from checks.model import KernelEvent

_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_MIG = r"(?: GPU-I:(\d{1,4}))?(?: GPU-CI:(\d{1,4}))?"
_XID = re.compile(r"NVRM: Xid \(" + _PCI + _MIG + r"\): (\d{1,6})(?!\d)(?:, ?(.*))?", re.DOTALL)
_SXID = re.compile(r"SXid \(" + _PCI + r"\): (\d{1,6})(?!\d)(?:, ?(.*))?", re.DOTALL)
_PID = re.compile(r"pid=('?<unknown>'?|\d{1,10})(?:, |$)")
_NAME = re.compile(r"name=('?<unknown>'?|.{0,64}?)(?:, |$)", re.DOTALL)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,6})")
_RECOVERY = re.compile(r"from\s+0x([0-9a-fA-F]{1,8})\s*(?:\([^)]{0,80}\))?\s*to\s+0x([0-9a-fA-F]{1,8})")
_NVLINK5 = re.compile(r"\b(Fatal|Nonfatal|Non-fatal)\s+XC[01]\s+i[01]\s+Link\s+(-?\d{1,4})", re.IGNORECASE)
_LINK = re.compile(r"\blink\s+(-?\d{1,4})", re.IGNORECASE)
_SXID_SEVERITY = re.compile(r"(Fatal|Non-fatal|Correctable)\b", re.IGNORECASE)
_SXID_COMPANION = re.compile(r"(?:Severity \d|Data \{)")
_GPU_ADDRESS = re.compile(r"NVRM: GPU at " + _PCI + r": (GPU-[0-9a-fA-F-]{36})")

FAULT_WORD = "Xid"
"""Every XID and SXid line holds this."""

RECOVERY_ACTION_CHANGED = 154
"""The XID whose line carries the driver's recovery action as a number. Source: driver source, gpu.c."""


def parse_nvidia(message: Message) -> Optional[KernelEvent]:
    """Return the XID or SXid event that a message carries, None where it carries none or is malformed."""
    if FAULT_WORD not in message.text:
        return None
    match = _SXID.search(message.text)
    if match:
        return _sxid(message, match)
    match = _XID.search(message.text)
    return _xid(message, match) if match else None


def parse_gpu_address(line: str) -> Optional[tuple[str, str]]:
    """Return (PCI bus id, UUID) from the line that the driver prints once before a GPU's first XID, else None."""
    match = _GPU_ADDRESS.search(line)
    return (match.group(1), match.group(2)) if match else None


def _monotonic(message: Message, match: re.Match[str]) -> Optional[float]:
    return stamp_before(message.text, match.start()) if message.monotonic_s is None else message.monotonic_s


def _xid(message: Message, match: re.Match[str]) -> KernelEvent:
    pci, gpu_instance, compute_instance, code, rest = match.groups()
    pid, name, text = _process((rest or "").rstrip(' "\r\n\x00'))
    severity, link = _severity_and_link(text)
    before, after = _recovery(text) if int(code) == RECOVERY_ACTION_CHANGED else (None, None)
    caused_by = _CAUSED_BY.search(text)
    return KernelEvent(
        kind="xid",
        code=int(code),
        text=text,
        raw=message.text.strip(),
        pci=pci,
        pid=pid,
        name=name,
        severity=severity,
        link=link,
        monotonic_s=_monotonic(message, match),
        recovery_from=before,
        recovery_to=after,
        gpu_instance=int(gpu_instance) if gpu_instance else None,
        compute_instance=int(compute_instance) if compute_instance else None,
        caused_by=int(caused_by.group(1)) if caused_by else None,
    )


def _sxid(message: Message, match: re.Match[str]) -> KernelEvent:
    pci, code, rest = match.groups()
    text = (rest or "").rstrip(' "\r\n\x00')
    severity = _SXID_SEVERITY.match(text)
    link = _LINK.search(text)
    return KernelEvent(
        kind="sxid",
        code=int(code),
        text=text,
        raw=message.text.strip(),
        pci=pci,
        severity=severity.group(1) if severity else "",
        link=int(link.group(1)) if link else None,
        monotonic_s=_monotonic(message, match),
        companion=bool(_SXID_COMPANION.match(text)),
    )


def _process(rest: str) -> tuple[str, str, str]:
    """Split "pid=P, name=N, TEXT"; either may be absent, and unknown ones read as empty."""
    pid = name = ""
    match = _PID.match(rest)
    if match:
        pid, rest = match.group(1), rest[match.end() :]
    match = _NAME.match(rest)
    if match:
        name, rest = match.group(1), rest[match.end() :]
    return _known(pid), _known(name), rest


def _known(word: str) -> str:
    return "" if "<unknown>" in word else word


def _severity_and_link(text: str) -> tuple[str, Optional[int]]:
    nvlink5 = _NVLINK5.search(text)
    if nvlink5:
        return nvlink5.group(1), int(nvlink5.group(2))
    link = _LINK.search(text)
    return "", int(link.group(1)) if link else None


def _recovery(text: str) -> tuple[Optional[int], Optional[int]]:
    """Return the numbers of an XID 154 line; the words beside them changed between driver branches and are not read."""
    match = _RECOVERY.search(text)
    return (int(match.group(1), 16), int(match.group(2), 16)) if match else (None, None)
