"""How a story ended, as seen from outside Hotspare, and the pure judgement of whether it ended as it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workflows.messages import IncidentReport


@dataclass(frozen=True)
class JobView:
    """The training job at one moment. `resumes` counts its starts after the first, `by_us` those of them that Hotspare made."""

    name: str
    state: str
    nodes: tuple[str, ...]
    step: int
    checkpoint_step: int
    resumes: int
    by_us: int = 0


@dataclass(frozen=True)
class Ending:
    """The end of one story. Nodes are named; counts are of calls that arrived at the EC2 endpoint during the story.

    `reports` are the results of the incidents that were opened during the story, `still_open` the workflows that had not ended.
    `stopped_at` and `resumed_from` are the steps at which the job stopped and went on; `stopped_s` and `again_s` the seconds from
    the fault until it was seen stopped, and past its checkpoint again.
    """

    job_before: JobView
    job_after: JobView
    reports: dict[str, IncidentReport] = field(default_factory=dict)
    still_open: tuple[str, ...] = ()
    reboots: dict[str, int] = field(default_factory=dict)
    quarantined: frozenset[str] = frozenset()
    stopped_at: int | None = None
    resumed_from: int | None = None
    stopped_s: float | None = None
    again_s: float | None = None


@dataclass(frozen=True)
class Check:
    """One thing that a story promises, what was seen instead or indeed, and whether the promise was kept."""

    promise: str
    kept: bool
    seen: str


Expectation = Callable[[Ending], Check]


def judge(ending: Ending, expected: tuple[Expectation, ...], *, controlled: bool = False) -> list[Check]:
    """Judge a story. What every story promises comes first: no incident left open, each resolved, and the job trains again.

    `controlled`: a controller restarts the job, and Hotspare must not.
    """
    again = restarted_again if controlled else trains_again
    return [expect(ending) for expect in (all_ended, again, *expected)]


def all_ended(ending: Ending) -> Check:
    """Nothing is left in limbo."""
    unresolved = [f"{node}: {report.outcome}" for node, report in sorted(ending.reports.items()) if report.outcome != "resolved"]
    left = [f"{workflow} is still open" for workflow in ending.still_open] + unresolved
    if not ending.reports:
        left.append("no incident was opened")
    return Check("every incident ended, resolved", not left, "; ".join(left) or f"{', '.join(sorted(ending.reports))}: resolved")


def trains_again(ending: Ending) -> Check:
    """The job runs, was resumed exactly once, and has gone past the checkpoint that it came back from."""
    before, after = ending.job_before, ending.job_after
    resumes = after.resumes - before.resumes
    moved = ending.resumed_from is not None and after.step > ending.resumed_from
    kept = after.state == "RUNNING" and resumes == 1 and moved
    seen = f"{after.state}, step {after.step}, from checkpoint {ending.resumed_from}, resumed {times(resumes)}"
    return Check("the job trains again, resumed once from its checkpoint", kept, seen)


def restarted_again(ending: Ending) -> Check:
    """The job runs and has gone past the checkpoint that it came back from, and its controller alone has restarted it."""
    before, after = ending.job_before, ending.job_after
    restarts, ours = after.resumes - before.resumes, after.by_us - before.by_us
    moved = ending.resumed_from is not None and after.step > ending.resumed_from
    kept = after.state == "RUNNING" and restarts > 0 and ours == 0 and moved
    seen = f"{after.state}, step {after.step}, from checkpoint {ending.resumed_from}, restarted {times(restarts)}"
    seen += f", by us {times(ours)}"
    return Check("the job trains again, restarted by its controller alone", kept, seen)


def rebooted(node: str, count: int) -> Expectation:
    """The EC2 endpoint counted this many reboots of the node."""

    def expect(ending: Ending) -> Check:
        seen = ending.reboots.get(node, 0)
        promise = f"{node} is rebooted {times(count)}" if count else f"{node} is not rebooted"
        return Check(promise, seen == count, f"the EC2 endpoint counted {seen}")

    return expect


def trains_on(*, with_: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Expectation:
    """The job's node set at the end."""

    def expect(ending: Ending) -> Check:
        nodes = ending.job_after.nodes
        kept = all(node in nodes for node in with_) and not any(node in nodes for node in without)
        kept = kept and len(nodes) == len(ending.job_before.nodes)
        parts = [f"with {', '.join(with_)}"] * bool(with_) + [f"without {', '.join(without)}"] * bool(without)
        return Check(f"it trains {' and '.join(parts)}", kept, f"on {', '.join(nodes)}")

    return expect


def quarantined(node: str, *, at_end: bool) -> Expectation:
    """Whether the node still carries our quarantine when the story is over."""

    def expect(ending: Ending) -> Check:
        is_out = node in ending.quarantined
        promise = f"{node} stays out of service" if at_end else f"{node} is back in service"
        return Check(promise, is_out == at_end, "quarantined" if is_out else "no quarantine on it")

    return expect


def times(count: int) -> str:
    """Return a count in words."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
