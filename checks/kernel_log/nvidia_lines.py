"""Reads the fault lines that NVIDIA's driver and Fabric Manager print: XID (GPU) and SXid (NVSwitch), old and new formats.

Only the shape of a line is known here; what a code means is the catalog's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from checks.kernel_log.envelope import Message, stamp_before
from checks.model import KernelEvent

_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
_MIG = r"(?:[ ,]{1,2}GPU-I:(\d{1,4}))?(?:[ ,]{1,2}GPU-CI:(\d{1,4}))?"
_HEADER = re.compile(r"Xid \((PCI:)?(" + _ADDRESS + r")" + _MIG + r"\):\s{0,2}(\d{1,6})(?!\d)\s{0,2}[,:]?\s?")
_NEXT_LINE = re.compile(r"\s*(?:<\d{1,3}>)?(?:\[\s*\d{1,12}\.\d{1,9}\]\s*(?:\[\s*[TC]\d+\]\s*)?)?(?:nvidia-nvswitch\d+:\s*)?$")
_TAIL = re.compile(r'\\*"\s*(?:[,}\]]+\s*(?:".*)?)?$', re.DOTALL)
_PID = re.compile(r"pid=(['\"]?)(<unknown>|-?\d{1,10})\1(?:,\s|,?$)")
_BEGINNING = (
    r"(?:[Cc]h(?:annel)?(?: ID)? |ChI[dD]|GPU |Graphics |Row Remapper|An uncorrectable|(?:Unc|C)ontained: |NVLink: |Timeout |GSP "
    r"|Class Error)"
)
_NAME_WITH_COMMA = re.compile(r"name=([^'\"].{0,14}?), (?=" + _BEGINNING + ")", re.DOTALL)
"""A name is unquoted and has up to 15 letters, commas too: it ends where a text begins, if one of the usual ones is near."""

_NAME = re.compile(r"name=(?:(['\"])(.{0,64}?)\1|(.{0,64}?))(?:,\s|,?$)", re.DOTALL)
_CAUSED_BY = re.compile(r"caused by previous Xid:? (\d{1,6})")
_RECOVERY = re.compile(r"from\s+0x([0-9a-fA-F]{1,8})\s*(?:\([^)]{0,80}\))?\s*to\s+0x([0-9a-fA-F]{1,8})")
_NVLINK5 = re.compile(r"\b(Fatal|Nonfatal|Non-fatal)\s+XC\d\s+i\d\s+Link\s+(-?\d{1,4})", re.IGNORECASE)
_LINK = re.compile(r"\blink\s+(-?\d{1,4})", re.IGNORECASE)
_SXID_SEVERITY = re.compile(r"(Fatal|Non-?fatal|Correctable)\b", re.IGNORECASE)
_SXID_COMPANION = re.compile(r"(?:Severity \d|Data \{)")
_GPU_ADDRESS = re.compile(r"NVRM: GPU at (?:PCI:)?(" + _ADDRESS + r"): (GPU-[0-9a-fA-F-]{36})")
_FABRIC_MANAGER = re.compile(
    r"detected NVSwitch (non-)?fatal error (\d{1,6})(?!\d)(?:.{0,80}?pci bus id (" + _ADDRESS + r"))?(?:.{0,60}?port (\d{1,3}))?"
)

FAULT_WORDS = ("Xid (", "detected NVSwitch ")
"""Every XID and SXid line holds one of these."""

CONTINUED = 31
"""The XID whose text goes on in the next lines, which bear no "NVRM:". Source: driver print format."""

CONTINUATION = re.compile(r"(?:^|[\]:>\s])(MMU Fault: |Fault is of type )")
"""The lines that carry on an XID 31."""

RECOVERY_ACTION_CHANGED = 154
"""The XID whose line carries the driver's recovery action as a number. Source: driver source, gpu.c."""


def parse_nvidia(message: Message) -> list[KernelEvent]:
    """Return the XID and SXid events that a message carries; more than one where lines were written into each other."""
    text = message.text
    if FAULT_WORDS[0] in text:
        headers = list(_headers(text))
        ends = [header.start for header in headers[1:]] + [len(text)]
        rests = [text[header.match.end() : end] for header, end in zip(headers, ends)]
        whole = [_NEXT_LINE.sub("", rest) for rest in rests[:-1]] + rests[-1:]
        return [_event(message, header, rest) for header, rest in zip(headers, whole)]
    if FAULT_WORDS[1] in text:
        found = _FABRIC_MANAGER.search(text)
        return [_from_fabric_manager(message, found)] if found else []
    return []


class _Header(NamedTuple):
    """The beginning of a fault line, up to its code. `start` is where the driver's name stands, or would stand."""

    start: int
    match: re.Match[str]
    of_switch: bool


