"""How a job stands, as one verdict with its reasons, out of what its adapter has told. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from activities.jobs.protocol import JobState, JobStatus, RestartedBy
from checks.model import Verdict

_WORST_FIRST = (Verdict.CRITICAL, Verdict.UNKNOWN, Verdict.WARN, Verdict.OK)

_COUNTER = "step counter"


@dataclass(frozen=True)
class JobJudgement:
    """The verdict on a job and why, the worst reason first. Without a reason all is well."""

    verdict: Verdict
    because: tuple[str, ...]


def judge_job(status: JobStatus) -> JobJudgement:
    """Judge a job: CRITICAL where it does not train and nobody will see to that, WARN where that can come."""
    if status.ended and not status.ended.startswith("failed"):
        return JobJudgement(Verdict.OK, (status.ended,))
    found = [*_of_state(status), *_of_budget(status), *((Verdict.WARN, words) for words in status.warnings)]
    if status.state is JobState.RUNNING and status.step is None and not any(_COUNTER in words for _, words in found):
        found.append((Verdict.WARN, f"no {_COUNTER} is told, so nobody can prove that it trains"))
    found.sort(key=lambda one: _WORST_FIRST.index(one[0]))
    return JobJudgement(found[0][0] if found else Verdict.OK, tuple(words for _, words in found))


def steps_behind(status: JobStatus) -> tuple[int | None, float | None]:
    """Return how many steps the last checkpoint is old, and how many seconds those took; None where it is not known."""
    if status.step is None or status.checkpoint_step is None:
        return None, None
    steps = max(0, status.step - status.checkpoint_step)
    return steps, None if status.seconds_per_step is None else steps * status.seconds_per_step


def _of_state(status: JobStatus) -> list[tuple[Verdict, str]]:
    waits = f": {status.waits_for}" if status.waits_for else ""
    if status.ended:
        return [(Verdict.CRITICAL, f"it has {status.ended}; {status.controller or 'nobody'} starts it no more: submit it anew")]
    if status.state is JobState.UNKNOWN:
        return [(Verdict.UNKNOWN, f"whether it runs cannot be told: a node that has a rank does not answer{waits}")]
    if status.state is JobState.HELD:
        return [(Verdict.WARN, f"it is held: {status.held_for or 'by somebody else than Hotspare, or without a reason'}{waits}")]
    if status.state is JobState.STOPPED:
        return [(Verdict.CRITICAL, f"no rank of it runs{waits}")]
    found = []
    if status.starting_on:
        found.append((Verdict.WARN, f"a rank is not up, or crashes and is started again, on {', '.join(status.starting_on)}"))
    missing = [name for name in status.nodes if not status.may_have_ranks_on(name)]
    if missing:
        found.append((Verdict.WARN, f"no rank is on {', '.join(missing)}, which had one{waits}"))
    elif waits:
        found.append((Verdict.WARN, f"it runs, and waits for more{waits}"))
    return found


def _of_budget(status: JobStatus) -> list[tuple[Verdict, str]]:
    if status.restarted_by is RestartedBy.HOTSPARE or status.ended or status.restarts_left != 0:
        return []
    return [(Verdict.WARN, f"{status.controller or 'its controller'} has no restart left: the next failure ends it")]
