"""Judges one run of an nccl-tests collective (`all_reduce_perf`): right results, full bandwidth, or why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from checks.catalog import expected_gpus
from checks.judges import judgement as causes
from checks.judges.floors import Floor, family_of, find_floor
from checks.judges.judgement import Judgement
from checks.judges.nccl_output import NcclOutput, NotReadable, Row, read
from checks.model import Verdict

KILLED_STATUSES = frozenset({124, 137, 143, -9, -15})
"""Exit statuses of a run that its deadline ended: 124 from timeout(1), 128 + signal from a shell, -signal from Python."""

EFA_TYPES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200")
"""Instance families whose nodes talk over EFA, so that plain sockets are a fault. Source: EC2 instance type pages."""

NVLINK_RING_GBS = (340.0, 385.0)
"""Bus bandwidth of an 8-GPU H100 or H200 node without NVLS, about 362. Source: maintainer's note, nccl-tests issue 212."""

_SOCKETS = re.compile(r"Using network Socket|Selected [Pp]rovider is (?:tcp|udp|sockets)")
_TIMEOUT = re.compile(r"(\S+): Test timeout \(\d+s\)")
_GPU_ERROR = re.compile(r"Cuda failure|CUDA failure|CUDA error|uncorrectable ECC|unspecified launch failure|fell off the bus")
_NETWORK_ERROR = re.compile(
    r"NET/(?:IB|OFI|Socket).{0,40}(?:WARN|completion|[Ff]ailed|error)|WARN NET/|remote process exited or there was a network"
    r"|Connection (?:refused|reset|closed)|lost communication with a remote daemon|No route to host"
)
_LAUNCH_ERROR = re.compile(
    r"not enough slots|command not found|No such file or directory|error while loading shared libraries|Permission denied"
    r"|Host key verification failed|ssh: connect to host|unable to reliably start|mpirun was unable|srun: error"
    r"|could not resolve hostname|PMIX ERROR|no CUDA-capable device",
    re.IGNORECASE,
)
_PEER = re.compile(r"from peer (\S+?)(?:<\d+>)?[\s,]")
_HCA = re.compile(r"\bhca (\S+)")
_HOST = re.compile(r"connect to host (\S+?)(?:\.)?(?: port|:|\s)")


def judge(
    text: str,
    instance_type: str = "",
    nodes: Optional[int] = None,
    exit_status: Optional[int] = None,
    floors: Optional[Mapping[str, float]] = None,
) -> Judgement:
    """Judge a run's output.

    `nodes` is how many nodes took part (None: as many hosts as the output names), `exit_status` that of the launcher (None: not
    known), `floors` own floors as "type/nodes" = GB/s. Never OK unless a footer was printed and the bandwidth met a known floor,
    or a single rank ran, whose bus bandwidth is zero by definition.
    """
    try:
        output = read(text)
    except NotReadable as error:
        return _unknown(causes.UNREADABLE, str(error), "run the test again and keep its whole output")
    corruption = _corruption(output)
    if corruption:
        return corruption
    if not output.started:
        return _not_started(text, output, exit_status)
    if not output.complete:
        return _not_finished(output, exit_status)
    return _finished(output, instance_type, nodes or max(1, len(output.hosts)), exit_status, floors or {})


def _corruption(output: NcclOutput) -> Optional[Judgement]:
    wrong = max(output.wrong or 0, output.out_of_bounds or 0)
    if not wrong and not output.bounds_failed:
        return None
    return Judgement(
        Verdict.CRITICAL,
        causes.DATA_CORRUPTION,
        busbw_gbs=output.largest.busbw_gbs if output.largest else None,
        wrong=wrong,
        next="take the group out of use, find the bad node by smaller groups, and restart the job from before the first evidence",
        evidence=f"{wrong} wrong results: the all-reduce gave numbers that are not the sum",
    )


