"""What a person says: approve, skip, escalate, take-over, hand-back, cancel to an incident; freeze, thaw to the cluster."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import typer
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import BadInput
from activities.message import Message
from activities.names import cluster_id, incident_id
from workers.cli.common import ConfigOption, Desk, JsonOption, NodeArgument, Refused, answering, desk, person, run_async
from workers.connection import RPC_TIMEOUT, TemporalAway
from workflows.cluster_messages import FreezeRequest, ThawRequest
from workflows.decisions.cluster_entries import BREAKER
from workflows.messages import Word

ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why; it is written into the story.")]
StepOption = Annotated[
    str, typer.Option("--step", help="Which step is meant, such as REBOOT_NODE; else the one that is asked about.")
]
ScopeOption = Annotated[str, typer.Option("--scope", help='"cluster", "node:NODE", or job, pool, zone, rack with ":NAME".')]

KINDS = ("job", "pool", "zone", "rack", "placement-group", "domain")
"""What a freeze can be for besides the cluster and one node; "domain" is any zone, rack or placement group of that name."""

TRIES = 3
"""Times that a word is said with the same id. Measured: one of 171 updates to a busy cluster failed or took over 30 s."""


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(approve)
    app.command()(skip)
    app.command()(escalate)
    app.command(name="take-over")(take_over)
    app.command(name="hand-back")(hand_back)
    app.command()(cancel)
    app.command()(freeze)
    app.command()(thaw)


def approve(
    node: NodeArgument, step: StepOption = "", reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Allow the step that NODE's incident asks about."""
    _say("approve", node, reason, step, config, as_json)


def skip(
    node: NodeArgument, step: StepOption = "", reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Leave a step of NODE's incident out."""
    _say("skip", node, reason, step, config, as_json)


def escalate(node: NodeArgument, reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Go to the next rung of the ladder at once."""
    _say("escalate", node, reason, "", config, as_json)


def take_over(node: NodeArgument, reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Own NODE yourself: its quarantine stays, the incident waits for hand-back."""
    _say("take_over", node, reason, "", config, as_json)


def hand_back(node: NodeArgument, reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Give NODE back to the healer, which examines it again and goes on."""
    _say("hand_back", node, reason, "", config, as_json)


def cancel(node: NodeArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Stop NODE's incident: what is ours and safe to undo is undone, then it ends."""
    with answering(as_json) as answer:

        async def stop() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                workflow_id = incident_id(at.settings.name, found.instance_id)
                try:
                    await at.client.get_workflow_handle(workflow_id).cancel(rpc_timeout=RPC_TIMEOUT)
                except RPCError as error:
                    raise _explained(error, f"no incident of {found.name} is open") from error
                answer.document({"node": found, "incident": workflow_id, "word": "cancel"})
                answer.say(f"{found.name}: told {workflow_id} to stop; watch it: hotspare why {found.name}")

        run_async(stop())


def freeze(
    scope: ScopeOption = "cluster",
    minutes: Annotated[float, typer.Option(min=1, max=43200, help="How long.")] = 60.0,
    reason: ReasonOption = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop new disruption for a time. Healthy nodes still come back and jobs still resume."""
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                request = FreezeRequest(scope=await _scope(at, scope), minutes=minutes, who=person(), why=reason)
                said = await _to_cluster(at, "freeze", request)
                answer.document({"freeze": request, "answer": said})
                answer.say(f"frozen: {request.scope} for {minutes:g} minutes; end it: hotspare thaw --scope '{request.scope}'")

        run_async(tell())


def thaw(scope: ScopeOption = "cluster", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """End a freeze, or close the breaker (--scope breaker)."""
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                meant = scope if scope == BREAKER else await _scope(at, scope)
                request = ThawRequest(scope=meant, who=person())
                said = await _to_cluster(at, "thaw", request)
                answer.document({"thaw": request, "answer": said})
                answer.say(f"thawed: {request.scope}")

        run_async(tell())


def _say(verb: str, node: str, reason: str, step: str, config: Any, as_json: bool) -> None:
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                workflow_id = incident_id(at.settings.name, found.instance_id)
                word = Word(by=person(), reason=reason, step=step)
                said = await update(at.client, workflow_id, verb, word, f"no incident of {found.name} is open")
                answer.document({"node": found, "incident": workflow_id, "word": verb, "answer": said})
                answer.say(f"{found.name}: {verb.replace('_', ' ')}{f' {step}' if step else ''}: {said or 'heard'}")

        run_async(tell())


async def _scope(at: Desk, scope: str) -> str:
    """A node may be named by any alias; the freeze itself is kept by instance id."""
    kind, _, name = scope.partition(":")
    if kind == "node" and name:
        return f"node:{(await at.resolve(name)).instance_id}"
    if scope != "cluster" and (kind not in KINDS or not name):
        named = ", ".join(f'"{kind}:NAME"' for kind in KINDS)
        raise BadInput(f'{scope!r} is no scope; write "cluster", "node:NODE", {named}')
    return scope


async def _to_cluster(at: Desk, verb: str, request: Message) -> Any:
    await at.wiring.gateway.ensure_cluster(at.settings.name)
    return await update(at.client, cluster_id(at.settings.name), verb, request, "the cluster's keeper does not run")


async def update(client: Client, workflow_id: str, verb: str, message: Message, not_open: str) -> Any:
    """Say something to a workflow and return its answer. Said again with the same id when no answer comes, so it counts once."""
    handle = client.get_workflow_handle(workflow_id)
    update_id = str(uuid.uuid4())
    for left in reversed(range(TRIES)):
        try:
            return await handle.execute_update(verb, message, id=update_id, rpc_timeout=RPC_TIMEOUT)
        except WorkflowUpdateFailedError as error:
            raise Refused(f"{verb.replace('_', ' ')} was refused: {error.cause}") from error
        except (WorkflowUpdateRPCTimeoutOrCancelledError, RPCError) as error:
            if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
                raise _explained(error, not_open) from error
            if not left:
                raise TemporalAway(
                    f"{workflow_id} gave no answer to {verb.replace('_', ' ')}; is a worker running? start one: hotspare worker"
                ) from error
    raise AssertionError("unreachable")


def _explained(error: RPCError, not_open: str) -> Exception:
    if error.status == RPCStatusCode.NOT_FOUND:
        return Refused(f"{not_open}; see: hotspare status")
    return TemporalAway(f"Temporal did not take it: {error.message}; try again")
