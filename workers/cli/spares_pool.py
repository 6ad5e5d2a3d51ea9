"""`hotspare spares list`, `test`, `drain`, `retire`, `restore`: the pool as it is, and a person's word on single spares."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.errors import CommandFailed, PreconditionFailed
from activities.inventory import Node
from activities.names import (
    FATE_DRAINED,
    FATE_RETIRED,
    QUEUE_WORKFLOWS,
    ROLE_SPARE,
    TAG_FATE,
    WORKFLOW_QUALIFY_SPARE,
    is_kept_out,
    qualify_id,
)
from activities.spare_records import records_of
from workers.cli.common import Answer, ConfigOption, Desk, JsonOption, NodeArgument, answering, desk, person, run_async
from workers.cli.health_shown import STYLES
from workers.cli.looking import overview
from workflows.cluster_messages import Grant
from workflows.decisions.spares_listed import Listed, list_pool, use_of, verdict_on
from workflows.messages import Qualification, StartQualification

TAG_LIMIT = 256
"""Characters of a tag's value. Source: Amazon EC2 user guide, tag restrictions."""

_NO_TAG_SIGN = re.compile(r"[^\w +\-=.:/@]")
"""Signs that are safe in a tag's value on every service. Source: Amazon EC2 user guide, tag restrictions."""

WhyOption = Annotated[str, typer.Option("--reason", "-r", help="Why; it is written on the spare.")]