def _not_started(text: str, output: NcclOutput, exit_status: Optional[int]) -> Judgement:
    """Nothing of the tool itself was printed, so this says nothing of the hardware."""
    launch = _first(_LAUNCH_ERROR, output)
    culprits = tuple(f"host {host}" for host in dict.fromkeys(_HOST.findall(text)))
    if launch:
        return _unknown(
            causes.COULD_NOT_RUN, launch, "mend the launch command or the host that it names, then run again", culprits
        )
    gpu = _first(_GPU_ERROR, output)
    if gpu:
        return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, next="probe the GPUs of the group's nodes", evidence=gpu)
    if not text.strip() or exit_status not in (None, 0):
        what = _last_line(output) or "the run printed nothing"
        return _unknown(
            causes.COULD_NOT_RUN, f"{what} (exit status {exit_status})", "run again by hand to see why it does not start"
        )
    return _unknown(causes.UNREADABLE, _last_line(output), "this is not the output of nccl-tests")


def _not_finished(output: NcclOutput, exit_status: Optional[int]) -> Judgement:
    """The footer is missing: an error that is printed, else a hang."""
    timeout = _first(_TIMEOUT, output)
    if timeout:
        return Judgement(Verdict.CRITICAL, causes.TOOL_TIMEOUT, next="find the bad node by smaller groups", evidence=timeout)
    gpu = _first(_GPU_ERROR, output)
    if gpu:
        culprits = _log_hosts(gpu)
        return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, culprits=culprits, next="probe the GPUs of this host", evidence=gpu)
    network = _first(_NETWORK_ERROR, output)
    if network:
        named = [f"peer {peer}" for peer in _PEER.findall(network)] + [f"hca {hca}" for hca in _HCA.findall(network)]
        culprits = tuple(named) + _log_hosts(network)
        advice = "look at the peer and its adapter first, then at the host that reports it"
        return Judgement(Verdict.CRITICAL, causes.NETWORK_ERROR, culprits=culprits, next=advice, evidence=network)
    launch = _first(_LAUNCH_ERROR, output)
    if launch and exit_status not in KILLED_STATUSES:
        return _unknown(causes.COULD_NOT_RUN, launch, "mend the launch command or the host that it names, then run again")
    ended = "was ended" if exit_status in KILLED_STATUSES else "stops"
    reached = f"after the row of {output.largest.size_bytes} bytes" if output.largest else "before the first row"
    return Judgement(
        Verdict.CRITICAL,
        causes.HANG,
        busbw_gbs=output.largest.busbw_gbs if output.largest else None,
        next="find the bad node by smaller groups",
        evidence=f"the output {ended} {reached}, without its footer",
    )


def _finished(
    output: NcclOutput, instance_type: str, nodes: int, exit_status: Optional[int], floors: Mapping[str, float]
) -> Judgement:
    row = output.largest
    if row is None:
        return _unknown(
            causes.UNREADABLE, "the footer is there, but no row could be read", "keep the whole output and judge it again"
        )
    absent = _absent(output, instance_type, nodes)
    if absent:
        return _unknown(causes.COULD_NOT_RUN, absent, "check that the tool is built with MPI and that every host takes part")
    if exit_status not in (None, 0) and not output.minimum_failed:
        evidence = f"the table is complete, yet the exit status is {exit_status}: {_last_line(output)}"
        return _unknown(causes.COULD_NOT_RUN, evidence, "run again; a launcher that fails after the test hides its result")
    if output.ranks == 1:
        return Judgement(
            Verdict.OK, causes.HEALTHY, row.busbw_gbs, wrong=output.wrong, evidence="one rank: bus bandwidth is 0 by definition"
        )
    family = family_of(instance_type, output.gpu_name)
    floor = find_floor(floors, instance_type, family, nodes, output.ranks, row.size_bytes)
    return _against_floor(output, row, floor, instance_type or family, nodes)


