"""`hotspare worker`, `watch`, `intake`, and `run` for all three in one process."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from checks.catalog import read_overrides
from workers.cli.common import ConfigOption, JsonOption, VerboseOption, answering, log_to_stderr, run_async
from workers.connection import TemporalAway, connect
from workers.settings import Settings, load_settings

logger = logging.getLogger(__name__)

CONNECT_AGAIN_S = 2.0
"""Seconds between tries to reach Temporal at the start. Hotspare default."""

Process = Callable[[Settings, Client, asyncio.Event, "Announce"], Awaitable[None]]


class Announce:
    """Says on stdout that a part is up: for people, or one JSON object a line."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, part: str, text: str, **facts: object) -> None:
        """Write one line at once."""
        line = json.dumps({"up": part, "text": text, **facts}) if self._as_json else f"{part}: {text}"
        print(line, flush=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(worker)
    app.command()(watch)
    app.command()(intake)
    app.command(name="run")(run_all)


def worker(
    config: ConfigOption = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="control, aws, k8s, ssh or notify; may be given several times; else all.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Serve workflows and activities."""
    with answering(as_json):
        roles = _roles(role)

        async def part(settings: Settings, client: Client, stop: asyncio.Event, announce: Announce) -> None:
            await _worker(settings, client, stop, announce, roles)

        _run(config, as_json, verbose, [part], "worker")


def watch(config: ConfigOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Follow every node's kernel log and report faults."""
    with answering(as_json):
        _run(config, as_json, verbose, [_watcher], "watcher")


def intake(config: ConfigOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Take Alertmanager's webhook messages, and people's answers."""
    with answering(as_json):
        _run(config, as_json, verbose, [_intake], "intake")


def run_all(config: ConfigOption = None, as_json: JsonOption = False, verbose: VerboseOption = False) -> None:
    """Worker, watcher and intake in one process."""
    with answering(as_json):
        _run(config, as_json, verbose, [_worker, _watcher, _intake], "all")


def _roles(named: list[str] | None) -> list[str]:
    from workers.worker import Role

    known = [role.value for role in Role]
    for name in named or []:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is no role; roles are {', '.join(known)}")
    return named or known


async def _worker(settings: Settings, client: Client, stop: asyncio.Event, announce: Announce, roles: Sequence[str] = ()) -> None:
    from workers.worker import Role, serve

    # A worker takes no client that connects at first use.
    connected = await _connected(settings, stop) if client.service_client.config.lazy else client
    if connected is None:
        return
    served = [Role(name) for name in roles] or list(Role)
    watching = asyncio.ensure_future(_watch_wedges(settings, connected, stop)) if Role.NOTIFY in served else None
    try:
        await serve(
            settings,
            connected,
            stop,
            served,
            ready=lambda queues: announce("worker", f"serving {', '.join(queues)} of cluster {settings.name}", queues=queues),
        )
    finally:
        stop.set()
        if watching:
            await watching


async def _watch_wedges(settings: Settings, client: Client, stop: asyncio.Event) -> None:
    """Page for workflows that are stuck on their own code: beside the worker, because no workflow can."""
    from workers.wedged_watch import WedgeWatch
    from workers.wiring import Wiring

    wiring = Wiring(settings, client, "notify")
    try:
        watch = WedgeWatch(settings.name, client, wiring.notifier, wiring.memory, settings.worker, settings.temporal.ui_url)
        await watch.run(stop)
    finally:
        wiring.close()


async def _connected(settings: Settings, stop: asyncio.Event) -> Client | None:
    """Wait for Temporal, without which a worker cannot start; None when the process is to stop first."""
    said = False
    while not stop.is_set():
        try:
            return await connect("worker", settings.worker.metrics_address, settings.codec)
        except TemporalAway as error:
            if not said:
                logger.warning("nothing is healed yet, what is reported is kept on disk: %s", error)
            said = True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), CONNECT_AGAIN_S)
    return None


async def _watcher(settings: Settings, client: Client, stop: asyncio.Event, announce: Announce) -> None:
    if (kind := settings.access.kind) in ("agent", "ssm"):
        announce("watcher", f'nothing to do: with access.kind = "{kind}" the agents on the nodes report to the intake', nodes=0)
        await stop.wait()
        return
    from workers.watcher.watcher import Watcher
    from workers.wiring import Wiring

    wiring = Wiring(settings, client, "watcher")
    try:
        overrides = read_overrides(settings.checks.overrides)
        watcher = Watcher(
            settings.name, wiring.inventory, wiring.access_to, wiring.gateway, settings.watcher, overrides, settings.spool
        )
        await watcher.run(stop, ready=lambda count: announce("watcher", f"following {count} nodes", nodes=count))
    finally:
        wiring.close()


async def _intake(settings: Settings, client: Client, stop: asyncio.Event, announce: Announce) -> None:
    from workers.forwarding import Forwarder, boot_over
    from workers.intake.answers import Answers
    from workers.intake.app import Intake
    from workers.intake.delivery import Delivery
    from workers.intake.queue import EventReader
    from workers.intake.server import bind, serve_intake, tls_of
    from workers.intake.token import TokenFile, write_token
    from workers.intake.unknown import TemporalObserver, UnknownNodePager
    from workers.saying import say
    from workers.spool import Spool
    from workers.wiring import Wiring

    token = TokenFile(settings.intake.token_file)
    token.check_usable()
    tls = tls_of(settings.intake)
    answers_token = None
    if settings.intake.answers_own_token:
        file = settings.intake.token_file.with_name("answers.token")
        write_token(file)
        answers_token = TokenFile(file)
        answers_token.check_usable()
    wiring = Wiring(settings, client, "intake")
    listening = bind(settings.intake)
    try:
        pager = UnknownNodePager(settings.name, wiring.notifier, settings.intake.unknown_page_again_s)
        observer = TemporalObserver(client)
        spool = Spool(settings.spool.folder / "intake", settings.spool)
        delivery = Delivery(settings.name, wiring.inventory, wiring.gateway, observer, pager, settings.intake, spool=spool)
        answers = Answers(settings.name, wiring.inventory, partial(say, client), settings.intake.confirm_timeout_s)
        taking = Intake(delivery, token, settings.intake, spool, answers, answers_token)
        forwarder = Forwarder(
            settings.name,
            spool,
            wiring.gateway,
            boot_over(wiring.access_to),
            settings.spool.max_age_s,
            settings.intake.confirm_timeout_s,
            settings.spool.retry_max_s,
        )
        beside = [asyncio.ensure_future(forwarder.run(stop))]
        if settings.intake.event_queue:
            queue = wiring.event_queue(settings.intake.event_queue)
            reader = EventReader(settings.name, queue, wiring.inventory, delivery, wiring.notifier)
            beside.append(asyncio.ensure_future(reader.run(stop)))
        try:
            await serve_intake(taking, listening, stop, lambda url: announce("intake", f"listening on {url}", url=url), tls)
        finally:
            stop.set()
            await asyncio.gather(*beside)
    finally:
        listening.close()
        wiring.close()


def _run(config: Path | None, as_json: bool, verbose: bool, parts: Sequence[Process], role: str) -> None:
    log_to_stderr(verbose)
    run_async(_serve(load_settings(config), parts, Announce(as_json), role))


async def _serve(settings: Settings, parts: Sequence[Process], announce: Announce, role: str) -> None:
    """Run all parts until a signal comes or one of them ends; then end the others too."""
    # Faults are heard and kept while Temporal is away; a worker alone has nothing to do without it.
    client = await connect(role, settings.worker.metrics_address, settings.codec, at_first_use=role != "worker")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(wanted, stop.set)

    async def until_end(part: Process) -> None:
        try:
            await part(settings, client, stop, announce)
        finally:
            stop.set()

    outcomes = await asyncio.gather(*(until_end(part) for part in parts), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
