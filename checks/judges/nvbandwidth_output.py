"""Reads what nvbandwidth prints, text and JSON: one matrix per test, and the tests that gave none."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

PASSED, WAIVED, NOT_FOUND, ERROR, UNFINISHED = "Passed", "Waived", "Not Found", "Error", "Running"


class NotReadable(ValueError):
    """The document is not that of nvbandwidth, or a number in it is none."""


@dataclass(frozen=True)
class Test:
    """One test: cells by row and column, None where it says N/A. `description` is such as "CPU(row) -> GPU(column) (GB/s)"."""

    name: str
    status: str
    description: str = ""
    cells: tuple[tuple[Optional[float], ...], ...] = ()
    error: str = ""
    lines: tuple[str, ...] = ()

    @property
    def is_bandwidth(self) -> bool:
        """False for tests of latency."""
        return "(ns)" not in self.description and "latency" not in self.name

    @property
    def is_pairs(self) -> bool:
        """True where rows and columns both are GPUs."""
        return len(re.findall(r"GPU\((?:row|column)\)", self.description)) == 2


@dataclass(frozen=True)
class NvbandwidthOutput:
    """A run as its output tells it. `complete` says that it came to its end; `error` is why it did not."""

    gpu_name: str
    tests: tuple[Test, ...]
    error: str
    complete: bool
    started: bool
    lines: tuple[str, ...] = ()


_DEVICE = re.compile(r"^(?:Device|Process) +\d+.*?: (?:device \d+: )?([^:]+?) \([\da-fA-F]{8}:[\da-fA-F]{2}:[\da-fA-F]{2}\)")
_RUNNING = re.compile(r"^Running ([\w.-]{1,100}?)\.\s*$")
_SUM = re.compile(r"^SUM ([\w.-]{1,100}) (\S+)")
_HEADER = re.compile(r"^\s*0(?:\s+\d{1,4})*\s*$")
_CELL = r"(?:N/A|-?\d{1,12}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?|-?nan|-?inf)"
_ROW = re.compile(rf"^\s*\d{{1,4}}((?:\s+{_CELL})+)\s*$")
_ERROR = re.compile(r"CUDA_ERROR|cudaError|\[?NVML_ERROR|^ERROR|^Error|Assertion|command not found|error while loading")


def read_text(text: str) -> NvbandwidthOutput:
    """Read the text output, plain and without prefixes. Raises NotReadable where a cell is no number."""
    lines = text.split("\n")
    names = [match.group(1) for match in map(_DEVICE.match, lines) if match]
    blocks: list[list[str]] = []
    for line in lines:
        if _RUNNING.match(line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    tests = tuple(_text_test(block) for block in blocks)
    note = any(line.startswith("NOTE: ") for line in lines)
    return NvbandwidthOutput(
        gpu_name=names[0].strip() if names else "",
        tests=tests,
        error=next((line.strip()[:400] for line in lines if _ERROR.search(line[:400])), ""),
        complete=note and bool(tests) and tests[-1].status != UNFINISHED,
        started=bool(tests) or any(line.startswith("nvbandwidth Version") for line in lines),
        lines=tuple(lines),
    )


def _text_test(block: Sequence[str]) -> Test:
    running = _RUNNING.match(block[0])
    name = running.group(1) if running else ""
    ended = any(match and match.group(1) == name for match in map(_SUM.match, block))
    description = next((line.strip() for line in block if "(GB/s)" in line or "(ns)" in line), "")
    error = next((line.strip()[:400] for line in block if _ERROR.search(line[:400])), "")
    rows = [match for match in map(_ROW.match, block) if match and not _HEADER.match(match.string)]
    header = next((line for line in block if _HEADER.match(line)), "")
    cells = tuple(tuple(_cell(word) for word in match.group(1).split()) for match in rows)
    columns = len(header.split())
    square = len(re.findall(r"GPU\((?:row|column)\)", description)) == 2
    if ended and (not cells or any(len(row) != columns for row in cells) or (square and len(cells) != columns)):
        raise NotReadable(f"the matrix of {name} is not whole")
    status = UNFINISHED
    if error:
        status = ERROR
    elif any(line.startswith("Waived") for line in block) and not cells:
        status = WAIVED
    elif ended and cells:
        status = PASSED
    return Test(name, status, description, cells, error, tuple(match.string.strip()[:400] for match in rows))


def read_json(document: dict[str, Any]) -> NvbandwidthOutput:
    """Read the JSON output. Raises NotReadable where it is of another tool or shape."""
    body = document.get("nvbandwidth")
    if not isinstance(body, dict):
        raise NotReadable('"nvbandwidth" is not in it')
    try:
        tests = tuple(_json_test(test) for test in body.get("testcases") or [])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotReadable(f"its test cases are of an unknown shape: {error}") from error
    trouble = str(body.get("error") or "").strip()[:400]
    return NvbandwidthOutput(_json_gpu(body), tests, trouble, complete=not trouble, started=True)


def _json_gpu(body: dict[str, Any]) -> str:
    words = (str(word) for value in body.values() if isinstance(value, list) for word in value if isinstance(word, str))
    names = (re.match(r"^(?:Device )?\d+: (.+?) \([\da-fA-F:.]+\)$", word) for word in words)
    return next((match.group(1) for match in names if match), "")


def _json_test(test: dict[str, Any]) -> Test:
    rows = test.get("bandwidth_matrix") or []
    cells = tuple(tuple(_cell(value) for value in row) for row in rows)
    if len({len(row) for row in cells}) > 1:
        raise ValueError(f"the matrix of {test['name']} has rows of different lengths")
    status = str(test.get("status") or "")
    return Test(
        str(test["name"]),
        UNFINISHED if status == PASSED and not any(cells) else status,
        str(test.get("bandwidth_description") or ""),
        cells,
        str(test.get("error") or "")[:400],
        tuple(_joined(row) for row in rows),
    )


def _joined(row: Iterable[Any]) -> str:
    return json.dumps(list(row))[:400]


def _cell(value: Any) -> Optional[float]:
    if value is None or str(value).strip() == "N/A":
        return None
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise NotReadable(f"a bandwidth is {value}")
    return number
