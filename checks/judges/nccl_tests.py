"""Judges one run of an nccl-tests collective (`all_reduce_perf`): right results, full bandwidth, or why not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from checks.catalog import expected_gpus
from checks.judges import judgement as causes
from checks.judges.floors import Floor, OwnFloors, contradiction, family_of, find_floor
from checks.judges.judgement import Judgement, unknown, unreadable, worst
from checks.judges.learned import Learned, LearnedBy, with_learned
from checks.judges.nccl_output import NcclOutput, NotReadable, read
from checks.judges.nccl_rows import Row
from checks.judges.nccl_unfinished import judge_not_finished, judge_not_started
from checks.judges.text import first_line, last_line
from checks.model import Verdict

EFA_TYPES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200")
"""Instance families whose nodes talk over EFA, so that plain sockets are a fault. Source: EC2 instance type pages."""

NVLINK_RING_GBS = (340.0, 385.0)
"""Bus bandwidth of an 8-GPU H100 or H200 node without NVLS, about 362. Source: maintainer's note, nccl-tests issue 212."""

_NVLS = re.compile(r"NVLS|[1-9]\d{0,3} nvls channels")
_NO_NVLS = re.compile(
    r"NVLS .{0,60}(?:not |un)(?:available|supported)|NCCL_NVLS_ENABLE set by environment to 0|(?<!\d)0 nvls channels"
    r"|NCCL_ALGO set by environment to (?:Ring|Tree)"
)
"""What NCCL logs where NVLS is used, and where it is not."""

_SOCKETS = re.compile(
    r"Using network Socket|Selected [Pp]rovider is (?:tcp|udp|sockets)|(?:Initialized|Assigned) NET plugin Socket|via NET/Socket/"
)
_NO_PLUGIN = re.compile(
    r"(?:Could not find:? .{0,40}|No plugin found \(|Plugin load \(|Failed to open )libnccl-net"
    r"|NET/OFI .{0,80}No eligible providers"
)
_EFA_IN_USE = re.compile(r"[Pp]rovider is efa|Using network (?:AWS )?Libfabric|via NET/(?:AWS )?Libfabric")


def judge(
    text: str,
    instance_type: str = "",
    nodes: Optional[int] = None,
    exit_status: Optional[int] = None,
    floors: Optional[OwnFloors] = None,
    learned: Optional[LearnedBy] = None,
    one_rail: bool = False,
    ranks: Optional[int] = None,
) -> Judgement:
    """Judge a run's output; the worst of them where it has several.

    `nodes` is how many nodes took part (None: as many hosts as the output names), `exit_status` that of the launcher (None: not
    known), `floors` own floors as "type/nodes" = GB/s, `learned` what clean runs gave. Never OK unless a footer was printed and
    the bandwidth met a known floor, or a single rank ran, whose bus bandwidth is zero by definition. Over `one_rail` a node has
    one rank and there is no floor: it is measured, to be compared with runs over the other rails. `ranks` is how many were asked
    for (None: not known); fewer could not run.
    """
    try:
        outputs = read(text)
    except NotReadable as error:
        return unreadable("the test", str(error))
    rules = _Rules(floors or {}, learned, one_rail, ranks or 0)
    judged = [_judge_run(output, instance_type, nodes, exit_status, rules) for output in outputs]
    return worst([(f"run {number}", one) for number, one in enumerate(judged, 1)])


@dataclass(frozen=True)
class _Rules:
    floors: OwnFloors
    learned: Optional[LearnedBy]
    one_rail: bool
    ranks: int


def _judge_run(
    output: NcclOutput, instance_type: str, nodes: Optional[int], exit_status: Optional[int], rules: _Rules
) -> Judgement:
    corruption = _corruption(output)
    if corruption:
        return corruption
    if not output.started:
        return judge_not_started(output, exit_status)
    if not output.complete:
        return judge_not_finished(output, exit_status)
    return _finished(output, instance_type, nodes or max(1, len(output.hosts)), exit_status, rules)


