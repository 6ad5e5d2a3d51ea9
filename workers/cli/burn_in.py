"""`hotspare burn-in NODE...`: the all-reduce over idle nodes, asked for by hand and followed live."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import FailureError
from temporalio.service import RPCError

from activities.errors import CommandFailed, PreconditionFailed
from activities.inventory import Node
from activities.names import QUEUE_WORKFLOWS, WORKFLOW_BURN_IN, burn_in_id
from activities.node import Examine
from workers.cli.common import Answer, ConfigOption, Desk, JsonOption, answering, desk, person, run_async
from workers.cli.doctor import STYLES
from workers.cli.looking import QUERY_TIMEOUT
from workers.connection import RPC_TIMEOUT, TemporalAway
from workflows.messages import BurnInReport, StartBurnIn
from workflows.operator_view import Line

LOOK_S = 0.5
"""Seconds between looks at the story. Hotspare default: a person sees a round when it ends; a round takes tens of seconds."""

BurnInHandle = WorkflowHandle[object, BurnInReport]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="burn-in")(burn_in)


def burn_in(
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Idle nodes, each by any name.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge idle nodes by an all-reduce over them. Exit status: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN. Ctrl-C ends the burn-in."""
    with answering(as_json) as answer:
        report = run_async(follow_burn_in(answer, nodes, config))
    raise typer.Exit(report.verdict.exit_status)


async def follow_burn_in(answer: Answer, aliases: list[str], config: ConfigOption) -> BurnInReport:
    """Start a burn-in of idle nodes, show it until it ends, and return its verdict. A cancelled call ends the burn-in.

    Raises PreconditionFailed when a node is not known to be idle, and CommandFailed when the burn-in gives no verdict.
    """
    async with desk(config) as at:
        found = await asyncio.gather(*(at.resolve(alias) for alias in aliases))
        chosen = list({node.instance_id: node for node in found}.values())
        await asyncio.gather(*(asyncio.to_thread(_refuse_busy, at, node) for node in chosen))
        handle = await _start(at, chosen)
        link = at.ui_link(handle.id)
        answer.say(f"{handle.id}{f'  {link}' if link else ''}")
        async with _ended_with_us(handle):
            report = await _follow(answer, handle)
        answer.document({"burn_in": handle.id, "ui": link, "report": report})
        _tell(answer, report)
        return report


def _refuse_busy(at: Desk, node: Node) -> None:
    """An all-reduce takes the GPUs from whoever computes on them: a node is tested only when it is known to be idle."""
    seen = at.wiring.node_activities.examine(Examine(node=node))
    if not seen.reachable:
        raise PreconditionFailed(f"{node.name} does not answer, so nothing was started: {seen.why_unreachable}")
    if seen.gpu_processes is None:
        raise PreconditionFailed(f"{node.name} does not tell which processes hold its GPUs, so nothing was started")
    if seen.gpu_processes:
        raise PreconditionFailed(
            f"{seen.gpu_processes} processes hold GPUs of {node.name}, so nothing was started; stop the job, or leave it out"
        )


async def _start(at: Desk, nodes: list[Node]) -> BurnInHandle:
    names = [node.name for node in nodes]
    start = StartBurnIn(cluster=at.settings.name, nodes=names, reason=f"asked for by {person()}")
    try:
        return await at.client.start_workflow(
            WORKFLOW_BURN_IN,
            start,
            id=burn_in_id(at.settings.name, f"by-hand/{secrets.token_hex(4)}"),
            task_queue=QUEUE_WORKFLOWS,
            result_type=BurnInReport,
            static_summary=f"burn-in of {', '.join(names)}, asked for by {person()}"[:200],
            rpc_timeout=RPC_TIMEOUT,
        )
    except RPCError as error:
        raise TemporalAway(f"Temporal did not start the burn-in: {error.message}; try again") from error


@contextlib.asynccontextmanager
async def _ended_with_us(handle: BurnInHandle) -> AsyncIterator[None]:
    """End the burn-in when the person ends the command: nobody waits for its verdict any more."""
    try:
        yield
    except asyncio.CancelledError:
        await handle.cancel(rpc_timeout=RPC_TIMEOUT)
        raise


async def _follow(answer: Answer, handle: BurnInHandle) -> BurnInReport:
    """Show the story as it grows, and return the verdict."""
    result = asyncio.ensure_future(handle.result())
    shown, trouble = 0, ""
    try:
        while True:
            done, _ = await asyncio.wait({result}, timeout=LOOK_S)
            lines, why = await _story(handle)
            for line in lines[shown:]:
                answer.say(Text.assemble(f"{line.at:%H:%M:%S}  ", (f"{line.phase}  ", "bold"), line.text))
            shown = max(shown, len(lines))
            if why and not trouble and not done:
                answer.say(Text(why, style="yellow"))
            trouble = why
            if done:
                return result.result()
    except WorkflowFailureError as error:
        raise CommandFailed(f"{handle.id} ended without a verdict: {_cause_of(error)}") from error
    except RPCError as error:
        raise TemporalAway(f"Temporal does not tell how {handle.id} ended: {error.message}") from error
    finally:
        result.cancel()


async def _story(handle: BurnInHandle) -> tuple[list[Line], str]:
    try:
        lines: list[Line] = await handle.query("story", result_type=list[Line], rpc_timeout=QUERY_TIMEOUT)
        return lines, ""
    except (RPCError, WorkflowQueryFailedError) as error:
        return [], f"no worker tells its story ({error}); start one: hotspare worker"


def _cause_of(error: BaseException) -> str:
    """The innermost reason: the outer ones only say that something within them failed."""
    while isinstance(error.__cause__, FailureError):
        error = error.__cause__
    return str(error)


def _tell(answer: Answer, report: BurnInReport) -> None:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for one in report.nodes:
        what = one.cause + (f": {one.evidence}" if one.evidence else "")
        table.add_row(Text(one.verdict.value, style=STYLES[one.verdict]), Text(one.node_name), Text(what))
    answer.say(table)
    answer.say(Text(f"{report.verdict.value} {report.cause}: {'; '.join(report.because)}", style=STYLES[report.verdict]))