def pool(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the spares: what each is doing, when it passed, whether it counts. 0 all count, 1 some, 2 none."""
    with answering(as_json) as answer:

        async def show() -> list[Listed]:
            async with desk(config) as at:
                nodes, (books, trouble) = await asyncio.gather(at.nodes(), overview(at.client, at.settings.name))
                records = await asyncio.to_thread(records_of, at.wiring.memory, nodes)
                grants = books.state.grants if books else []
                probation_h = at.settings.policy.probation_h
                listed = list_pool(nodes, records, grants, at.settings.spares, probation_h, datetime.now(UTC))
                answer.document({"verdict": verdict_on(listed), "spares": listed, "trouble": trouble})
                _tell_pool(answer, listed)
                if trouble:
                    answer.say(Text(f"what is handed out is not known: {trouble}", style="red"))
                return listed

        listed = run_async(show())
    raise typer.Exit(verdict_on(listed).exit_status)


def qualify(node: NodeArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Test a spare now, as the sweep does in its turn: lent by Cluster, tested, noted. 0 OK, 2 CRITICAL, 3 UNKNOWN."""
    with answering(as_json) as answer:

        async def begin() -> Qualification:
            async with desk(config) as at:
                spare = await at.resolve(node)
                _refuse_other(spare)
                result = await _tested(at, spare)
                answer.document(result)
                answer.say(Text(f"{spare.name}: {result.verdict.value}", style=STYLES[result.verdict]))
                for line in result.because:
                    answer.say(Text(f"  - {line}"))
                return result

        result = run_async(begin())
    raise typer.Exit(result.verdict.exit_status)


def drain(node: NodeArgument, why: WhyOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Lease a spare to nobody any more, and test it no more. What has it now keeps it; `restore` takes the word back."""
    with answering(as_json) as answer:
        said = f"{FATE_DRAINED} by {person()}: {why}"

        async def act() -> None:
            async with desk(config) as at:
                spare = await at.resolve(node)
                _refuse_other(spare)
                books, _ = await overview(at.client, at.settings.name)
                use = use_of(spare, books.state.grants if books else [])
                await asyncio.to_thread(at.wiring.ec2.set_tags, spare.instance_id, {TAG_FATE: in_a_tag(said)})
                told = f"{spare.name} is drained: it is leased to nobody any more"
                told += f"; it is {use} now, and stays there" if use else ""
                answer.document({"spare": spare.name, "fate": said, "use": use})
                answer.say(Text(f"{told}. Take it back: hotspare spares restore {spare.name}"))

        run_async(act())


def retire(node: NodeArgument, why: WhyOption, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Take a spare out of the pool for good. It is refused while anything has the spare: drain it first."""
    with answering(as_json) as answer:

        async def act() -> None:
            async with desk(config) as at:
                spare = await at.resolve(node)
                _refuse_other(spare)
                if use := use_of(spare, await _grants(at)):
                    raise PreconditionFailed(
                        f"{spare.name} is {use}, so it was not retired; type: hotspare spares drain {spare.name} -r '{why}'"
                    )
                await asyncio.to_thread(at.wiring.ec2.set_tags, spare.instance_id, {TAG_FATE: FATE_RETIRED})
                command = f"aws ec2 terminate-instances --instance-ids {spare.instance_id}"
                answer.document({"spare": spare.name, "fate": FATE_RETIRED, "by": person(), "why": why, "next": command})
                answer.say(
                    Text(f"{spare.name} is retired: {why}. It still runs and is paid for; end it when you like: {command}")
                )

        run_async(act())


def restore(node: NodeArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Take back a drain or a retirement. The spare counts again once it has passed a test that is young enough."""
    with answering(as_json) as answer:

        async def act() -> None:
            async with desk(config) as at:
                spare = await at.resolve(node)
                _refuse_other(spare)
                if not is_kept_out(spare.fate):
                    raise PreconditionFailed(f"{spare.name} is neither drained nor retired{_fate(spare)}; nothing was changed")
                await asyncio.to_thread(at.wiring.ec2.remove_tags, spare.instance_id, [TAG_FATE])
                answer.document({"spare": spare.name, "was": spare.fate})
                answer.say(Text(f"{spare.name} is in the pool again; test it now: hotspare spares test {spare.name}"))

        run_async(act())


def in_a_tag(text: str) -> str:
    """Return a text as the value of a tag can hold it."""
    return _NO_TAG_SIGN.sub(" ", text)[:TAG_LIMIT]


def _fate(spare: Node) -> str:
    return f" ({spare.fate})" if spare.fate else ""


def _refuse_other(node: Node) -> None:
    if node.role != ROLE_SPARE:
        raise PreconditionFailed(f"{node.name} is no spare: it has the role {node.role}; nothing was changed")


async def _grants(at: Desk) -> list[Grant]:
    """What Cluster has handed out. Raises PreconditionFailed where that cannot be told: then nobody knows who has the spare."""
    books, trouble = await overview(at.client, at.settings.name)
    if books is None:
        raise PreconditionFailed(f"what is handed out is not known, so nothing was changed: {trouble}")
    return books.state.grants


async def _tested(at: Desk, spare: Node) -> Qualification:
    at.refuse_where_observed("the test of a spare")
    start = StartQualification(node=spare.instance_id, cluster=at.settings.name, reason=f"asked for by {person()}")
    workflow_id = qualify_id(at.settings.name, spare.instance_id)
    try:
        handle = await at.client.start_workflow(
            WORKFLOW_QUALIFY_SPARE, start, id=workflow_id, task_queue=QUEUE_WORKFLOWS, result_type=Qualification
        )
    except WorkflowAlreadyStartedError:
        handle = at.client.get_workflow_handle(workflow_id, result_type=Qualification)
    try:
        result: Qualification = await handle.result()
    except WorkflowFailureError as error:
        raise CommandFailed(f"the test of {spare.name} gave no verdict: {error.cause}") from error
    return result


def _tell_pool(answer: Answer, listed: list[Listed]) -> None:
    if not listed:
        answer.say("the pool has no spare: tag an instance hotspare:role=spare, or see how many are needed: hotspare spares plan")
        return
    table = Table(title=f"{sum(one.counts for one in listed)} of {len(listed)} spares count", title_justify="left")
    for heading in ("spare", "instance", "type", "zone", "spine", "now", "stands", "counts", "cost/h"):
        table.add_column(heading, overflow="fold")
    for one in listed:
        row = (one.name, one.instance_id, one.instance_type, one.zone, one.spine, one.use, one.standing)
        cost = "?" if one.cost_per_hour is None else f"{one.cost_per_hour:,.2f}"
        counts = Text("yes", style="green") if one.counts else Text("no", style="yellow")
        table.add_row(*(Text(cell) for cell in row), counts, cost)
    answer.say(table)
