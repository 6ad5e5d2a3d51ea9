"""Judges one run of gpu-burn: every GPU computed, and computed right, or which did not."""

from __future__ import annotations

import re
import statistics
from typing import Optional

from checks.catalog import expected_gpus
from checks.judges import judgement as causes
from checks.judges.gpu_burn_output import GpuBurnOutput, read
from checks.judges.judgement import KILLED_STATUSES, Judgement, unknown, unreadable
from checks.judges.text import first_line, last_line
from checks.model import Verdict

SLOW_SHARE = 0.90
"""A GPU below this share of the median of its peers warns. Hotspare default, the distance at which bandwidth fails too."""

_COULD_NOT_START = re.compile(
    r"No CUDA devices|no CUDA-capable device|Couldn't init CUDA|driver version is insufficient"
    r"|couldn't find compare kernel|command not found|No such file or directory"
    r"|error while loading shared libraries|Permission denied|Low mem for result",
    re.IGNORECASE,
)
_GPU_FAILED = re.compile(r"Failure during compute|Couldn't init a GPU test|ECC error|unspecified launch failure|illegal address")


def judge(text: str, instance_type: str = "", exit_status: Optional[int] = None) -> Judgement:
    """Judge the output of gpu-burn, plain and without prefixes. Never OK unless the summary names every GPU as OK."""
    output = read(text)
    fault = _fault(output)
    if fault:
        return fault
    if output.tested is None:
        return _not_finished(output, exit_status)
    named = {gpu for gpu, _ in output.results}
    if len(named) != output.tested or len(output.results) != output.tested or not named:
        evidence = f"the summary announces {output.tested} GPUs and names {len(named)} in {len(output.results)} lines"
        return unreadable("gpu-burn", evidence)
    expected = max(expected_gpus(instance_type) or 0, output.listed)
    if output.tested < expected:
        evidence = f"{output.tested} of {expected} GPUs were tested"
        return unknown(causes.COULD_NOT_RUN, evidence, "run it on all GPUs: without -i and CUDA_VISIBLE_DEVICES")
    if exit_status not in (None, 0):
        evidence = f"the summary says OK, yet the exit status is {exit_status}: {last_line(output.lines)}"
        return unknown(causes.COULD_NOT_RUN, evidence, "run again and look at its end")
    return _slow(output) or Judgement(
        Verdict.OK,
        causes.HEALTHY,
        evidence=f"{output.tested} GPUs computed without a wrong result",
        line=last_line(output.lines),
    )


def _fault(output: GpuBurnOutput) -> Optional[Judgement]:
    bad = output.faulty or output.idle
    if not bad and not output.all_dead:
        return None
    if output.dead or output.all_dead:
        what, advice = "the process of {} died", "look for XIDs of that time in the kernel log, and probe the GPU"
    elif output.faulty:
        what, advice = "{} computed wrong results", "take the node out of use and run DCGM diagnostics at level 3"
    else:
        what, advice = "{} computed nothing", "look for XIDs of that time in the kernel log, and probe the GPU"
    culprits = tuple(f"GPU {gpu}" for gpu in (output.dead or bad))
    wrong = sum(count for report in output.progress for count in report.errors if count > 0)
    return Judgement(
        Verdict.CRITICAL,
        causes.GPU_ERROR,
        wrong=wrong,
        culprits=tuple(dict.fromkeys(culprits + tuple(f"GPU {gpu}" for gpu in bad))),
        next=advice,
        evidence=what.format(", ".join(culprits) or "every GPU"),
        line=_telling_line(output),
    )


def _telling_line(output: GpuBurnOutput) -> str:
    """The line that accuses: the summary's, else the first report with a death or an error."""
    reports = (report.line for report in output.progress if any(report.errors) or any(report.died))
    return first_line(re.compile(r"^\s*GPU \d+: FAULTY"), output.lines).strip() or next(reports, "") or last_line(output.lines)


def _not_finished(output: GpuBurnOutput, exit_status: Optional[int]) -> Judgement:
    gpu = first_line(_GPU_FAILED, output.lines)
    launch = first_line(_COULD_NOT_START, output.lines)
    if launch and not output.progress:
        advice = "mend what it misses on this node, then run again; if the driver sees no GPU, probe the node"
        return unknown(causes.COULD_NOT_RUN, launch, advice, line=launch)
    if gpu:
        advice = "look for XIDs of that time in the kernel log, and probe the GPUs"
        return Judgement(Verdict.CRITICAL, causes.GPU_ERROR, next=advice, evidence=gpu, line=gpu)
    if output.started or output.progress:
        ended = "was ended" if exit_status in KILLED_STATUSES else "stops"
        where = f"at {output.progress[-1].percent:g} %" if output.progress else "before the first report"
        evidence = f"the output {ended} {where}, without its summary"
        line = last_line(output.lines)
        return Judgement(Verdict.CRITICAL, causes.HANG, next="probe the node's GPUs", evidence=evidence, line=line)
    if exit_status not in (None, 0) or not last_line(output.lines):
        what = f"{last_line(output.lines) or 'the run printed nothing'} (exit status {exit_status})"
        return unknown(causes.COULD_NOT_RUN, what, "run again by hand to see why it does not start")
    return unreadable("gpu-burn", f"this is not the output of gpu-burn: {last_line(output.lines)}")


def _slow(output: GpuBurnOutput) -> Optional[Judgement]:
    speeds = output.speeds
    if len(speeds) < 3:
        return None
    median = statistics.median(speeds)
    slow = [gpu for gpu, speed in enumerate(speeds) if speed < SLOW_SHARE * median]
    if not slow:
        return None
    worst = min(slow, key=lambda gpu: speeds[gpu])
    return Judgement(
        Verdict.WARN,
        causes.GPU_ERROR,
        speeds[worst],
        round(SLOW_SHARE * median, 1),
        unit="Gflop/s",
        floor_source=f"{SLOW_SHARE:.0%} of the median of {len(speeds)} GPUs",
        culprits=tuple(f"GPU {gpu}" for gpu in slow),
        next="look at power, temperature and clocks of the slow GPU",
        evidence=f"GPU {worst} computed {speeds[worst]:.0f} Gflop/s where its peers computed {median:.0f}",
        line=output.progress[-1].line,
    )
