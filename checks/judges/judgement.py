"""The answer of every judge, and the words for its cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from checks.model import Verdict

HEALTHY = "healthy"
DATA_CORRUPTION = "data_corruption"
LOW_BANDWIDTH = "low_bandwidth"
WRONG_TRANSPORT = "wrong_transport"
HANG = "hang"
TOOL_TIMEOUT = "tool_timeout"
NETWORK_ERROR = "network_error"
GPU_ERROR = "gpu_error"
CONFIGURATION = "configuration"
COULD_NOT_RUN = "could_not_run"
UNREADABLE = "unreadable"

CAUSES = frozenset(
    {
        HEALTHY,
        DATA_CORRUPTION,
        LOW_BANDWIDTH,
        WRONG_TRANSPORT,
        HANG,
        TOOL_TIMEOUT,
        NETWORK_ERROR,
        GPU_ERROR,
        CONFIGURATION,
        COULD_NOT_RUN,
        UNREADABLE,
    }
)


@dataclass(frozen=True)
class Judgement:
    """Verdict on one run of a tool.

    `cause` is one of `CAUSES`. Bandwidths are bus bandwidth in GB/s. `wrong` counts wrong elements, None where results were not
    validated. `culprits` names what the output itself blames ("peer 192.0.2.12", "host node-3"); `next` is what to do.
    """

    verdict: Verdict
    cause: str
    busbw_gbs: Optional[float] = None
    floor_gbs: Optional[float] = None
    floor_source: str = ""
    wrong: Optional[int] = None
    culprits: tuple[str, ...] = ()
    next: str = ""
    evidence: str = ""
