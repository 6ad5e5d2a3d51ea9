"""What `doctor` looks at in the job system: does the adapter see the job, its checkpoint, and the restarts that it has left?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from activities.errors import HotspareError
from activities.inventory import Node
from activities.jobs.protocol import JobAdapter, JobState, JobStatus, RestartedBy
from activities.names import ROLE_WORKER
from checks.model import Verdict
from workers.cli.common import many
from workers.cli.health import Line
from workers.settings import Settings
from workers.wiring import Wiring

ASKED = 32
"""Nodes that are asked for their job. Hotspare default: a job that holds none of so many is told as none."""

JOBS = 5
"""Jobs that are told. Hotspare default: a screenful."""


async def check_job(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> list[Line]:
    """Ask the job system, where there is one. Nothing is changed."""
    if settings.job.adapter == "none":
        return []
    try:
        jobs = await asyncio.to_thread(jobs_on, wiring.jobs, nodes)
    except HotspareError as error:
        how = "try its command on the head node by hand; [job] in docs/settings.md says what it has to print"
        return [Line("job", Verdict.CRITICAL, f"the job system ({settings.job.adapter}) cannot be read: {error}", how)]
    if not jobs:
        text = f"no job holds any of {many(min(len(nodes), ASKED), 'node')} just now, so the adapter was not seen at work"
        return [Line("job", Verdict.UNKNOWN, text, "run doctor again while a job trains", can_tell=False)]
    return [line for status in jobs for line in lines_of(settings, status)]


def jobs_on(adapter: JobAdapter, nodes: Sequence[Node]) -> list[JobStatus]:
    """The jobs on these nodes, each once; nodes that a known job holds are not asked again."""
    found: dict[str, JobStatus] = {}
    held: set[str] = set()
    for node in [node for node in nodes if node.role == ROLE_WORKER][:ASKED]:
        if node.name in held or len(found) == JOBS:
            continue
        if (status := adapter.find_on(node)) is not None:
            found[status.job] = status
            held |= {node.name, *status.nodes}
    return list(found.values())


def lines_of(settings: Settings, status: JobStatus) -> list[Line]:
    """What one job's status says of whether it will come back after a fault."""
    part = f"job {status.job}"
    if status.state is JobState.UNKNOWN:
        return [Line(part, Verdict.UNKNOWN, "the adapter cannot tell its state", "see what job.status prints for it")]
    who = status.controller or ("Hotspare" if status.restarted_by is RestartedBy.HOTSPARE else status.restarted_by.value)
    step = "" if status.step is None else f", step {status.step}"
    saved = "" if status.checkpoint_step is None else f", last checkpoint at {status.checkpoint_step}"
    where = many(len(status.nodes), "node")
    lines = [Line(part, Verdict.OK, f"{status.state.value} on {where}{step}{saved}; {who} restarts it")]
    if status.step is None:
        how = "set job.progress, or let job.status print `step`: without it nobody sees whether a restarted job trains"
        lines.append(Line(part, Verdict.WARN, "its step is not known", how))
    if status.checkpoint_step is None:
        how = "let it print `checkpoint_step` (docs/settings.md, [job]); has it written a checkpoint yet?"
        lines.append(Line(part, Verdict.WARN, "no checkpoint of it is known: after a fault it begins anew", how))
    left = status.restarts_left
    if left is not None:
        low = left <= settings.job.restarts_warning
        how = "raise its limit (backoffLimit, maxRestarts), or the next fault may end it for good" if low else ""
        lines.append(Line(part, Verdict.WARN if low else Verdict.OK, f"{left} restarts are left of its controller's budget", how))
    lines += [Line(part, Verdict.WARN, warning, "change the job as it says") for warning in status.warnings]
    return lines
