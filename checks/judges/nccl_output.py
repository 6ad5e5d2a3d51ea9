"""Reads what nccl-tests prints, three generations of text and JSON, with or without a launcher's prefix on every line."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Optional


class NotReadable(ValueError):
    """The output is cut or is not what nccl-tests prints."""


@dataclass(frozen=True)
class Row:
    """One message size: bytes, in-place (else out-of-place) bus bandwidth in GB/s, wrong elements or None if not validated."""

    size_bytes: int
    busbw_gbs: float
    wrong: Optional[int]


@dataclass(frozen=True)
class NcclOutput:
    """A run as its output tells it. `complete` says that the footer was printed; `lines` are without launcher prefixes."""

    ranks: int
    hosts: tuple[str, ...]
    gpu_name: str
    rows: tuple[Row, ...]
    out_of_bounds: Optional[int]
    bounds_failed: bool
    minimum_failed: bool
    complete: bool
    lines: tuple[str, ...]

    @property
    def largest(self) -> Optional[Row]:
        """The row of the largest message; of the last one where several have its size."""
        return max(reversed(self.rows), key=lambda row: row.size_bytes, default=None)

    @property
    def wrong(self) -> Optional[int]:
        """Wrong elements over all rows, None where nothing was validated."""
        counted = [row.wrong for row in self.rows if row.wrong is not None]
        return sum(counted) if counted else None

    @property
    def started(self) -> bool:
        """True when the tool itself printed something, not only its launcher."""
        return self.ranks > 0 or bool(self.rows)


_PREFIX = re.compile(
    r"^(?:\[\d+,\d+\]<std(?:out|err)>:? ?|\d{1,6}: |\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) F )?)"
)
_DEVICE = re.compile(r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_NUMBER = r"(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|N/A)"
_SIDE = rf"\s+{_NUMBER}\s+{_NUMBER}\s+({_NUMBER})\s+({_NUMBER})"
_ROW = re.compile(rf"^\s*(\d+)\s+\d+\s+[a-z]\w*\s+\w+(\s+-?\d+)?{_SIDE}{_SIDE}\s*$")
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s*(OK|FAILED)")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*[\d.eE+-]+\s*(OK|FAILED)?")


def read(text: str) -> NcclOutput:
    """Read a run's output. Raises NotReadable for JSON that is cut or has another shape; any text can be read."""
    if text.lstrip().startswith("{"):
        return _read_json(text)
    return _read_text(text)


def _read_text(text: str) -> NcclOutput:
    lines = tuple(_without_prefix(line) for line in text.splitlines())
    devices = [match.groups() for match in map(_DEVICE.match, lines) if match]
    rows = [row for row in map(_row, lines) if row]
    bounds = [match.groups() for match in map(_BOUNDS.match, lines) if match]
    averages = [match.group(1) for match in map(_AVERAGE.match, lines) if match]
    return NcclOutput(
        ranks=len({rank for rank, _, _ in devices}),
        hosts=tuple(dict.fromkeys(host for _, host, _ in devices)),
        gpu_name=devices[0][2].strip() if devices else "",
        rows=tuple(rows),
        out_of_bounds=max((int(count) for count, _ in bounds), default=None),
        bounds_failed=any(word == "FAILED" for _, word in bounds),
        minimum_failed="FAILED" in averages,
        complete=bool(bounds) and bool(averages),
        lines=lines,
    )


def _without_prefix(line: str) -> str:
    """Take off what `srun -l`, `mpirun --tag-output` or a container log puts before each line."""
    match = _PREFIX.match(line)
    return line[match.end() :] if match else line


def _row(line: str) -> Optional[Row]:
    match = _ROW.match(line)
    if not match:
        return None
    size, root, out_bus, out_wrong, in_bus, in_wrong = match.groups()
    busbw = _number(in_bus) if _number(in_bus) is not None else _number(out_bus)
    if busbw is None:
        return None
    # The first generation prints the largest error there, not a count; only its footer tells wrong results.
    counts = [int(word) for word in (out_wrong, in_wrong) if root and word.isdigit()]
    return Row(int(size), busbw, sum(counts) if counts else None)


def _number(word: str) -> Optional[float]:
    if word == "N/A":
        return None
    value = float(word)
    return value if math.isfinite(value) else None


def _read_json(text: str) -> NcclOutput:
    try:
        document = json.loads(text)
        devices, results = document["devices"], document["results"]
        bounds = document.get("out_of_bounds") or {}
        average = document.get("average_bus_bandwidth") or {}
        return NcclOutput(
            ranks=len({int(device["rank"]) for device in devices}),
            hosts=tuple(dict.fromkeys(str(device["hostname"]) for device in devices)),
            gpu_name=str(devices[0].get("device_info", "")) if devices else "",
            rows=tuple(_json_row(result) for result in results),
            out_of_bounds=int(bounds["count"]) if "count" in bounds else None,
            bounds_failed=bounds.get("okay") is False,
            minimum_failed=average.get("okay") is False,
            complete="okay" in bounds and bool(document.get("end_time")),
            lines=tuple(str(error) for error in document.get("errors", [])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise NotReadable(f"no nccl-tests JSON: {error}") from error


def _json_row(result: dict[str, Any]) -> Row:
    sides = [result[name] for name in ("in_place", "out_of_place") if result.get(name)]
    busbw = float(sides[0]["bus_bw"])
    if not math.isfinite(busbw):
        raise NotReadable(f"bus bandwidth is {busbw}")
    counts = [int(side["nwrong"]) for side in sides if isinstance(side.get("nwrong"), (int, float)) and side["nwrong"] >= 0]
    return Row(int(result["size"]), busbw, sum(counts) if counts else None)
