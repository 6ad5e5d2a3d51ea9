"""`hotspare ledger`: what is remembered of hosts and GPUs, and the words with which a person bans a GPU or lifts its ban."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput
from activities.host_ledger import mark_gpu
from activities.host_memory import HostMemory, RungAttempt
from workers.cli.common import Answer, ConfigOption, JsonOption, answering, person
from workers.cli.ledger_bandwidth import bandwidths, tell_bandwidths
from workers.cli.ledger_view import GpuLine, GpuPast, HostLine, HostPast, Ledger, LedgerView
from workers.settings import Settings, load_settings
from workers.wiring import Wiring, make_memory_table

WhatArgument = Annotated[
    str, typer.Argument(metavar="[NODE|SERIAL]", help="A host by name or instance id, or a GPU by serial or UUID; else all.")
]
BanOption = Annotated[bool, typer.Option("--ban", help="Mark this GPU as known bad: no host that has it serves, or joins a job.")]
ClearOption = Annotated[bool, typer.Option("--clear", help="Lift the ban of this GPU.")]
WhyOption = Annotated[str, typer.Option("--why", help="Why it is banned, or not any more. It is kept with your name.")]
BandwidthOption = Annotated[
    bool, typer.Option("--bandwidth", help="Show what clean group runs gave, their spread, and the floors that follow.")
]
CreateOption = Annotated[
    bool, typer.Option("--create-table", help="Make the DynamoDB table that the settings name, with your own credentials.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ledger)


def ledger(
    what: WhatArgument = "",
    ban: BanOption = False,
    clear: ClearOption = False,
    why: WhyOption = "",
    bandwidth: BandwidthOption = False,
    create_table: CreateOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is remembered of hosts and GPUs: strikes, last incident, probation, bans. Needs no Temporal."""
    with answering(as_json) as answer:
        settings = load_settings(config)
        _refuse_nonsense(what, ban, clear, why, create_table)
        if bandwidth and (what or ban or clear or why or create_table):
            raise BadInput("--bandwidth goes alone")
        if create_table:
            _create_table(answer, settings)
            return
        with _memory(settings) as memory:
            if bandwidth:
                lines = bandwidths(memory, settings.burn_in.learned)
                answer.document(lines)
                tell_bandwidths(answer, lines, settings.burn_in.learned.least_runs)
                return
            now = datetime.now(UTC)
            view = LedgerView(memory, settings.policy.strike_half_life_days, now)
            if ban or clear:
                _mark(answer, memory, view, what, bad=ban, why=why, now=now)
                return
            if not what:
                found = view.all()
                answer.document(found)
                _tell_all(answer, found)
                return
            past = view.of(what)
            answer.document(past)
            _tell_host(answer, past) if isinstance(past, HostPast) else _tell_gpu(answer, past)


def _refuse_nonsense(what: str, ban: bool, clear: bool, why: str, create_table: bool) -> None:
    if ban and clear:
        raise BadInput("--ban and --clear contradict each other; give one of them")
    if create_table and (what or ban or clear):
        raise BadInput("--create-table goes alone")
    if (ban or clear) and not what:
        raise BadInput("name the GPU by its serial number: hotspare ledger SERIAL --ban --why '...'")
    if why and not (ban or clear):
        raise BadInput("--why goes with --ban or --clear")


@contextmanager
def _memory(settings: Settings) -> Iterator[HostMemory]:
    wiring = Wiring(settings)
    try:
        yield wiring.memory
    finally:
        wiring.close()


def _create_table(answer: Answer, settings: Settings) -> None:
    if settings.store.memory != "dynamodb":
        raise BadInput(f'{settings.file}: store.memory is "{settings.store.memory}", which needs no table')
    table = make_memory_table(settings)
    answer.document({"table": table})
    answer.say(Text(f"made the table {table}; the policies of the worker roles for it are in infra/iam/memory"))


def _mark(answer: Answer, memory: HostMemory, view: LedgerView, serial: str, *, bad: bool, why: str, now: datetime) -> None:
    """Write a person's word on a GPU. One that was never seen may be banned: a box that comes back is known by its label."""
    known = memory.gpus([serial])
    if known and (known[0].known_bad is not None) is bad:
        raise BadInput(f"GPU {serial} is {'banned already' if bad else 'not banned'}; see: hotspare ledger {serial}")
    if not known and not bad:
        view.of(serial)  # raises with the nearest names
        raise BadInput(f"{serial} is no GPU's serial number; see: hotspare ledger {serial}")
    record = mark_gpu(memory, serial, bad=bad, by=person(), why=why, now=now)
    answer.document(record)
    if not bad:
        answer.say(Text(f"GPU {serial} is not banned any more", style="bold green"))
        return
    answer.say(Text(f"GPU {serial} is banned", style="bold red"))
    if record.home is None:
        answer.say(Text("it was never seen here: check the number"))
    else:
        answer.say(Text(f"it was last seen in {record.home.name} ({record.home.instance_id}): its next look asks to replace it"))


