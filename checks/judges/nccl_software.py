"""The software that an nccl-tests run used, as its output tells: NCCL, and the plug-in that takes NCCL to EFA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NCCL = re.compile(r"\bNCCL version (\d+\.\d+\.\d+)")
_HEADER = re.compile(r"^# nccl-tests version \S+.*\bnccl-library=(\d{5,6})\b")
_PLUGIN = re.compile(r"NET/OFI Initializing aws-ofi-nccl (?:GitHub-dev|v?(\d[\w.]*))")


@dataclass(frozen=True)
class Software:
    """Versions, each empty where the output does not tell it."""

    nccl: str = ""
    plugin: str = ""


def software_of(lines: Sequence[str], nccl_code: int = 0) -> Software:
    """Read the versions from a run's lines; `nccl_code` is NCCL's own number, such as 22809, which the JSON carries."""
    nccl = _first(_NCCL, lines) or nccl_version(nccl_code) or nccl_version(int(_first(_HEADER, lines) or 0))
    return Software(nccl=nccl, plugin=_first(_PLUGIN, lines))


def nccl_version(code: int) -> str:
    """Write NCCL's number as people do: 22809 is 2.28.9. Empty for 0. Source: NCCL_VERSION in nccl.h, since 2.9."""
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}" if code >= 10_000 else ""


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    return next((match.group(1) or "" for match in map(pattern.search, lines) if match), "")