def _corruption(output: NcclOutput) -> Optional[Judgement]:
    wrong = max(output.wrong or 0, output.out_of_bounds or 0)
    if not wrong and not output.bounds_failed:
        return None
    row = next((row.line for row in output.rows if row.wrong), "") or first_line(re.compile("Out of bounds"), output.lines)
    return Judgement(
        Verdict.CRITICAL,
        causes.DATA_CORRUPTION,
        output.largest.busbw_gbs if output.largest else None,
        wrong=wrong,
        next="take the group out of use, find the bad node by smaller groups, and restart the job from before the first evidence",
        evidence=f"{wrong} wrong results: the collective gave numbers that are not the right ones",
        line=row,
    )


def _finished(output: NcclOutput, instance_type: str, nodes: int, exit_status: Optional[int], rules: _Rules) -> Judgement:
    row = output.largest
    torn = [one for one in output.damaged if row is None or one.size_bytes >= row.size_bytes]
    if row is None or torn:
        evidence = f"the row of {torn[0].size_bytes} bytes has no numbers" if torn else "the footer is there, but no row"
        advice = "keep the whole output, without other output between its lines, and judge it again"
        return unknown(causes.UNREADABLE, evidence, advice, line=torn[0].line[:400] if torn else "")
    other = contradiction(instance_type, output.gpu_name)
    if other:
        return unknown(causes.CONFIGURATION, other, "say the true instance type", line=row.line)
    absent = _absent(output, "" if rules.one_rail else instance_type, nodes, rules.ranks)
    if absent:
        return unknown(causes.COULD_NOT_RUN, absent, "check that the tool is built with MPI and that every host takes part")
    if exit_status not in (None, 0) and not output.minimum_failed:
        evidence = f"the table is complete, yet the exit status is {exit_status}: {last_line(output.lines)}"
        return unknown(causes.COULD_NOT_RUN, evidence, "run again; a launcher that fails after the test hides its result")
    if output.ranks == 1 and row.busbw_gbs > 0:
        evidence = f"one rank is listed, whose bus bandwidth is 0 by definition, yet the table says {row.busbw_gbs:g} GB/s"
        return unknown(
            causes.UNREADABLE, evidence, "keep the whole output, with its list of ranks, and judge it again", line=row.line
        )
    if output.ranks == 1:
        evidence = "one rank: bus bandwidth is 0 by definition"
        return Judgement(Verdict.OK, causes.HEALTHY, row.busbw_gbs, wrong=output.wrong, evidence=evidence, line=row.line)
    family = family_of(instance_type, output.gpu_name)
    floor, known = None, None
    if output.collective in ("", "all_reduce") and not rules.one_rail:
        known = rules.learned(output.software, output.ranks, row.size_bytes) if rules.learned else None
        floor = with_learned(find_floor(rules.floors, instance_type, family, nodes, output.ranks, row.size_bytes), known)
    judged = _against_floor(output, row, floor, instance_type or family, nodes)
    if rules.one_rail and judged.cause == causes.CONFIGURATION:
        return replace(judged, cause=causes.MEASURED, next="compare it with the runs over the other rails")
    return _with_drift(judged, row, known)


def _with_drift(judged: Judgement, row: Row, known: Optional[Learned]) -> Judgement:
    if known is None:
        return judged
    drift = known.drift(row.busbw_gbs)
    return replace(judged, drift=drift, evidence=f"{judged.evidence}; {drift}")


def _absent(output: NcclOutput, instance_type: str, nodes: int, asked: int) -> str:
    """Say who did not take part, empty if all did: each process alone prints a flawless table of its own."""
    if len(output.hosts) < nodes:
        return f"{len(output.hosts)} of {nodes} hosts took part ({', '.join(output.hosts) or 'none is named'})"
    if len(output.hosts) > nodes:
        return f"{len(output.hosts)} hosts took part, not {nodes}: {', '.join(output.hosts)}"
    expected = nodes * (expected_gpus(instance_type) or 0)
    if output.ranks < expected:
        return f"{output.ranks} rank{'s' * (output.ranks > 1)} ran where {nodes} x {instance_type} have {expected} GPUs"
    if output.ranks < asked:
        return f"{output.ranks} rank{'s' * (output.ranks > 1)} ran where {asked} were asked for"
    return ""