def _headers(text: str) -> Iterator[_Header]:
    """Find the beginnings of fault lines. One that lost the driver's name still counts if it says that its address is PCI's."""
    place = text.find(FAULT_WORDS[0])
    while place >= 0:
        match = _HEADER.match(text, place)
        if match:
            before = text[max(0, place - 10) : place].rstrip()
            if before.endswith("S"):
                yield _Header(place - 1, match, of_switch=True)
            elif before.endswith("NVRM:"):
                yield _Header(text.rindex("NVRM:", 0, place), match, of_switch=False)
            elif match.group(1):
                yield _Header(place, match, of_switch=False)
        place = text.find(FAULT_WORDS[0], place + 1)


def parse_gpu_address(line: str) -> Optional[tuple[str, str]]:
    """Return (PCI bus id, UUID) from the line that the driver prints once before a GPU's first XID, else None."""
    match = _GPU_ADDRESS.search(line)
    return (match.group(1), match.group(2)) if match else None


def _event(message: Message, header: _Header, rest: str) -> KernelEvent:
    if '"' in rest:
        rest = _TAIL.sub("", rest)
    rest = rest.rstrip(" \r\n\x00")
    return _sxid(message, header, rest) if header.of_switch else _xid(message, header, rest)


def _monotonic(message: Message, start: int) -> Optional[float]:
    return stamp_before(message.text, start) if message.monotonic_s is None else message.monotonic_s


def _xid(message: Message, header: _Header, rest: str) -> KernelEvent:
    _, pci, gpu_instance, compute_instance, code = header.match.groups()
    pid, name, text = _process(rest)
    severity, link = _severity_and_link(text)
    before, after = _recovery(text) if int(code) == RECOVERY_ACTION_CHANGED else (None, None)
    caused_by = _CAUSED_BY.search(text) if "caused by" in text else None
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
        monotonic_s=_monotonic(message, header.start),
        recovery_from=before,
        recovery_to=after,
        gpu_instance=int(gpu_instance) if gpu_instance else None,
        compute_instance=int(compute_instance) if compute_instance else None,
        caused_by=int(caused_by.group(1)) if caused_by else None,
        node=message.node,
        boot_id=message.boot_id,
    )


def _sxid(message: Message, header: _Header, text: str) -> KernelEvent:
    severity = _SXID_SEVERITY.match(text)
    link = _LINK.search(text)
    return KernelEvent(
        kind="sxid",
        code=int(header.match.group(5)),
        text=text,
        raw=message.text.strip(),
        pci=header.match.group(2),
        severity=severity.group(1) if severity else "",
        link=int(link.group(1)) if link else None,
        monotonic_s=_monotonic(message, header.start),
        companion=bool(_SXID_COMPANION.match(text)),
        node=message.node,
        boot_id=message.boot_id,
    )


def _from_fabric_manager(message: Message, found: re.Match[str]) -> KernelEvent:
    """Fabric Manager retells a switch's fault in its own log, which may be all that is at hand."""
    contained, code, pci, port = found.groups()
    return KernelEvent(
        kind="sxid",
        code=int(code),
        text=message.text[found.start() :].strip(),
        raw=message.text.strip(),
        pci=pci or "",
        severity="Non-fatal" if contained else "Fatal",
        link=int(port) if port else None,
        monotonic_s=_monotonic(message, found.start()),
        node=message.node,
        boot_id=message.boot_id,
    )


def _process(rest: str) -> tuple[str, str, str]:
    """Split "pid=P, name=N, TEXT"; either may be absent or quoted, and unknown ones read as empty."""
    pid = name = ""
    match = _PID.match(rest)
    if match:
        pid, rest = match.group(2), rest[match.end() :].lstrip(" ")
    usual = _NAME_WITH_COMMA.match(rest)
    match = None if usual else _NAME.match(rest)
    if usual:
        name, rest = usual.group(1), rest[usual.end() :]
    elif match:
        name, rest = match.group(3) if match.group(2) is None else match.group(2), rest[match.end() :].lstrip(" ")
    return _known(pid), _known(name), rest


def _known(word: str) -> str:
    return "" if "<unknown>" in word else word


def _severity_and_link(text: str) -> tuple[str, Optional[int]]:
    if "ink" not in text:
        return "", None
    nvlink5 = _NVLINK5.search(text)
    if nvlink5:
        return nvlink5.group(1), int(nvlink5.group(2))
    link = _LINK.search(text)
    return "", int(link.group(1)) if link else None


def _recovery(text: str) -> tuple[Optional[int], Optional[int]]:
    """Return the numbers of an XID 154 line; the words beside them changed between driver branches and are not read."""
    match = _RECOVERY.search(text)
    return (int(match.group(1), 16), int(match.group(2), 16)) if match else (None, None)
