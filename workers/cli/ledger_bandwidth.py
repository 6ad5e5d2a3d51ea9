"""`hotspare ledger --bandwidth`: what clean group runs gave, by machines, group, message size and software, and its drift."""

from __future__ import annotations

import statistics
from datetime import datetime

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from activities.bandwidth_records import BandwidthRecord
from activities.host_memory import HostMemory
from activities.settings_burn_in import LearnedSettings
from checks.judges.learned import learned_from
from workers.cli.common import Answer

NEWEST = 5
"""Newest and oldest runs whose medians are compared. Hotspare default: fewer are moved by one odd run."""


class BandwidthLine(BaseModel):
    """One kind of run. Without a `floor_gbs` too few runs are known; `drift` compares the newest with the oldest kept."""

    kind: str
    runs: int
    median_gbs: float
    mad_gbs: float
    floor_gbs: float | None
    drift: float | None
    last: datetime


def bandwidths(memory: HostMemory, settings: LearnedSettings) -> list[BandwidthLine]:
    """Gather what was learned, the latest first."""
    lines = [_line(record, settings) for record in memory.bandwidths() if record.runs]
    return sorted(lines, key=lambda line: line.last, reverse=True)


def _line(record: BandwidthRecord, settings: LearnedSettings) -> BandwidthLine:
    values = record.values
    median = statistics.median(values)
    learned = learned_from(values, settings.rules)
    old, new = statistics.median(values[:NEWEST]), statistics.median(values[-NEWEST:])
    return BandwidthLine(
        kind=record.key,
        runs=record.seen,
        median_gbs=round(median, 2),
        mad_gbs=round(statistics.median(abs(value - median) for value in values), 2),
        floor_gbs=learned.floor.fail_gbs if learned else None,
        drift=round(new / old - 1, 4) if len(values) >= 2 * NEWEST else None,
        last=record.runs[-1].at,
    )


def tell_bandwidths(answer: Answer, lines: list[BandwidthLine], least_runs: int) -> None:
    """Show them as a table."""
    if not lines:
        answer.say("no clean group run is remembered yet: burn-ins that accuse nobody write them")
        return
    table = Table("clean runs of", "runs", "median GB/s", "MAD", "fails below", f"newest {NEWEST} to oldest")
    for line in lines:
        table.add_row(
            Text(line.kind),
            str(line.runs),
            f"{line.median_gbs:g}",
            f"{line.mad_gbs:g}",
            f"{line.floor_gbs:g}" if line.floor_gbs is not None else f"from {least_runs} runs on",
            "" if line.drift is None else f"{line.drift:+.1%}",
        )
    answer.say(table)
