"""Joins what container engines part: a long line is several records, of which all but the last are marked as partial."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([PF]) ")
_DOCKER = re.compile(rb'\{\s?"log":\s?"')
_DOCKER_END = re.compile(rb'",\s?"stream":\s?"(stdout|stderr)"')
_DOCKER_WHOLE = b'\\n","stream":"'
_PARTIAL = (b" stdout P ", b" stderr P ")

HELD = 1 << 20
"""Bytes of one joined line; a longer one goes on as it is. Hotspare default, as for any line."""


class _Record(NamedTuple):
    """One record: whose output it is, whether its line goes on, and where its text begins and ends."""

    output: bytes
    partial: bool
    begin: int
    end: int


def may_be_parted(block: bytes) -> bool:
    """Say quickly whether a block of whole lines is of a container log in which lines may be parted."""
    if _CRI.match(block):
        return any(mark in block for mark in _PARTIAL)
    return bool(_DOCKER.match(block)) and block.count(_DOCKER_WHOLE) != block.count(b"\n")


def join(block: bytes) -> tuple[bytes, bytes]:
    """Join the parted lines of a block of whole lines; returns it, and the records of lines that go on after it."""
    whole: list[bytes] = []
    begun: dict[bytes, list[bytes]] = {}
    held: dict[bytes, int] = {}
    for line in block.split(b"\n"):
        record = _record(line)
        if record is None:
            whole.append(line)
            continue
        waiting = begun.get(record.output)
        if record.partial and held.get(record.output, 0) < HELD:
            begun.setdefault(record.output, []).append(line)
            held[record.output] = held.get(record.output, 0) + len(line)
        elif waiting:
            whole.append(_joined([*begun.pop(record.output), line]))
            held.pop(record.output, None)
        else:
            whole.append(line)
    left = b"".join(line + b"\n" for lines in begun.values() for line in lines)
    return b"\n".join(whole), left


def whole_of(left: bytes) -> bytes:
    """What `join` left, where nothing comes after it: each line as far as it was written."""
    parts: dict[bytes, list[bytes]] = {}
    for line in left.split(b"\n"):
        record = _record(line)
        if record:
            parts.setdefault(record.output, []).append(line)
    return b"".join(_joined(lines) + b"\n" for lines in parts.values())


def _record(line: bytes) -> Optional[_Record]:
    cri = _CRI.match(line)
    if cri:
        return _Record(cri.group(1), cri.group(2) == b"P", cri.end(), len(line) - line.endswith(b"\r"))
    begin = _DOCKER.match(line)
    ends = list(_DOCKER_END.finditer(line, begin.end())) if begin else []
    if not begin or not ends:
        return None
    end = ends[-1]
    # An escaped backslash before the letter n is no line end.
    text = line[begin.end() : end.start()]
    tail = text[:-1] if text.endswith(b"n") else text
    closed = text.endswith(b"n") and (len(tail) - len(tail.rstrip(b"\\"))) % 2 == 1
    return _Record(end.group(1), not closed, begin.end(), end.start())


def _joined(lines: list[bytes]) -> bytes:
    """The first record with the texts of the others after its own."""
    records = [(line, record) for line in lines if (record := _record(line))]
    first, of_first = records[0]
    more = b"".join(line[record.begin : record.end] for line, record in records[1:])
    return first[: of_first.end] + more + first[of_first.end :]
