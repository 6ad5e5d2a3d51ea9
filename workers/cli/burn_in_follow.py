"""Follows a burn-in that runs: a table that grows with its rounds on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import FailureError
from temporalio.service import RPCError

from activities.errors import CommandFailed
from workers.cli.burn_in_shown import rounds_table
from workers.cli.common import Answer
from workers.cli.looking import QUERY_TIMEOUT
from workers.connection import TemporalAway
from workflows.messages import BurnInReport, GroupRun
from workflows.operator_view import Line

LOOK_S = 0.5
"""Seconds between looks at the rounds. Hotspare default: a person sees a group when it ends; a run takes tens of seconds."""

BurnInHandle = WorkflowHandle[object, BurnInReport]


class OnTerminal:
    """The rounds in one table, drawn over in place; the finished table stays."""

    def __init__(self, answer: Answer, live: Live) -> None:
        self._answer, self._live = answer, live
        self._spinner = Spinner("dots")

    async def look(self, handle: BurnInHandle, ended: bool) -> str:
        """Show the runs as they are; returns what kept from it."""
        runs, why = await runs_of(handle)
        if runs:
            table = rounds_table(runs, self._answer.console.width, None if ended else self._spinner)
            self._live.update(table, refresh=True)
        return why


class InLines:
    """The story, each line once."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._shown = 0

    async def look(self, handle: BurnInHandle, ended: bool) -> str:
        """Write the new lines; returns what kept from it."""
        try:
            lines: list[Line] = await handle.query("story", result_type=list[Line], rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            return _no_worker(error)
        for line in lines[self._shown :]:
            self._answer.say(Text.assemble(f"{line.at:%H:%M:%S}  ", (f"{line.phase}  ", "bold"), line.text))
        self._shown = max(self._shown, len(lines))
        return ""


async def follow(answer: Answer, handle: BurnInHandle) -> BurnInReport:
    """Show the burn-in as it goes on, and return its verdict."""
    result = asyncio.ensure_future(handle.result())
    trouble = ""
    try:
        with _screen(answer) as screen:
            while True:
                done, _ = await asyncio.wait({result}, timeout=LOOK_S)
                why = await screen.look(handle, bool(done))
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


@contextlib.contextmanager
def _screen(answer: Answer) -> Iterator[OnTerminal | InLines]:
    if answer.as_json or not answer.console.is_terminal:
        yield InLines(answer)
        return
    with Live(console=answer.console, refresh_per_second=8) as live:
        yield OnTerminal(answer, live)


async def runs_of(handle: BurnInHandle) -> tuple[list[GroupRun], str]:
    """Every group run of a burn-in, and why they cannot be told."""
    try:
        return await handle.query("runs", result_type=list[GroupRun], rpc_timeout=QUERY_TIMEOUT), ""
    except (RPCError, WorkflowQueryFailedError) as error:
        return [], _no_worker(error)


def _no_worker(error: Exception) -> str:
    return f"no worker tells its story ({error}); start one: hotspare worker"


def _cause_of(error: BaseException) -> str:
    """The innermost reason: the outer ones only say that something within them failed."""
    while isinstance(error.__cause__, FailureError):
        error = error.__cause__
    return str(error)
