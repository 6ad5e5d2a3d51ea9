"""`hotspare cancel NODE`: stops the node's incident; with --dry-run says what that would do and what it would leave."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text
from temporalio.client import WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.names import incident_id
from workers.cli.common import Answer, ConfigOption, Desk, JsonOption, NodeArgument, answering, desk, person, run_async
from workers.cli.looking import QUERY_TIMEOUT, look_at
from workers.cli.words import ReasonOption
from workers.connection import TemporalAway
from workers.saying import NotOpen, explained, say
from workflows.decisions.cancelling import CancelPlan, cancel_plan
from workflows.decisions.facts import Facts
from workflows.messages import Word


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(
    node: NodeArgument,
    reason: ReasonOption = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what a cancel would do now, and what it would leave.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop NODE's incident: what is ours and safe to undo is undone, then it ends."""
    with answering(as_json) as answer:

        async def stop() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                workflow_id = incident_id(at.settings.name, found.instance_id)
                not_open = f"no incident of {found.name} is open"
                if dry_run:
                    plan, newest = await _plan(at, workflow_id, not_open)
                    answer.document({"node": found, "incident": workflow_id, "dry_run": True, "now": newest, "plan": plan})
                    _tell(answer, found.name, plan, newest)
                    return
                said = await say(at.client, workflow_id, "cancel", Word(by=person(), reason=reason), not_open)
                answer.document({"node": found, "incident": workflow_id, "word": "cancel", "answer": said})
                answer.say(f"{found.name}: {said}; watch it: hotspare why {found.name}")

        run_async(stop())


async def _plan(at: Desk, workflow_id: str, not_open: str) -> tuple[CancelPlan, str]:
    """Ask the incident for what it knows, and return what a cancel would do with the newest line of its story."""
    look = await look_at(at.client, workflow_id)
    if look is None or not look.is_open:
        raise NotOpen(f"{not_open}; see: hotspare status")
    try:
        handle = at.client.get_workflow_handle(workflow_id)
        known = await handle.query("facts", rpc_timeout=QUERY_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise explained(error, not_open) from error
        raise TemporalAway(f"no worker tells what {workflow_id} knows ({error.message}); start one: hotspare worker") from error
    except WorkflowQueryFailedError as error:
        raise TemporalAway(f"{workflow_id} cannot tell what it knows: {error}; is it wedged? look in the Temporal UI") from error
    facts = None if known is None else Facts.model_validate(known)
    return cancel_plan(facts), f"{look.phase}: {look.newest}" if look.story else ""


def _tell(answer: Answer, name: str, plan: CancelPlan, newest: str) -> None:
    answer.say(Text(f"{name}: a cancel now would", style="bold"))
    for deed in plan.does:
        answer.say(Text(f"  - {deed}"))
    answer.say(Text(f"after that: {plan.node}"))
    if plan.leaves:
        answer.say(Text("and leave", style="bold"))
    for left in plan.leaves:
        answer.say(Text(f"  - {left}"))
    if newest:
        answer.say(Text(f"as of its newest line: {newest}. A step that is under way ends first, and what it has done counts."))
    answer.say(Text(f"nothing was changed; do it: hotspare cancel {name}", style="bold"))
