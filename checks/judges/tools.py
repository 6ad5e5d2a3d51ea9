"""The one way to judge a test tool's output: by the name of the tool."""

from __future__ import annotations

from typing import Callable, Optional

from checks.judges import dcgm, gpu_burn, ib_write_bw, nccl_tests, nvbandwidth
from checks.judges.floors import OwnFloors
from checks.judges.judgement import Judgement, worst
from checks.judges.text import streams

TOOLS = ("nccl-tests", "dcgm", "gpu-burn", "nvbandwidth", "ib_write_bw")


def judge(
    tool: str,
    text: str,
    *,
    instance_type: str = "",
    nodes: Optional[int] = None,
    link_gbits: Optional[float] = None,
    floors: Optional[OwnFloors] = None,
    exit_status: Optional[int] = None,
) -> Judgement:
    """Judge what one of `TOOLS` printed. Raises ValueError for another tool; any text has a judgement.

    `nodes` counts for nccl-tests, `link_gbits` (rate of one port) for ib_write_bw; `exit_status` is that of the tool, None when
    not known. Where a launcher labelled the lines of several tasks or hosts, each of them is judged, and the worst one told.
    """
    if tool == "nccl-tests":
        # Its first process prints for all.
        return nccl_tests.judge(text, instance_type, nodes, exit_status, floors)
    one: dict[str, Callable[[str], Judgement]] = {
        "dcgm": lambda part: dcgm.judge(part, instance_type, exit_status),
        "gpu-burn": lambda part: gpu_burn.judge(part, instance_type, exit_status),
        "nvbandwidth": lambda part: nvbandwidth.judge(part, instance_type, floors, exit_status),
        "ib_write_bw": lambda part: ib_write_bw.judge(part, link_gbits, floors, exit_status),
    }
    if tool not in one:
        raise ValueError(f"no judge for {tool!r}; there are {', '.join(TOOLS)}")
    return worst([(label, one[tool](part)) for label, part in streams(text)])
