"""The answer of every judge, and the words for its cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from checks.model import Verdict

HEALTHY = "healthy"
MEASURED = "measured"
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
        MEASURED,
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

GB_PER_S = "GB/s"
GBIT_PER_S = "Gb/s"

KILLED_STATUSES = frozenset({124, 137, 143, -9, -15})
"""Exit statuses of a run that its deadline ended: 124 from timeout(1), 128 + signal from a shell, -signal from Python."""

_WORST_FIRST = (Verdict.CRITICAL, Verdict.WARN, Verdict.UNKNOWN, Verdict.OK)
"""What was seen to be wrong comes before what could not be told."""


@dataclass(frozen=True)
class Judgement:
    """Verdict on one run of a tool.

    `cause` is one of `CAUSES`. `measured` and `floor` are in `unit`; `floor_source` says where the floor is from. `wrong` counts
    wrong results, None where results were not validated. `culprits` names what the output itself blames ("GPU 3",
    "GPU 1 -> GPU 3", "peer 192.0.2.12", "host node-3", "device mlx5_3"); `next` is what to do; `evidence` says it in words and
    `line` is the line of the output that decided, empty where it was the absence of one. `drift` says how far a run is from what
    clean ones gave.
    """

    verdict: Verdict
    cause: str
    measured: Optional[float] = None
    floor: Optional[float] = None
    unit: str = GB_PER_S
    floor_source: str = ""
    wrong: Optional[int] = None
    culprits: tuple[str, ...] = ()
    next: str = ""
    evidence: str = ""
    line: str = ""
    drift: str = ""

    @property
    def busbw_gbs(self) -> Optional[float]:
        """Bus bandwidth in GB/s, None where none was measured."""
        return self.measured if self.unit == GB_PER_S else None

    @property
    def floor_gbs(self) -> Optional[float]:
        """The floor in GB/s, None where none is known."""
        return self.floor if self.unit == GB_PER_S else None

    def document(self) -> dict[str, Any]:
        """Return the judgement as JSON types, as `hotspare judge --json` prints it."""
        return {
            "verdict": self.verdict.value,
            "cause": self.cause,
            "culprits": list(self.culprits),
            "next": self.next,
            "evidence": {
                "text": self.evidence,
                "line": self.line,
                "number": self.measured,
                "unit": self.unit if self.measured is not None else None,
                "floor": self.floor,
                "floor_source": self.floor_source,
                "wrong_results": self.wrong,
            },
        }


def unknown(cause: str, evidence: str, advice: str, culprits: tuple[str, ...] = (), line: str = "") -> Judgement:
    """Return the judgement on a run that tells nothing of the hardware."""
    return Judgement(Verdict.UNKNOWN, cause, culprits=culprits, next=advice, evidence=evidence, line=line)


def unreadable(tool: str, evidence: str) -> Judgement:
    """Return the judgement on text that is cut or is not what the tool prints."""
    return unknown(UNREADABLE, evidence, f"run {tool} again and keep its whole output")


def worst(judgements: Sequence[tuple[str, Judgement]]) -> Judgement:
    """Join the judgements of several runs, each with its name: the worst one, with the culprits of all that are as bad."""
    if len(judgements) == 1:
        return judgements[0][1]
    label, first = min(judgements, key=lambda pair: _WORST_FIRST.index(pair[1].verdict))
    alike = [(name, one) for name, one in judgements if one.verdict is first.verdict]
    named = [name for name, _ in alike if name] if first.verdict is not Verdict.OK else []
    culprits = tuple(dict.fromkeys([culprit for _, one in alike for culprit in one.culprits] + named))
    count = f"{len(alike)} of {len(judgements)} runs are {first.verdict.value}"
    return replace(first, culprits=culprits, evidence=f"{count}; {f'{label}: ' if label else ''}{first.evidence}")
