"""Judges one run of nvbandwidth: every copy runs at the speed of its link, or which GPU or pair does not."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from checks.catalog import expected_gpus
from checks.judges import judgement as causes
from checks.judges import nvbandwidth_output as output_of
from checks.judges.floors import FAIL_SHARE, Floor, OwnFloors, contradiction, family_of, find_copy_floor
from checks.judges.judgement import KILLED_STATUSES, Judgement, unknown, unreadable, worst
from checks.judges.nvbandwidth_output import NotReadable, NvbandwidthOutput, Test, read_json, read_text
from checks.judges.text import CutJson, json_documents, last_line
from checks.model import Verdict

_GPU_ERROR = re.compile(
    r"ECC|ILLEGAL|LAUNCH_FAILED|LAUNCH_TIMEOUT|HARDWARE|NVLINK|UNKNOWN|GPU_IS_LOST|MISALIGNED|DEVICES_UNAVAILABLE", re.I
)


@dataclass(frozen=True)
class _Cell:
    """One copy: row, column, GB/s, the line it stands in."""

    row: int
    column: int
    gbs: float
    line: str


def judge(text: str, instance_type: str = "", floors: Optional[OwnFloors] = None, exit_status: Optional[int] = None) -> Judgement:
    """Judge the output of nvbandwidth, text or JSON, plain and without prefixes.

    Never OK unless at least one test met a known floor; tests without a floor are compared among the GPUs and can only warn.
    """
    try:
        documents = [one for one in json_documents(text) if "nvbandwidth" in one]
        outputs = [read_json(one) for one in documents] if documents else [read_text(text)]
    except CutJson as error:
        return unreadable("nvbandwidth", f"the JSON is cut: {error}")
    except NotReadable as error:
        return unreadable("nvbandwidth", str(error))
    judged = [_judge_one(one, instance_type, floors or {}, exit_status) for one in outputs]
    return worst([(f"run {number}", one) for number, one in enumerate(judged, 1)])


def _judge_one(output: NvbandwidthOutput, instance_type: str, floors: OwnFloors, exit_status: Optional[int]) -> Judgement:
    other = contradiction(instance_type, output.gpu_name)
    if other:
        return unknown(causes.CONFIGURATION, other, "say the true instance type")
    measured = [test for test in output.tests if test.status == output_of.PASSED]
    family = family_of(instance_type, output.gpu_name)
    judged = [_judge_test(test, instance_type, family, floors) for test in measured if test.is_bandwidth]
    bad = [one for one in judged if one and one.verdict is Verdict.CRITICAL]
    if bad:
        return worst([("", one) for one in bad])
    stopped = _stopped(output, exit_status)
    if stopped:
        return stopped
    seen = max((len(test.cells[0]) for test in measured), default=0)
    if not seen:
        left = ", ".join(f"{test.name}: {test.status}" for test in output.tests) or "no test ran"
        return unknown(causes.COULD_NOT_RUN, left[:400], "name tests that this machine can run (nvbandwidth -l)")
    expected = expected_gpus(instance_type) or 0
    if seen < expected:
        return unknown(causes.COULD_NOT_RUN, f"{seen} of {expected} GPUs were measured", "run it on all GPUs of the node")
    known = [one for one in judged if one]
    if any(one.verdict is not Verdict.OK for one in known):
        return worst([("", one) for one in known])
    return _even(measured, known, instance_type or family or output.gpu_name)


def _stopped(output: NvbandwidthOutput, exit_status: Optional[int]) -> Optional[Judgement]:
    """Say why the run did not come to its end, None if it did."""
    failed = next((test for test in output.tests if test.status == output_of.ERROR), None)
    error = output.error or (failed.error or f"{failed.name} failed" if failed else "")
    if error and not (output.complete and not failed):
        if _GPU_ERROR.search(error):
            advice = "look for XIDs of that time in the kernel log, and probe the GPUs"
            return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, next=advice, evidence=error, line=error)
        return unknown(causes.COULD_NOT_RUN, error, "mend what it misses on this node, then run again", line=error)
    if not output.started:
        last = last_line(output.lines)
        if exit_status not in (None, 0) or not last:
            what = f"{last or 'the run printed nothing'} (exit status {exit_status})"
            return unknown(causes.COULD_NOT_RUN, what, "run again by hand to see why it does not start")
        return unreadable("nvbandwidth", f"this is not the output of nvbandwidth: {last}")
    unfinished = next((test.name for test in output.tests if test.status == output_of.UNFINISHED), "")
    if not output.complete or unfinished:
        ended = "was ended" if exit_status in KILLED_STATUSES else "stops"
        evidence = f"the output {ended} {f'in {unfinished}' if unfinished else 'before its end'}"
        return Judgement(
            Verdict.CRITICAL, causes.HANG, next="probe the node's GPUs", evidence=evidence, line=last_line(output.lines)
        )
    if exit_status not in (None, 0):
        evidence = f"the output is whole, yet the exit status is {exit_status}"
        return unknown(causes.COULD_NOT_RUN, evidence, "run again and keep its error output")
    return None


def _judge_test(test: Test, instance_type: str, family: str, floors: OwnFloors) -> Optional[Judgement]:
    """Judge one test; None where it has no floor and its cells are alike."""
    cells = list(_cells(test))
    if not cells:
        return None
    floor = find_copy_floor(floors, instance_type, family, test.name)
    against_floor = _against(test, cells, floor) if floor else _among_peers(test, cells)
    absent = [(row, column) for row, column, value in _places(test) if value is None and not (test.is_pairs and row == column)]
    if absent and (against_floor is None or against_floor.verdict is Verdict.OK):
        return Judgement(
            Verdict.WARN,
            causes.CONFIGURATION,
            culprits=tuple(_named(test, row, column) for row, column in absent),
            next="find out why these GPUs have no peer access",
            evidence=f"{test.name}: {len(absent)} copies are not possible, others are",
        )
    return against_floor


def _against(test: Test, cells: list[_Cell], floor: Floor) -> Judgement:
    for verdict, limit in ((Verdict.CRITICAL, floor.fail_gbs), (Verdict.WARN, floor.warn_gbs)):
        slow = [cell for cell in cells if cell.gbs < limit]
        if slow:
            return _slow(test, slow, floor, verdict)
    lowest = min(cells, key=lambda cell: cell.gbs)
    return Judgement(
        Verdict.OK,
        causes.HEALTHY,
        lowest.gbs,
        floor.fail_gbs,
        floor_source=floor.source,
        evidence=f"{test.name}: {lowest.gbs:g} GB/s and more",
        line=lowest.line,
    )


def _among_peers(test: Test, cells: list[_Cell]) -> Optional[Judgement]:
    """Without a floor only an outlier tells something, and without one the test tells nothing."""
    median = statistics.median(cell.gbs for cell in cells)
    slow = [cell for cell in cells if cell.gbs < FAIL_SHARE * median] if len(cells) > 2 else []
    source = f"{FAIL_SHARE:.0%} of the median of {len(cells)} copies, no floor is known"
    return _slow(test, slow, Floor(round(FAIL_SHARE * median, 2), 0.0, source), Verdict.WARN) if slow else None


def _slow(test: Test, slow: list[_Cell], floor: Floor, verdict: Verdict) -> Judgement:
    lowest = min(slow, key=lambda cell: cell.gbs)
    part = "check the GPU's PCIe link: generation, width, replays (nvidia-smi -q)"
    if test.is_pairs:
        part = "check the NVLinks of the GPU (nvidia-smi nvlink -s, -e) and the Fabric Manager"
    return Judgement(
        verdict,
        causes.LOW_BANDWIDTH,
        lowest.gbs,
        floor.fail_gbs,
        floor_source=floor.source,
        culprits=tuple(_blamed(test, slow)),
        next=part,
        evidence=f"{test.name}: {lowest.gbs:g} GB/s for {_named(test, lowest.row, lowest.column)}; {len(slow)} copies are slow",
        line=lowest.line,
    )


def _blamed(test: Test, slow: list[_Cell]) -> Iterable[str]:
    """Name the GPUs whose copies are mostly slow, and the pairs that they do not explain."""
    if not test.is_pairs:
        yield from (_named(test, cell.row, cell.column) for cell in slow)
        return
    each = 2 * (len(test.cells[0]) - 1)
    counts = Counter(gpu for cell in slow for gpu in {cell.row, cell.column})
    explained = set[int]()
    while counts and counts.most_common(1)[0][1] > each / 2:
        gpu = counts.most_common(1)[0][0]
        explained.add(gpu)
        yield f"GPU {gpu}"
        left = [cell for cell in slow if not explained & {cell.row, cell.column}]
        counts = Counter(gpu for cell in left for gpu in {cell.row, cell.column})
    yield from (_named(test, cell.row, cell.column) for cell in slow if not explained & {cell.row, cell.column})


def _named(test: Test, row: int, column: int) -> str:
    if not test.is_pairs:
        return f"GPU {column}" if len(test.cells) == 1 or "GPU(column)" in test.description else f"GPU {row}"
    arrow = "<-" if "<-" in test.description else "->"
    return f"GPU {row} {arrow} GPU {column}"


def _places(test: Test) -> Iterable[tuple[int, int, Optional[float]]]:
    for row, values in enumerate(test.cells):
        for column, value in enumerate(values):
            yield row, column, value


def _cells(test: Test) -> Iterable[_Cell]:
    """The copies that a test made: without the diagonal of a matrix of pairs, which is 0 or N/A."""
    for row, column, value in _places(test):
        if value is not None and not (test.is_pairs and row == column):
            yield _Cell(row, column, value, test.lines[row] if row < len(test.lines) else "")


def _even(measured: list[Test], known: list[Judgement], machine: str) -> Judgement:
    """Judge a run in which nothing is slow: OK only if something met a floor."""
    named = {one.evidence.split(":")[0] for one in known}
    others = [test.name for test in measured if test.name not in named]
    if not known:
        advice = f'set a floor such as "{machine or "TYPE"}/{others[0] if others else "TEST"}" in burn_in.floors_gbs'
        evidence = f"no floor is known for {machine or 'this GPU'}: {', '.join(others)}"
        return unknown(causes.CONFIGURATION, evidence[:400], advice)
    first = known[0]
    evidence = "; ".join(one.evidence for one in known)
    if others:
        evidence += f"; alike among the GPUs, without a floor: {', '.join(others)}"
    return Judgement(
        Verdict.OK,
        causes.HEALTHY,
        first.measured,
        first.floor,
        floor_source=first.floor_source,
        evidence=evidence,
        line=first.line,
    )
