"""`hotspare unwedge`: sets workflows going again that were stuck on an error in our own code, after the mend."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from activities.errors import BadInput, HotspareError, UnknownNode
from activities.names import cluster_id, incident_id, job_id, replace_id
from workers.cli.common import Answer, ConfigOption, Desk, JsonOption, answering, desk, person, run_async
from workers.wedged import Plan, Wedged, carry_out, find_wedged, look_for_wedge, plan_for

FIRST_FAILURE = 2
"""Attempt of a task that has failed once: a person who asks need not wait until it counts as stuck."""

PROOF_TRIES, PROOF_WAIT_S = 40, 0.25
"""Looks, and seconds between them, at whether it goes on. Hotspare default: a worker takes up a task within 2 s."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(unwedge)


def unwedge(
    which: Annotated[str, typer.Argument(metavar="[WORKFLOW|NODE]", help="A workflow id, or a node by any name.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All that are stuck.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Go through the whole workflow anew: for a history that no code fits any more.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; it is written into the workflow's history.")] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set stuck workflows going again, after the mend. Without a name: list them. Exit status 1 when some are still stuck."""
    with answering(as_json) as answer:
        if which and every:
            raise BadInput("name one workflow or node, or say --all")
        wish = _Wish(dry_run or not (which or every), from_start, reason)
        stuck = run_async(_unwedge(which, wish, answer, config))
    raise typer.Exit(1 if stuck else 0)


class _Wish:
    def __init__(self, only_say: bool, from_start: bool, reason: str) -> None:
        self.only_say, self.from_start, self.reason = only_say, from_start, reason


async def _unwedge(which: str, wish: _Wish, answer: Answer, config: ConfigOption) -> bool:
    async with desk(config) as at:
        found = await _stuck(at, which)
        plans = [await plan_for(at.client, one, from_start=wish.from_start) for one in found]
        outcomes = [] if wish.only_say else [await _set_going(at, plan, wish.reason) for plan in plans]
        answer.document({"stuck": [_plain(plan) for plan in plans], "dry_run": wish.only_say, "outcomes": outcomes})
        if not plans:
            answer.say(f"{which or 'nothing'} is not stuck" if which else "no workflow is stuck")
        for number, plan in enumerate(plans):
            _tell(answer, plan, outcomes[number] if outcomes else "")
        if plans and wish.only_say:
            answer.say("nothing was done; after the mend: hotspare unwedge " + (which or "--all"))
        return bool(plans) and (wish.only_say or any(outcome != GOES_ON for outcome in outcomes))


async def _stuck(at: Desk, which: str) -> list[Wedged]:
    if not which:
        return await find_wedged(at.client, at.settings.name, FIRST_FAILURE)
    found = [await look_for_wedge(at.client, workflow_id, FIRST_FAILURE) for workflow_id in await _ids(at, which)]
    return [one for one in found if one is not None]


async def _ids(at: Desk, which: str) -> list[str]:
    """A workflow id as it is; a node by any name stands for its incident and its replacement; else the name of a job."""
    cluster = at.settings.name
    if "/" in which:
        return [which]
    if which == "cluster":
        return [cluster_id(cluster)]
    try:
        node = await at.resolve(which)
    except UnknownNode:
        if await look_for_wedge(at.client, job_id(cluster, which), FIRST_FAILURE) is None:
            raise
        return [job_id(cluster, which)]
    return [incident_id(cluster, node.instance_id), replace_id(cluster, node.instance_id)]


GOES_ON = "goes on"


async def _set_going(at: Desk, plan: Plan, reason: str) -> str:
    """Carry a plan out and see whether it helped."""
    wedged = plan.wedged
    why = reason or f"after the mend of {wedged.cause}"
    try:
        run_id = await carry_out(at.client, plan, f"hotspare unwedge by {person()}: {why}")
    except HotspareError as error:
        return str(error)
    if plan.recovers:
        await at.wiring.gateway.ensure_cluster(at.settings.name)
    return await _proof(at, wedged.workflow_id, run_id)


async def _proof(at: Desk, workflow_id: str, run_id: str) -> str:
    """Watch the new run until its first task has ended one way or the other."""
    handle = at.client.get_workflow_handle(workflow_id, run_id=run_id or None)
    for _ in range(PROOF_TRIES):
        raw = (await handle.describe()).raw_description
        if not raw.HasField("pending_workflow_task"):
            return GOES_ON
        if raw.pending_workflow_task.attempt >= FIRST_FAILURE:
            return "still stuck: the workers that run do not have the mend; restart them with it"
        await asyncio.sleep(PROOF_WAIT_S)
    return "no worker has taken it up yet; start one: hotspare worker"


def _plain(plan: Plan) -> dict[str, object]:
    return {**asdict(plan.wedged), "plan": plan.words(), "event_id": plan.event_id, "ordered_again": list(plan.again)}


def _tell(answer: Answer, plan: Plan, outcome: str) -> None:
    wedged = plan.wedged
    since = f" since {wedged.since:%Y-%m-%d %H:%M:%S} UTC" if wedged.since else ""
    answer.say(Text.assemble((wedged.workflow_id, "bold"), f": its task failed {wedged.attempts - 1} times{since}"))
    answer.say(Text(f"  {wedged.cause}: {wedged.says}", style="red"))
    answer.say(Text(f"  {'would ' if not outcome else ''}{plan.words()}"))
    if outcome:
        answer.say(Text(f"  {outcome}", style="green" if outcome == GOES_ON else "red"))
