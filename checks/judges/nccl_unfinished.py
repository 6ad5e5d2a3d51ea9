"""Judges nccl-tests runs that did not come to their footer: set-up, GPU, network, the tool's own time limit, or a hang."""

from __future__ import annotations

import re
from typing import Optional

from checks.judges import judgement as causes
from checks.judges.judgement import KILLED_STATUSES, Judgement, unknown
from checks.judges.nccl_output import NcclOutput
from checks.judges.text import first_line, last_line
from checks.model import Verdict

_TIMEOUT = re.compile(r"(\S+): Test timeout \(\d+s\)")
_GPU_ERROR = re.compile(
    r"Cuda failure|CUDA failure|CUDA error|unhandled cuda error|uncorrectable ECC|unspecified launch failure|fell off the bus"
)
_SET_UP = re.compile(
    r"out of memory|driver version is insufficient|no CUDA-capable device|system not yet initialized|invalid device ordinal"
    r"|no kernel image|Invalid number of GPUs|unsupported toolchain|unsupported display driver|mismatched NCCL version"
    r"|Duplicate GPU detected|invalid device function",
    re.IGNORECASE,
)
"""CUDA and launch errors that speak of the node's set-up: memory held by others, driver, Fabric Manager, missing devices."""
_KILLED = re.compile(r"DUE TO TIME LIMIT|task \d+: (?:Killed|Terminated)|exited on signal (?:9|15)\b|timeout: sending signal")
_NETWORK_ERROR = re.compile(
    r"NET/(?:IB|OFI|Socket).{0,40}(?:WARN|completion|[Ff]ailed|error)|WARN NET/|remote process exited or there was a network"
    r"|Connection (?:refused|reset|closed)|lost communication with a remote daemon|No route to host"
)
_LAUNCH_ERROR = re.compile(
    r"not enough slots|command not found|No such file or directory|error while loading shared libraries"
    r"|(?<!errno=)Permission denied|Host key verification failed|ssh: connect to host|unable to reliably start"
    r"|mpirun was unable|srun: error|could not resolve hostname|PMIX ERROR|exited on signal|Test NCCL failure"
    r"|lost communication with a remote daemon|Error from server|No nodes are available|waiting to start|MPI_INIT failed"
    r"|The value of the MCA parameter",
    re.IGNORECASE,
)
_DEAD_RANK = re.compile(r"process rank \d+ with PID \d+ on node (\S+) exited on signal (?!15\b)\d+")
"""What mpirun says of a rank that ended first. Signal 15 is mpirun's own, for every rank that is left."""
_PEER = re.compile(r"(?:\bpeer|recv from|send to|[Cc]onnect to) ([\w.:-]{1,80}?)(?:<\d+>|[\s,])")
_HCA = re.compile(r"\bhca (\S+)")
_HOST = re.compile(r"connect to host (\S+?)(?:\.)?(?: port|:|\s)")


def judge_not_started(output: NcclOutput, exit_status: Optional[int]) -> Judgement:
    """Judge output in which nothing is of the tool itself: it says nothing of the hardware, unless it names a GPU's error."""
    launch = first_line(_SET_UP, output.lines) or first_line(_LAUNCH_ERROR, output.lines)
    if launch:
        hosts = dict.fromkeys(host for line in output.lines for host in _HOST.findall(line[:2000]))
        culprits = tuple(f"host {host}" for host in hosts)
        advice = "mend the launch command or the host that it names, then run again"
        return unknown(causes.COULD_NOT_RUN, launch, advice, culprits, launch)
    gpu = first_line(_GPU_ERROR, output.lines)
    if gpu:
        advice = "probe the GPUs of the group's nodes"
        return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, next=advice, evidence=gpu, line=gpu)
    last = last_line(output.lines)
    if not last or exit_status not in (None, 0):
        what = f"{last or 'the run printed nothing'} (exit status {exit_status})"
        return unknown(causes.COULD_NOT_RUN, what, "run again by hand to see why it does not start", line=last)
    return unknown(causes.UNREADABLE, last, "this is not the output of nccl-tests", line=last)


def judge_not_finished(output: NcclOutput, exit_status: Optional[int]) -> Judgement:
    """Judge output without a footer: by the error that is printed, else as a hang."""
    timeout = first_line(_TIMEOUT, output.lines)
    if timeout:
        advice = "find the bad node by smaller groups; the host that reports it waited and need not be at fault"
        return Judgement(Verdict.CRITICAL, causes.TOOL_TIMEOUT, next=advice, evidence=timeout, line=timeout)
    set_up = first_line(_SET_UP, output.lines)
    if set_up:
        advice = "look for processes that hold the GPUs, then at driver, Fabric Manager and GPU count of this host"
        return unknown(causes.COULD_NOT_RUN, set_up, advice, _log_hosts(set_up), set_up)
    gpu = first_line(_GPU_ERROR, output.lines)
    if gpu:
        advice = "probe the GPUs of this host"
        return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, culprits=_log_hosts(gpu), next=advice, evidence=gpu, line=gpu)
    network = first_line(_NETWORK_ERROR, output.lines)
    if network:
        named = [f"peer {peer}" for peer in _PEER.findall(network)] + [f"hca {hca}" for hca in _HCA.findall(network)]
        culprits = tuple(named) + _log_hosts(network)
        advice = "look at the peer and its adapter first, then at the host that reports it"
        return Judgement(Verdict.CRITICAL, causes.NETWORK_ERROR, culprits=culprits, next=advice, evidence=network, line=network)
    killed = exit_status in KILLED_STATUSES or bool(first_line(_KILLED, output.lines))
    launch = first_line(_LAUNCH_ERROR, output.lines)
    if launch and not killed:
        advice = "mend the launch command or the host that it names, then run again"
        return unknown(causes.COULD_NOT_RUN, launch, advice, _dead_ranks(output), launch)
    ended = "was ended" if killed else "stops"
    reached = f"after the row of {output.largest.size_bytes} bytes" if output.largest else "before the first row"
    dead = first_line(_DEAD_RANK, output.lines)
    return Judgement(
        Verdict.CRITICAL,
        causes.HANG,
        output.largest.busbw_gbs if output.largest else None,
        culprits=_dead_ranks(output),
        next="find the bad node by smaller groups",
        evidence=f"the output {ended} {reached}, without its footer" + (f": {dead}" if dead else ""),
        line=dead or last_line(output.lines),
    )


def _dead_ranks(output: NcclOutput) -> tuple[str, ...]:
    """Name the hosts of ranks that ended by a signal of their own."""
    return tuple(dict.fromkeys(f"host {host}" for line in output.lines for host in _DEAD_RANK.findall(line[:2000])))


def _log_hosts(line: str) -> tuple[str, ...]:
    """Name the host that printed an NCCL log line ("host:pid:tid [gpu] ...") or a test failure ("host: Test ...")."""
    match = re.match(r"(?:\s*\.\.\s)?([\w.-]+)(?::\d+:\d+|: Test| pid)", line)
    return (f"host {match.group(1)}",) if match else ()
