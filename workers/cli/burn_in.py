"""`hotspare burn-in NODE...`: the all-reduce over idle nodes, asked for by hand and followed live."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from temporalio.service import RPCError

from activities.active_tests import WHAT_TO_DO
from activities.errors import BadInput, HotspareError, PreconditionFailed
from activities.inventory import Node
from activities.names import QUEUE_WORKFLOWS, WORKFLOW_BURN_IN, burn_in_id
from workers.cli.burn_in_follow import BurnInHandle, follow, runs_of
from workers.cli.burn_in_junit import check_junit, write_junit, write_junit_error
from workers.cli.burn_in_matrix import pair_matrix
from workers.cli.burn_in_plot import check_plot, draw
from workers.cli.burn_in_shown import cause_in_words, tell_left_out, tell_report
from workers.cli.common import Answer, ConfigOption, Desk, JsonOption, answering, desk, person, run_async
from workers.connection import RPC_TIMEOUT, TemporalAway
from workflows.messages import BurnInReport, StartBurnIn

RUNNING = "running"


@dataclass(frozen=True)
class Wish:
    """What a person asks for: nodes by any alias, or the free nodes of a cluster; every pair; and the files to write."""

    aliases: list[str]
    cluster: str = ""
    diagnose: bool = False
    plot: Path | None = None
    junit: Path | None = None

    def check(self) -> None:
        """Raise BadInput or CapabilityMissing for what cannot be done."""
        if bool(self.aliases) == bool(self.cluster):
            raise BadInput("name the nodes to burn in, or say --cluster NAME for all of its free nodes: one of the two")
        if self.plot is not None:
            check_plot(self.plot)
        if self.junit is not None:
            check_junit(self.junit)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="burn-in")(burn_in)


def burn_in(
    nodes: Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Idle nodes, each by any name.")] = None,
    cluster: Annotated[
        str, typer.Option(metavar="NAME", help="All free nodes of this cluster: no job, no incident and no lease has them.")
    ] = "",
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Go on when the group passes: try every pair of nodes, which shows each bad path.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the pairs into a .png, .svg or .pdf (needs the extra plots).")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdicts as JUnit XML.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge idle nodes by an all-reduce over them. Exit status: 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN. Ctrl-C ends the burn-in."""
    with answering(as_json) as answer:
        wish = Wish(nodes or [], cluster, diagnose, plot, junit)
        report = run_async(follow_burn_in(answer, wish, config))
    raise typer.Exit(report.verdict.exit_status)


async def follow_burn_in(answer: Answer, wish: Wish, config: ConfigOption) -> BurnInReport:
    """Start a burn-in of idle nodes, show it until it ends, and return its verdict. A cancelled call ends the burn-in.

    Raises PreconditionFailed when a node is not known to be idle, and CommandFailed when the burn-in gives no verdict.
    """
    wish.check()
    try:
        return await _burn_in(answer, wish, config)
    except HotspareError as error:
        if wish.junit is not None:
            write_junit_error("burn-in", str(error), wish.junit)
        raise


async def _burn_in(answer: Answer, wish: Wish, config: ConfigOption) -> BurnInReport:
    async with desk(config) as at:
        at.refuse_where_observed("a burn-in")
        chosen, left_out = await (_free(at, wish.cluster) if wish.cluster else _asked_for(at, wish.aliases))
        tell_left_out(answer, left_out)
        handle = await _start(at, chosen, wish.diagnose)
        link = at.ui_link(handle.id)
        answer.say(f"{handle.id}{f'  {link}' if link else ''}")
        async with _ended_with_us(handle):
            report = await follow(answer, handle)
        runs, trouble = await runs_of(handle)
        matrix = pair_matrix([node.node_name for node in report.nodes], runs)
        answer.document(
            {"burn_in": handle.id, "ui": link, "report": report, "runs": runs, "pairs": matrix.document(), "left_out": left_out}
        )
        tell_report(answer, report, matrix, trouble)
        if wish.junit is not None:
            write_junit(handle.id, report, wish.junit)
        if wish.plot is not None:
            draw(matrix, f"{handle.id}: {report.verdict.value} {cause_in_words(report)}", wish.plot)
        return report


async def _asked_for(at: Desk, aliases: list[str]) -> tuple[list[Node], dict[str, list[str]]]:
    """An all-reduce takes the GPUs from whoever computes on them: nothing is started unless every node may be tested."""
    found = await asyncio.gather(*(at.resolve(alias) for alias in aliases))
    chosen = list({node.instance_id: node for node in found}.values())
    if refusals := await asyncio.to_thread(at.wiring.gate.refusals, chosen):
        reasons = "; ".join(reason for node in refusals.values() for reason in node)
        raise PreconditionFailed(f"{reasons}, so nothing was started; {WHAT_TO_DO}, or leave out {', '.join(refusals)}")
    return chosen, {}


async def _free(at: Desk, cluster: str) -> tuple[list[Node], dict[str, list[str]]]:
    """The nodes of the cluster that nobody uses, repairs or waits for, and why the others are left out."""
    if cluster != at.settings.name:
        raise BadInput(f"the settings file is of cluster {at.settings.name}, not of {cluster}; give that one's with --config")
    nodes = [node for node in await at.nodes() if node.role != "head"]
    left_out = {node.name: [why] for node in nodes if (why := _kept_for(node))}
    rest = [node for node in nodes if node.name not in left_out]
    left_out |= await asyncio.to_thread(at.wiring.gate.refusals, rest)
    free = [node for node in rest if node.name not in left_out]
    if not free:
        reasons = "; ".join(reason for node in left_out.values() for reason in node)
        raise PreconditionFailed(f"no node of {cluster} is free, so nothing was started: {reasons or 'it has no node'}")
    return free, left_out


def _kept_for(node: Node) -> str:
    """Who has a node that no job is on, in words; empty where it is nobody's."""
    if node.state != RUNNING:
        return f"the instance is {node.state}"
    if node.quarantine:
        return f"quarantined by {node.quarantine}"
    if node.lease:
        return f"leased to {node.lease}"
    return f"to be left alone: {node.opt_out}" if node.opt_out else ""


async def _start(at: Desk, nodes: list[Node], every_pair: bool) -> BurnInHandle:
    names = [node.name for node in nodes]
    start = StartBurnIn(cluster=at.settings.name, nodes=names, every_pair=every_pair, reason=f"asked for by {person()}")
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
