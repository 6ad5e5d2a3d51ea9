"""What a person says: approve, skip, escalate, take-over, hand-back to an incident; freeze, thaw to the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from activities.errors import BadInput
from activities.inventory import Node
from activities.message import Message
from activities.names import cluster_id, incident_id
from workers.cli.common import ConfigOption, Desk, JsonOption, NodeArgument, answering, desk, person, run_async
from workers.saying import say, update
from workers.settings import Settings
from workflows.cluster_messages import FreezeRequest, ThawRequest
from workflows.decisions.cluster_entries import BREAKER, STORMS
from workflows.messages import Word

ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why; it is written into the story.")]
StepOption = Annotated[
    str, typer.Option("--step", help="Which step is meant, such as REBOOT_NODE; else the one that is asked about.")
]
ScopeOption = Annotated[
    str,
    typer.Option("--scope", help='"cluster", "node:NODE", or job, pool, zone, rack, placement-group, domain with ":NAME".'),
]

KINDS = ("job", "pool", "zone", "rack", "placement-group", "domain")
"""What a freeze can be for besides the cluster and one node; "domain" is any zone, rack or placement group of that name."""


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(approve)
    app.command()(skip)
    app.command()(escalate)
    app.command(name="take-over")(take_over)
    app.command(name="hand-back")(hand_back)
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
    """Own NODE yourself: its quarantine stays, the incident waits for hand-back. Says what to type next."""
    _say("take-over", node, reason, "", config, as_json, after_take_over)


def after_take_over(node: Node, settings: Settings) -> list[tuple[str, str]]:
    """The commands that a person who owns a node types next, each with what it is for."""
    ssh = ["ssh", "-F", str(settings.access.ssh_config), node.host or node.ip or node.name]
    by_run_command = settings.access.kind == "ssm"
    log_in = ["aws", "ssm", "start-session", "--target", node.instance_id] if by_run_command else ssh
    log = f"{node.name}.log"
    diagnose = f"{shlex.join([*ssh, 'dmesg'])} > {log} && hotspare diagnose {log}"
    return [
        (shlex.join(log_in), "log in; after XID 79, 119 or 120 nothing that opens NVML helps before a reboot"),
        *([] if by_run_command else [(diagnose, "what its kernel log says is wrong")]),
        (f"hotspare evidence {node.name}", "what was saved before anything was done; --take takes a new bundle"),
        (f"hotspare why {node.name}", "what was done so far, and why"),
        (f"hotspare burn-in {node.name}", "the all-reduce over its own GPUs, once it is idle"),
        (f"hotspare hand-back {node.name}", "have it examined again, and the incident go on"),
        (f"hotspare cancel {node.name} --dry-run", "or see what the end of the incident would leave"),
    ]


def hand_back(node: NodeArgument, reason: ReasonOption = "", config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Give NODE back to Hotspare, which examines it again and goes on."""
    _say("hand-back", node, reason, "", config, as_json)


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
    """End a freeze, close the breaker (--scope breaker), or have the nodes of storms looked at anew (--scope storms)."""
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                meant = scope if scope in (BREAKER, STORMS) else await _scope(at, scope)
                request = ThawRequest(scope=meant, who=person())
                said = await _to_cluster(at, "thaw", request)
                answer.document({"thaw": request, "answer": said})
                answer.say(f"thawed: {request.scope}")

        run_async(tell())


def _say(
    word: str,
    node: str,
    reason: str,
    step: str,
    config: Path | None,
    as_json: bool,
    then: Callable[[Node, Settings], list[tuple[str, str]]] = lambda node, settings: [],
) -> None:
    with answering(as_json) as answer:

        async def tell() -> None:
            async with desk(config) as at:
                found = await at.resolve(node)
                workflow_id = incident_id(at.settings.name, found.instance_id)
                by = Word(by=person(), reason=reason, step=step)
                said = await say(at.client, workflow_id, word, by, f"no incident of {found.name} is open")
                more = then(found, at.settings)
                document = {"node": found, "incident": workflow_id, "word": word, "answer": said}
                answer.document({**document, "next": [command for command, _ in more]} if more else document)
                answer.say(f"{found.name}: {said}")
                for command, purpose in more:
                    answer.say(f"  {command}\n      {purpose}")

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
    return await update(at.client, cluster_id(at.settings.name), verb, request, "Cluster does not run; start it: hotspare init")
