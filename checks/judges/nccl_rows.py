"""Reads the table of nccl-tests: rows of any generation, whole or torn apart by log lines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Row:
    """One message size: bytes, in-place (else out-of-place) bus bandwidth in GB/s, wrong elements or None if not validated."""

    size_bytes: int
    busbw_gbs: float
    wrong: Optional[int]
    operation: str = ""
    line: str = ""


@dataclass(frozen=True)
class DamagedRow:
    """A row whose numbers are missing or are no numbers."""

    size_bytes: int
    line: str


_START = re.compile(r"^\s*(\d{1,18})\s+\d{1,18}\s+([a-z]\w{2,20})(?:\s+([a-z]\w{0,20}))?(?:\s+(-?\d{1,6})(?![\d.e]))?")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_STAMP_WIDTH = 19
_VALUE = re.compile(r"N/A|-?nan|-?inf|\d{1,18}(?:\.\d{0,9})?(?:e[+-]?\d{1,3})?")


def read_rows(lines: Sequence[str]) -> tuple[tuple[Row, ...], tuple[DamagedRow, ...]]:
    """Read all rows. With NCCL_DEBUG on, log lines come between the first columns of a row and its numbers."""
    rows, damaged = list[Row](), list[DamagedRow]()
    waiting: Optional[tuple[re.Match[str], str]] = None
    for line in lines:
        bare = line.rstrip()
        if _STAMP.fullmatch(bare[-_STAMP_WIDTH:]):
            bare = bare[:-_STAMP_WIDTH]
        start = _START.match(bare)
        if start:
            if waiting:
                damaged.append(DamagedRow(int(waiting[0].group(1)), waiting[1]))
            waiting = start, line
            values = _values(bare[_body(start) :])
        else:
            values = _values(bare) if waiting else None
        row = (
            _row(waiting[0], values, waiting[1] if start else f"{waiting[1].rstrip()} {line.strip()}")
            if waiting and values
            else None
        )
        if row:
            rows.append(row)
            waiting = None
    if waiting:
        damaged.append(DamagedRow(int(waiting[0].group(1)), waiting[1]))
    return tuple(rows), tuple(damaged)


def _body(start: re.Match[str]) -> int:
    """Where the measured columns begin: the first generation has no column `root`, so what looks like one is the time."""
    rest = len(start.string[start.end() :].split())
    return start.start(4) if start.group(4) and rest in (7, 15) else start.end()


def _values(text: str) -> Optional[list[str]]:
    """Return the columns of one or both sides, None if the text is anything else. A side has 4 columns, or 8 per iteration."""
    words = text.split(None, 17)
    if len(words) not in (4, 8, 16) or not all(map(_VALUE.fullmatch, words)):
        return None
    return words


def _row(start: re.Match[str], values: list[str], line: str) -> Optional[Row]:
    """Read one row, None if it has no bandwidth that is a number."""
    half = len(values) if len(values) == 4 else len(values) // 2
    sides = [values[at : at + half] for at in range(0, len(values), half)]
    # Trace replay prints the in-place side alone; collectives that cannot work in place print N/A there.
    measured = [_number(side[2]) for side in reversed(sides) if side[2] != "N/A"]
    if not measured or measured[0] is None:
        return None
    has_root = start.group(4) is not None and _body(start) == start.end()
    # The first generation prints the largest error there, not a count; only its footer tells wrong results.
    counts = [number for number in (_number(side[3]) for side in sides) if number is not None] if has_root else []
    return Row(int(start.group(1)), measured[0], int(sum(counts)) if counts else None, start.group(3) or "", line.strip()[:400])


def _number(word: str) -> Optional[float]:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
