"""What every command shares: options, exit statuses, plain or JSON answers, and the way to Temporal."""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import typer
from pydantic import BaseModel
from rich.console import Console
from temporalio.client import Client

from activities.errors import BadInput, CapabilityMissing, HotspareError, PreconditionFailed, UnknownNode
from activities.inventory import Node
from workers.connection import connect
from workers.saying import Refused
from workers.settings import Settings, load_settings
from workers.wiring import Wiring
from workflows.decisions.spares_tests import acts

T = TypeVar("T")

OK, WARN, CRITICAL, UNKNOWN = 0, 1, 2, 3
"""Exit statuses of commands that judge (Nagios plug-in convention)."""

WRONG_USAGE = 64
"""EX_USAGE of sysexits.h: the command, its arguments or the settings file are wrong; nothing was done."""

REFUSED = 1
"""Exit status of commands that act: it was heard, and not done."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file; else $HOTSPARE_CONFIG, ./hotspare.toml, /etc/hotspare/hotspare.toml."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON document on stdout.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node by any name: instance id, node name, IP, host:port.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]


WIDTH_OF_FILES = 140
"""Columns of tables that go to a file or a pipe. Hotspare default: rich's 80 breaks instance ids."""


class Answer:
    """Writes what a command has to say: for people on a terminal, or as one JSON document."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Names come from tags and labels: nothing in them may be taken for markup.
        self.console = Console(highlight=False, soft_wrap=True, markup=False)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            self.console.width = WIDTH_OF_FILES

    def say(self, *parts: Any) -> None:
        """Write something for people; nothing when the answer is JSON."""
        if not self.as_json:
            self.console.print(*parts)

    def document(self, data: Any) -> None:
        """Write the JSON document; nothing when the answer is for people."""
        if self.as_json:
            print(json.dumps(plain(data), indent=2, ensure_ascii=False))


def plain(data: Any) -> Any:
    """Return data as JSON types."""
    if isinstance(data, BaseModel):
        return data.model_dump(mode="json")
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [plain(value) for value in data]
    return data if isinstance(data, (str, int, float, bool, type(None))) else str(data)


@contextmanager
def answering(as_json: bool) -> Iterator[Answer]:
    """Turn our errors into one clear line and an exit status: wrong usage 64, refused 1, what could not be done or told 3."""
    answer = Answer(as_json)
    try:
        yield answer
    except HotspareError as error:
        answer.document({"error": str(error), "kind": type(error).__name__})
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(str(error), style="red")
        raise typer.Exit(_status_of(error)) from error


def _status_of(error: HotspareError) -> int:
    if isinstance(error, (BadInput, CapabilityMissing, UnknownNode)):
        return WRONG_USAGE
    return REFUSED if isinstance(error, Refused) else UNKNOWN


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def log_to_stderr(verbose: bool = False) -> None:
    """Log to stderr, so that stdout has the answer alone."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True
    )
    for noisy in ("paramiko", "botocore", "boto3", "urllib3", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if verbose:
        logging.getLogger().setLevel(logging.DEBUG)


@dataclass
class Desk:
    """What a command works with: settings, clients, and a connection to Temporal."""

    settings: Settings
    wiring: Wiring
    client: Client

    async def resolve(self, alias: str) -> Node:
        """Find a node by any of its names. Raises UnknownNode naming the nearest."""
        return await asyncio.to_thread(self.wiring.inventory.resolve, self.settings.name, alias)

    async def nodes(self) -> list[Node]:
        """Every node of the cluster, by name."""
        nodes = await asyncio.to_thread(self.wiring.inventory.list, self.settings.name)
        return sorted(nodes, key=lambda node: (node.role, node.name))

    def refuse_where_observed(self, what: str) -> None:
        """Raise PreconditionFailed where nothing may be done to any node: a test puts load on them, whoever asks for it."""
        if not acts(self.settings.policy):
            raise PreconditionFailed(
                f"the cluster {self.settings.name} is only observed and {what} puts load on nodes, so nothing was started; set "
                'policy.mode = "approve", or what may be done to one class of faults with hotspare promote'
            )

    def ui_link(self, workflow_id: str) -> str:
        """Where the workflow is in the Temporal UI, empty when no UI is configured."""
        base = self.settings.temporal.ui_url.rstrip("/")
        return f"{base}/namespaces/{self.client.namespace}/workflows/{quote(workflow_id, safe='')}" if base else ""


@asynccontextmanager
async def desk(config: Path | None) -> AsyncIterator[Desk]:
    """Open settings, clients and connection. Raises SettingsError, TemporalAway."""
    settings = load_settings(config)
    client = await connect(codec=settings.codec)
    wiring = Wiring(settings, client)
    try:
        yield Desk(settings, wiring, client)
    finally:
        wiring.close()


def person() -> str:
    """Who is at the keyboard, as written into an incident's story."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def many(count: int, what: str) -> str:
    """Return "1 decision", "2 decisions"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