def _tell_all(answer: Answer, found: Ledger) -> None:
    if not found.hosts and not found.gpus:
        answer.say("nothing is remembered yet: the first sweep writes the ledger")
        return
    table = _table("host", "zone", "strikes", "weight", "last incident", "fate", "banned GPUs", "last seen")
    for host in found.hosts:
        table.add_row(
            Text(_called(host), style="bold"),
            Text(host.zone),
            str(host.strikes),
            Text(f"{host.weight:.1f}", style="yellow" if host.weight >= 1 else ""),
            Text(_last(host)),
            Text(host.fate),
            Text(", ".join(host.banned), style="red"),
            Text(_day(host.seen_at)),
        )
    answer.say(table)
    if found.gpus:
        answer.say(_gpu_table(found.gpus))


def _gpu_table(gpus: list[GpuLine]) -> Table:
    table = _table("GPU", "last seen in", "strikes", "weight", "word", "since", "by", "why")
    for gpu in gpus:
        word = Text("known bad", style="bold red") if gpu.known_bad else Text("cleared" if gpu.since else "", style="green")
        table.add_row(
            Text(gpu.serial, style="bold"),
            Text(gpu.host),
            str(gpu.strikes),
            f"{gpu.weight:.1f}",
            word,
            Text(_day(gpu.since)),
            Text(gpu.by),
            Text(gpu.why),
        )
    return table


def _tell_host(answer: Answer, past: HostPast) -> None:
    host, record = past.host, past.record
    answer.say(Text(f"{_called(host)}: {record.instance_type} in {host.zone or 'an unknown zone'}", style="bold"))
    facts = {
        "reservation": host.reservation,
        "fate": host.fate,
        "passed its tests": _day(record.qualified_at),
        "last seen": _day(host.seen_at),
        "strikes": f"{host.strikes}, weighing {host.weight:.1f} now",
    }
    for name, value in facts.items():
        if value:
            answer.say(Text(f"  {name}: {value}"))
    if past.gpus:
        answer.say(_gpu_table(past.gpus))
    _tell_attempts(answer, record.attempts, "steps taken on it")
    _tell_attempts(answer, past.elsewhere, "steps taken on its GPUs under other instance ids")
    for closed in past.incidents:
        decided = f"{closed.decisions_made or len(closed.decisions)} decisions"
        answer.say(Text(f"  {closed.closed_at:%Y-%m-%d %H:%M} {closed.fault_class or 'no fault'}: {closed.outcome} ({decided})"))


def _tell_gpu(answer: Answer, past: GpuPast) -> None:
    answer.say(_gpu_table([past.gpu]))
    for home in past.record.homes:
        where = f"{home.name or home.instance_id} ({home.instance_id}{f', {home.zone}' if home.zone else ''})"
        answer.say(Text(f"  in {where} from {_day(home.first_seen)} to {_day(home.last_seen)}"))
    for strike in past.record.strikes:
        answer.say(Text(f"  {_day(strike.at)} {strike.fault_class}: {strike.incident}"))
    for mark in past.record.marks:
        answer.say(Text(f"  {_day(mark.at)} {'banned' if mark.bad else 'cleared'} by {mark.by}: {mark.why}"))
    _tell_attempts(answer, past.attempts, "steps taken for it")


def _tell_attempts(answer: Answer, attempts: list[RungAttempt], heading: str) -> None:
    if attempts:
        answer.say(Text(f"  {heading}:"))
    for one in attempts:
        helped = {True: "helped", False: "did not help", None: "no result yet"}[one.helped]
        answer.say(Text(f"    {one.at:%Y-%m-%d %H:%M} {one.rung.value} for {one.fault_class}: {helped}"))


def _table(*headings: str) -> Table:
    table = Table(show_header=True)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _called(host: HostLine) -> str:
    return f"{host.name} ({host.instance_id})" if host.name else host.instance_id


def _last(host: HostLine) -> str:
    return f"{_day(host.last.closed_at)} {host.last.fault_class or 'no fault'}: {host.last.outcome}" if host.last else ""


def _day(at: Any) -> str:
    return f"{at:%Y-%m-%d}" if at else ""