def _absent(output: NcclOutput, instance_type: str, nodes: int) -> str:
    """Say who did not take part, empty if all did: each process alone prints a flawless table of its own."""
    if len(output.hosts) < nodes:
        return f"{len(output.hosts)} of {nodes} hosts took part ({', '.join(output.hosts) or 'none is named'})"
    if output.ranks == 1 and nodes * (expected_gpus(instance_type) or 1) > 1:
        return f"one rank ran where {instance_type} has {expected_gpus(instance_type)} GPUs"
    return ""


def _against_floor(output: NcclOutput, row: Row, floor: Optional[Floor], machine: str, nodes: int) -> Judgement:
    slow = floor is None or row.busbw_gbs < floor.fail_gbs
    measured = f"{row.busbw_gbs:g} GB/s at {row.size_bytes} bytes over {nodes} node{'s' * (nodes > 1)}, {output.ranks} ranks"
    sockets = _first(_SOCKETS, output)
    if sockets and slow and nodes > 1 and (floor or machine.split(".")[0] in EFA_TYPES):
        verdict, cause = Verdict.CRITICAL, causes.WRONG_TRANSPORT
        advice = "mend the EFA plug-in or its libraries on these nodes; no node is at fault"
        measured += f"; {sockets.strip()}"
    elif floor is None:
        verdict, cause = Verdict.UNKNOWN, causes.CONFIGURATION
        advice = f'set a floor for "{machine or "TYPE"}/{nodes}" in burn_in.floors_gbs'
        measured += f"; no floor is known for {machine or output.gpu_name or 'this GPU'} with {nodes} nodes and this message size"
    elif slow and _is_ring_rate(output, row, nodes):
        verdict, cause = Verdict.WARN, causes.CONFIGURATION
        advice = "the node runs at the NVLink ring rate: find out why NVLS is off (NCCL_NVLS_ENABLE, Fabric Manager, driver)"
    elif slow:
        verdict, cause, advice = Verdict.CRITICAL, causes.LOW_BANDWIDTH, "find the slow node by smaller groups"
    elif row.busbw_gbs < floor.warn_gbs:
        verdict, cause, advice = Verdict.WARN, causes.LOW_BANDWIDTH, "repeat the run; if it stays there, test the nodes in pairs"
    else:
        verdict, cause, advice = Verdict.OK, causes.HEALTHY, ""
    return Judgement(
        verdict,
        cause,
        busbw_gbs=row.busbw_gbs,
        floor_gbs=floor.fail_gbs if floor else None,
        floor_source=floor.source if floor else "",
        wrong=output.wrong,
        next=advice,
        evidence=measured,
    )


def _is_ring_rate(output: NcclOutput, row: Row, nodes: int) -> bool:
    """True for an H100 or H200 node whose bandwidth is that of the NVLink ring and whose output shows no use of NVLS."""
    low, high = NVLINK_RING_GBS
    uses_nvls = any("NVLS" in line for line in output.lines)
    return (
        nodes == 1
        and output.ranks == 8
        and family_of("", output.gpu_name) in ("H100", "H200")
        and low <= row.busbw_gbs <= high
        and not uses_nvls
    )


def _log_hosts(line: str) -> tuple[str, ...]:
    """Name the host that printed an NCCL log line ("host:pid:tid [gpu] ...") or a test failure ("host: Test ...")."""
    match = re.match(r"(?:\s*\.\.\s)?([\w.-]+)(?::\d+:\d+|: Test| pid)", line)
    return (f"host {match.group(1)}",) if match else ()


def _first(pattern: re.Pattern[str], output: NcclOutput) -> str:
    return next((line[:400] for line in output.lines if pattern.search(line[:2000])), "")


def _last_line(output: NcclOutput) -> str:
    return next((line.strip()[:400] for line in reversed(output.lines) if line.strip(" -\t")), "")


def _unknown(cause: str, evidence: str, advice: str, culprits: tuple[str, ...] = ()) -> Judgement:
    return Judgement(Verdict.UNKNOWN, cause, culprits=culprits, next=advice, evidence=evidence)
