"""Reads what ib_write_bw (perftest) prints: the run's parameters and its table, in any of its units, and its JSON file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Optional

_TO_GBITS = {"gb/sec": 1.0, "mib/sec": 8 * 2**20 / 1e9, "mb/sec": 8 * 2**20 / 1e9}
"""Factors to Gb/s. What old releases call MB/sec is 2^20 bytes too. Source: perftest, `perftest_resources.c`."""


AGREES = 0.02
"""Relative difference up to which a bandwidth and a message rate are of one run. Hotspare default: both are rounded."""


@dataclass(frozen=True)
class Transfer:
    """One row: message bytes and average bandwidth in Gb/s."""

    size_bytes: int
    gbits: float
    line: str


@dataclass(frozen=True)
class IbOutput:
    """A run as its output tells it. `complete` says that the table is closed; `headed` that there is one."""

    device: str
    directions: int
    ports: int
    rows: tuple[Transfer, ...]
    damaged: str
    headed: bool
    connected: bool
    complete: bool
    lines: tuple[str, ...]

    @property
    def largest(self) -> Optional[Transfer]:
        """The row of the largest message; of the slowest one where several have its size."""
        return max(self.rows, key=lambda row: (row.size_bytes, -row.gbits), default=None)


_TITLE = re.compile(r"RDMA_\w+ (Bidirectional )?(?:BW|Infinite) Test|(?:Send|RDMA \w+) (Bidirectional )?BW Test")
_DEVICE = re.compile(r"\bDevice\s*:\s*(\S+)")
_DUAL = re.compile(r"Dual-port\s*:\s*ON")
_HEADER = re.compile(r"#bytes\s+#iterations.*?BW average\[([A-Za-z]+/s(?:ec)?)\]", re.IGNORECASE)
_ROW = re.compile(r"^\s*(\d{1,15})\s+(\d{1,15})\s+(\S{1,30})\s+(\S{1,30})(?:\s|$)")
_WAITING = "Waiting for client to connect"
_RULE = re.compile(r"^\s*-{20,}\s*$")


def split_runs(text: str) -> list[str]:
    """Part a text at each title, so that tests of several devices are judged one by one."""
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if _TITLE.search(line[:200]) and any(_TITLE.search(one[:200]) for one in parts[-1]):
            carried = [parts[-1].pop()] if parts[-1] and _RULE.match(parts[-1][-1]) else []
            parts.append(carried)
        parts[-1].append(line)
    return ["\n".join(part) for part in parts]


def read(text: str) -> IbOutput:
    """Read one run's output, plain and without prefixes; any text can be read."""
    lines = text.split("\n")
    title = next((match for match in (_TITLE.search(line[:200]) for line in lines) if match), None)
    devices = [match.group(1) for match in (_DEVICE.search(line[:400]) for line in lines) if match]
    rows, damaged, complete, unit = list[Transfer](), "", False, 0.0
    for line in lines:
        header = _HEADER.search(line[:400])
        row = _ROW.match(line) if unit else None
        if header:
            unit, complete = _TO_GBITS.get(_unit(header.group(1)), 0.0), False
            damaged = damaged or ("" if unit else line.strip()[:400])
        elif row:
            transfer = _transfer(row, unit, line)
            damaged = damaged or ("" if transfer else line.strip()[:400])
            rows += [transfer] if transfer else []
        elif _RULE.match(line) and rows:
            complete = True
    return IbOutput(
        device=devices[0] if devices else "",
        directions=2 if title and (title.group(1) or title.group(2)) else 1,
        ports=2 if any(_DUAL.search(line[:400]) for line in lines) else 1,
        rows=tuple(rows),
        damaged=damaged,
        headed=title is not None or any(_HEADER.search(line[:400]) or _WAITING in line for line in lines),
        connected=any("remote address:" in line for line in lines) or bool(rows),
        complete=complete,
        lines=tuple(lines),
    )


def read_json(document: dict[str, Any]) -> IbOutput:
    """Read what --out_json writes. Raises ValueError where it is of another shape, or where its unit cannot be told."""
    info, results = document.get("test_info"), document.get("results")
    if not isinstance(info, dict):
        raise ValueError('"test_info" is not in it')
    table = [one for one in (results if isinstance(results, list) else [results]) if one]
    try:
        rows = tuple(_json_row(one) for one in table)
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"its results are of an unknown shape: {type(error).__name__} {error}") from error
    title = _TITLE.search(str(info.get("test") or "")[:200])
    return IbOutput(
        device=str(info.get("Device") or ""),
        directions=2 if title and (title.group(1) or title.group(2)) else 1,
        ports=2 if info.get("Dual_port") == "ON" else 1,
        rows=rows,
        damaged="",
        headed=True,
        connected=bool(rows),
        complete=bool(rows),
        lines=(),
    )


def _json_row(result: dict[str, Any]) -> Transfer:
    """Read one result. The unit depends on an option and is not said: size and rate of the messages tell it."""
    size, average, rate = int(result["MsgSize"]), float(result["BW_average"]), float(result["MsgRate"])
    told = rate * 1e6 * size * 8 / 1e9
    for unit in (_TO_GBITS["gb/sec"], _TO_GBITS["mib/sec"]):
        if 0 < told < 1e6 and math.isclose(average * unit, told, rel_tol=AGREES):
            return Transfer(size, average * unit, f"MsgSize {size}: BW_average {average:g}, MsgRate {rate:g}")
    raise ValueError(f"BW_average {average:g} fits no unit with {rate:g} million messages of {size} bytes a second")


def _unit(word: str) -> str:
    return word.lower() if word.lower().endswith("sec") else word.lower() + "ec"


def _transfer(row: re.Match[str], unit: float, line: str) -> Optional[Transfer]:
    """Read one row, None if its average is no number. The peak may be 0, which says that it was not measured."""
    try:
        gbits = float(row.group(4)) * unit
    except ValueError:
        return None
    return Transfer(int(row.group(1)), gbits, line.strip()[:400]) if 0 <= gbits < 1e6 else None