def _against_floor(output: NcclOutput, row: Row, floor: Optional[Floor], machine: str, nodes: int) -> Judgement:
    slow = floor is None or row.busbw_gbs < floor.fail_gbs
    measured = f"{row.busbw_gbs:g} GB/s at {row.size_bytes} bytes over {nodes} node{'s' * (nodes > 1)}, {output.ranks} ranks"
    if output.wrong is None:
        measured += "; results were not validated"
    line = row.line
    sockets = first_line(_SOCKETS, output.lines) or _without_plugin(output, machine)
    if sockets and slow and nodes > 1 and (floor or machine.split(".")[0] in EFA_TYPES):
        verdict, cause, line = Verdict.CRITICAL, causes.WRONG_TRANSPORT, sockets
        advice = "mend the EFA plug-in or its libraries on these nodes; no node is at fault, none is to be replaced"
        measured += f"; {sockets.strip()}"
    elif floor is None:
        verdict, cause = Verdict.UNKNOWN, causes.CONFIGURATION
        advice = f'set a floor for "{machine or "TYPE"}/{nodes}" in burn_in.floors_gbs'
        measured += "; " + _which_floor(output, machine, nodes)
    elif slow and _is_ring_rate(output, row, nodes):
        verdict, cause = Verdict.WARN, causes.CONFIGURATION
        advice = "the node runs at the NVLink ring rate: find out why NVLS is off (NCCL_NVLS_ENABLE, Fabric Manager, driver)"
    elif slow:
        verdict, cause, advice = Verdict.CRITICAL, causes.LOW_BANDWIDTH, "find the slow node by smaller groups"
    elif row.busbw_gbs < floor.warn_gbs:
        verdict, cause, advice = Verdict.WARN, causes.LOW_BANDWIDTH, "repeat the run; if it stays there, test the nodes in pairs"
    elif output.minimum_failed:
        verdict, cause, advice = Verdict.WARN, causes.LOW_BANDWIDTH, "see whether NCCL_TESTS_MIN_BW fits the sizes of the run"
        measured += "; the tool's own minimum for the average was missed"
    else:
        verdict, cause, advice = Verdict.OK, causes.HEALTHY, ""
    return Judgement(
        verdict,
        cause,
        row.busbw_gbs,
        floor.fail_gbs if floor else None,
        floor_source=floor.source if floor else "",
        wrong=output.wrong,
        next=advice,
        evidence=measured,
        line=line,
    )


def _without_plugin(output: NcclOutput, machine: str) -> str:
    """Return the line that says that NCCL has no plug-in for EFA, where only that reaches EFA; empty if EFA was used."""
    if machine.split(".")[0] not in EFA_TYPES or first_line(_EFA_IN_USE, output.lines):
        return ""
    return first_line(_NO_PLUGIN, output.lines)


def _which_floor(output: NcclOutput, machine: str, nodes: int) -> str:
    """Name the floor that is missing."""
    if output.collective not in ("", "all_reduce"):
        return f"floors are of all_reduce, this is {output.collective}"
    where = f"{machine or output.gpu_name or 'this GPU'} with {nodes} node{'s' * (nodes > 1)}"
    return f"no floor is known for {where}, {output.ranks} ranks and this message size"


def _is_ring_rate(output: NcclOutput, row: Row, nodes: int) -> bool:
    """True for an H100 or H200 node whose bandwidth is that of the NVLink ring and whose output shows no use of NVLS."""
    low, high = NVLINK_RING_GBS
    uses_nvls = first_line(_NVLS, output.lines) and not first_line(_NO_NVLS, output.lines)
    return (
        nodes == 1
        and output.ranks == 8
        and family_of("", output.gpu_name) in ("H100", "H200")
        and low <= row.busbw_gbs <= high
        and not uses_nvls
    )
