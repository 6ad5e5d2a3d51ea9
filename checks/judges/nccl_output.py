"""Reads what nccl-tests prints, three generations of text and JSON, with or without a launcher's prefix on every line."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from checks.judges.nccl_rows import DamagedRow, Row, read_rows
from checks.judges.nccl_software import Software, software_of
from checks.judges.text import CutJson, json_documents, plain_lines


class NotReadable(ValueError):
    """The output is cut or is not what nccl-tests prints."""


@dataclass(frozen=True)
class NcclOutput:
    """A run as its output tells it. `complete` says that the footer was printed; `lines` are without launcher prefixes.

    `collective` is such as "all_reduce", empty where the output does not tell. `damaged` are rows that could not be read;
    `headed` says that the tool printed its header.
    """

    ranks: int
    hosts: tuple[str, ...]
    gpu_name: str
    rows: tuple[Row, ...]
    out_of_bounds: Optional[int]
    bounds_failed: bool
    minimum_failed: bool
    complete: bool
    lines: tuple[str, ...]
    collective: str = ""
    damaged: tuple[DamagedRow, ...] = ()
    headed: bool = True
    software: Software = field(default_factory=Software)

    @property
    def largest(self) -> Optional[Row]:
        """The row of the largest message; where several have its size, that with their median bandwidth."""
        if not self.rows:
            return None
        size = max(row.size_bytes for row in self.rows)
        alike = [row for row in self.rows if row.size_bytes == size]
        median = statistics.median_low(row.busbw_gbs for row in alike)
        return next(row for row in reversed(alike) if row.busbw_gbs == median)

    @property
    def wrong(self) -> Optional[int]:
        """Wrong elements over all rows, None where nothing was validated."""
        counted = [row.wrong for row in self.rows if row.wrong is not None]
        return sum(counted) if counted else None

    @property
    def started(self) -> bool:
        """True when the tool itself printed something, not only its launcher."""
        return self.headed or self.ranks > 0 or bool(self.rows)


_DEVICE = re.compile(r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)$")
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(?:[\d.eE+-]+|-?nan|-?inf)\s*(OK|FAILED)?")
_STARTING = re.compile(r"^#\s*Collective test starting:\s*(\S+)")
_HEADER = re.compile(r"^# nThreads? \d|^# nccl-tests version ")


def read(text: str) -> list[NcclOutput]:
    """Read the runs in a text, one at least. Raises NotReadable for JSON that is cut or has another shape."""
    lines = plain_lines(text)
    if any(_DEVICE.match(line) or _HEADER.match(line) for line in lines):
        return [_read_text(part) for part in _runs(lines)]
    try:
        documents = json_documents("\n".join(lines))
    except CutJson as error:
        raise NotReadable(f"the JSON is cut: {error}") from error
    if not documents:
        return [_read_text(lines)]
    runs = [document for document in documents if "results" in document or "devices" in document]
    if not runs:
        raise NotReadable("the JSON is not that of nccl-tests")
    return [_read_json(document) for document in runs]


def _runs(lines: list[str]) -> list[list[str]]:
    """Part the lines before each header that follows a footer; what a launcher prints between belongs to the run before.

    Without a footer between them, headers may be of processes that print at the same time, so they stay together.
    """
    parts: list[list[str]] = [[]]
    ended = False
    for line in lines:
        if ended and _HEADER.match(line):
            parts.append([])
            ended = False
        ended = ended or bool(_AVERAGE.match(line))
        parts[-1].append(line)
    return parts


def _read_text(lines: Sequence[str]) -> NcclOutput:
    devices = [match.groups() for match in map(_DEVICE.match, lines) if match]
    rows, damaged = read_rows(lines)
    bounds = [match.groups() for match in map(_BOUNDS.match, lines) if match]
    averages = [match for match in map(_AVERAGE.match, lines) if match]
    programs = [match.group(1) for match in map(_STARTING.match, lines) if match]
    return NcclOutput(
        ranks=len({rank for rank, _, _ in devices}),
        hosts=tuple(dict.fromkeys(host for _, host, _ in devices)),
        gpu_name=devices[0][2].strip() if devices else "",
        rows=rows,
        out_of_bounds=max((int(count) for count, _ in bounds), default=None),
        bounds_failed=any(word == "FAILED" for _, word in bounds),
        minimum_failed=any(match.group(1) == "FAILED" for match in averages),
        # A run that hung before another one began leaves a header without a footer.
        complete=bool(bounds) and len(averages) >= max(1, sum(line.startswith("# nThread") for line in lines)),
        lines=tuple(lines),
        collective=_collective(programs[0] if programs else "", [row.operation for row in rows]),
        damaged=damaged,
        headed=any(map(_HEADER.match, lines)),
        software=software_of(lines),
    )


def _collective(program: str, operations: Sequence[str]) -> str:
    """Name the collective by the program's name, else by the reduction: those that only move data print "none"."""
    name = re.sub(r"_perf(?:_mpi)?$", "", program.rpartition("/")[2])
    if name:
        return name
    return "one without a reduction" if operations and all(operation in ("none", "") for operation in operations) else ""


def _read_json(document: dict[str, Any]) -> NcclOutput:
    try:
        devices, results = document["devices"], document["results"]
        bounds = document.get("out_of_bounds") or {}
        average = document.get("average_bus_bandwidth") or {}
        program = str((document.get("args") or [""])[0])
        rows = tuple(_json_row(result) for result in results)
        return NcclOutput(
            ranks=_json_ranks(devices, document.get("config") or {}),
            hosts=tuple(dict.fromkeys(str(device["hostname"]) for device in devices)),
            gpu_name=str(devices[0].get("device_info", "")) if devices else "",
            rows=rows,
            out_of_bounds=int(bounds["count"]) if "count" in bounds else None,
            bounds_failed=_is(bounds.get("okay"), False),
            minimum_failed=_is(average.get("okay"), False),
            complete=_is(bounds.get("okay"), True) and bool(document.get("end_time")) and not document.get("errors"),
            lines=tuple(line for error in document.get("errors") or [] for line in str(error).split("\n") if line.strip()),
            collective=_collective(program, [row.operation for row in rows]),
            software=software_of((), int(document.get("nccl_version") or 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise NotReadable(f"no nccl-tests JSON: {type(error).__name__} {error}") from error


def _is(value: Any, wanted: bool) -> bool:
    """Compare a truth value, which nccl-tests 2.19 writes as a word."""
    return value is wanted or value == str(wanted).lower()


def _json_ranks(devices: Sequence[dict[str, Any]], config: dict[str, Any]) -> int:
    """Count the ranks: some releases list only the first GPU of each process."""
    listed = {int(device["rank"]) for device in devices}
    processes = {(str(device["hostname"]), device.get("pid")) for device in devices}
    each = int(config.get("nthreads") or 1) * int(config.get("ngpus") or 1)
    return max(len(listed), len(processes) * each if len(processes) == len(listed) else 0)


def _json_row(result: dict[str, Any]) -> Row:
    sides = [result[name] for name in ("in_place", "out_of_place") if result.get(name)]
    busbw = float(sides[0]["bus_bw"])
    if not math.isfinite(busbw):
        raise NotReadable(f"bus bandwidth is {busbw}")
    counts = [int(side["nwrong"]) for side in sides if isinstance(side.get("nwrong"), (int, float)) and side["nwrong"] >= 0]
    line = f"size {int(result['size'])}: in-place busbw {busbw:g} GB/s"
    return Row(int(result["size"]), busbw, sum(counts) if counts else None, str(result.get("redop") or ""), line)
