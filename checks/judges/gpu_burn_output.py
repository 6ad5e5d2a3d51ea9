"""Reads what gpu-burn prints: progress reports, deaths, and the result of each GPU."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Progress:
    """One progress report: per GPU the products computed (-1: its process died), Gflop/s, and wrong results since the last."""

    percent: float
    computed: tuple[int, ...]
    gflops: tuple[float, ...]
    errors: tuple[int, ...]
    died: tuple[bool, ...]
    line: str


@dataclass(frozen=True)
class GpuBurnOutput:
    """A run as its output tells it. `results` are the final words by GPU index, `tested` how many GPUs the summary announces."""

    listed: int
    progress: tuple[Progress, ...]
    tested: Optional[int]
    results: tuple[tuple[int, str], ...]
    all_dead: bool
    started: bool
    lines: tuple[str, ...]

    @property
    def faulty(self) -> tuple[int, ...]:
        """GPUs with wrong results or a dead process at any time. The summary alone may leave a dead one out."""
        found = {gpu for gpu, word in self.results if word == "FAULTY"}
        for report in self.progress:
            found |= {gpu for gpu, count in enumerate(report.errors) if count != 0}
            found |= self._dead(report)
        return tuple(sorted(found))

    @property
    def dead(self) -> tuple[int, ...]:
        """GPUs whose process died."""
        return tuple(sorted(set().union(*map(self._dead, self.progress)) if self.progress else ()))

    @property
    def idle(self) -> tuple[int, ...]:
        """GPUs that had computed nothing when the run was past its half."""
        last = self.progress[-1] if self.progress else None
        return tuple(gpu for gpu, count in enumerate(last.computed) if count == 0) if last and last.percent >= 50 else ()

    @property
    def speeds(self) -> tuple[float, ...]:
        """Median Gflop/s of each GPU over the reports in which it worked."""
        count = max((len(report.gflops) for report in self.progress), default=0)
        worked = [[report.gflops[gpu] for report in self.progress if gpu < len(report.gflops)] for gpu in range(count)]
        return tuple(statistics.median([speed for speed in speeds if speed > 0] or [0.0]) for speeds in worked)

    @staticmethod
    def _dead(report: Progress) -> set[int]:
        return {gpu for gpu, dead in enumerate(report.died) if dead} | {gpu for gpu, n in enumerate(report.computed) if n < 0}


_PROGRESS = re.compile(r"(\d{1,3}(?:[.,]\d)?)%\s+proc'd:([^:]{1,20000})errors:([^:%]{0,20000})")
_WORK = re.compile(r"(-?\d{1,18}) \((-?\d{1,12}|-?nan|-?inf) Gflop/s\)")
_ERRORS = re.compile(r"(-?\d{1,18})\s*((?:\((?:DIED|WARNING)!\))?)")
_TESTED = re.compile(r"^\s*Tested (\d{1,4}) GPUs?:")
_RESULT = re.compile(r"^\s*GPU (\d{1,4}): (OK|FAULTY)\s*$")
_LISTED = re.compile(r"^\s*GPU \d{1,4}: .*\(UUID: ")
_STARTED = re.compile(r"^Burning for \d|^Using compare file|^Initialized device \d|^Run length not specified")


def read(text: str) -> GpuBurnOutput:
    """Read a run's output, plain and without prefixes; any text can be read."""
    lines = text.split("\n")
    summary = max((at for at, line in enumerate(lines) if _TESTED.match(line)), default=None)
    after = lines[summary + 1 :] if summary is not None else []
    tested = _TESTED.match(lines[summary]) if summary is not None else None
    return GpuBurnOutput(
        listed=sum(bool(_LISTED.match(line)) for line in lines),
        progress=tuple(report for line in lines for report in _reports(line)),
        tested=int(tested.group(1)) if tested else None,
        results=tuple((int(match.group(1)), match.group(2)) for match in map(_RESULT.match, after) if match),
        all_dead=any("No clients are alive" in line for line in lines),
        started=any(map(_STARTED.match, lines)),
        lines=tuple(lines),
    )


def _reports(line: str) -> list[Progress]:
    """Read the reports of a line: more than one where the carriage returns between them were lost."""
    found = []
    for percent, work, errors in _PROGRESS.findall(line):
        done = _WORK.findall(work)
        counts = _ERRORS.findall(errors)[: len(done)]
        found.append(
            Progress(
                percent=float(percent.replace(",", ".")),
                computed=tuple(int(count) for count, _ in done),
                gflops=tuple(float(speed) if speed.lstrip("-").isdigit() else 0.0 for _, speed in done),
                errors=tuple(int(count) for count, _ in counts),
                died=tuple("DIED" in note for _, note in counts),
                line=line.strip()[:400],
            )
        )
    return found
