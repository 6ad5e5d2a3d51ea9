"""What status tells in the first hour: who is read and who is not, what reservations have left, what would have been done."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from rich.console import Console

from activities.capacity import Reservation
from activities.clients.fake_memory import FakeMemory
from activities.errors import NodeUnreachable, PreconditionFailed
from activities.host_memory import SeenConfiguration
from activities.inventory import Node
from activities.node import Examination, Examine, Opinion
from activities.probing import PastLog, ProbeCrashed
from checks.model import Action, Verdict
from tests.workers.fakes import node
from workers.cli.first_hour import (
    NAMED,
    look_at_nodes,
    past_in_words,
    read_past,
    reservations_in_words,
    reservations_of,
    seen_in_words,
)
from workers.settings import Settings

NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
LOST = "NVRM: Xid (PCI:0000:a3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CRASH = "NVRM: Xid (PCI:0000:a3:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted"
NODES = [node(1), node(2), node(3).model_copy(update={"state": "stopped"}), node(9, "head")]


class Wired:
    """A wiring over looks that a test decides."""

    def __init__(self, logs: dict[str, PastLog | Exception] | None = None) -> None:
        self.memory = FakeMemory()
        self.silent: set[str] = set()
        self.node_activities = SimpleNamespace(examine=self._examine)
        self.capacity = SimpleNamespace(reservation=self._reservation)
        self._logs = logs or {}

    def seen(self, one: Node, ago_s: float) -> None:
        at = NOW - timedelta(seconds=ago_s)
        self.memory.save_configuration(SeenConfiguration(instance_id=one.instance_id, taken_at=at, document={}))

    def past_log(self, one: Node, since: datetime) -> PastLog:
        log = self._logs.get(one.name, PastLog("journal", since.timestamp(), (), ()))
        if isinstance(log, Exception):
            raise log
        return log

    def _examine(self, asked: Examine) -> Examination:
        well = asked.node.name not in self.silent
        verdict, why = (Verdict.OK, "") if well else (Verdict.UNKNOWN, "no connection to port 22")
        opinion = Opinion(fault_class="none", action=Action.NONE)
        return Examination(reachable=well, verdict=verdict, opinion=opinion, taken_at=NOW, why_unreachable=why)

    def _reservation(self, reservation_id: str) -> Reservation:
        if reservation_id == "cr-gone":
            raise PreconditionFailed("EC2 has no Capacity Reservation cr-gone")
        ends = NOW + timedelta(hours=3) if reservation_id == "cr-block" else None
        kind = "capacity-block" if ends else "default"
        return Reservation(reservation_id=reservation_id, kind=kind, total=8, available=2, ends_at=ends)


def shown(parts: Sequence[object], width: int = 80) -> str:
    """What a person sees on a terminal so wide."""
    console = Console(width=width, record=True, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.export_text()


async def test_without_a_look_the_last_sweeps_tell_who_is_read() -> None:
    wiring = Wired()
    wiring.seen(NODES[0], 60)
    wiring.seen(NODES[1], 7200)
    seen = await look_at_nodes(Settings(), wiring, NODES, NOW, look=False)  # type: ignore[arg-type]
    assert (seen.expected, seen.read, seen.not_lately, seen.stopped) == (3, 1, ["node-2"], ["node-3 (stopped)"])
    text = shown([*seen_in_words(seen)])
    assert "3 nodes expected, 1 read, 1 not running" in text
    assert "hotspare status --look" in text


async def test_a_look_says_why_a_node_cannot_be_read() -> None:
    wiring = Wired()
    wiring.silent = {"node-2"}
    seen = await look_at_nodes(Settings(), wiring, NODES, NOW, look=True)  # type: ignore[arg-type]
    assert (seen.read, seen.unreadable) == (1, {"node-2": "no connection to port 22"})
    assert "node-2 cannot be read: no connection" in shown([*seen_in_words(seen)])


async def test_thousands_of_silent_nodes_are_a_few_lines() -> None:
    nodes = [node(n) for n in range(1, 1001)]
    wiring = Wired()
    wiring.silent = {one.name for one in nodes}
    seen = await look_at_nodes(Settings(), wiring, nodes, NOW, look=True)  # type: ignore[arg-type]
    lines = seen_in_words(seen)
    assert len(lines) == NAMED + 2
    assert "990 more" in lines[-1].plain


def test_reservations_are_told_once_with_free_slots_and_end_and_what_is_unknown_too() -> None:
    names = ("cr-block", "cr-a", "cr-a", "cr-gone")
    held = [one.model_copy(update={"reservation": name}) for one, name in zip(NODES, names, strict=True)]
    found, unknown = reservations_of(Wired(), held)  # type: ignore[arg-type]
    assert [one.reservation_id for one in found] == ["cr-a", "cr-block"]
    text = shown([*reservations_in_words(found, unknown, NOW)], 140)
    assert "Capacity Block cr-block: 2 of 8 slots free" in text
    assert "ends 2026-03-08 15:00 UTC" in text
    assert "reservation cr-a: 2 of 8 slots free" in text
    assert "cr-gone cannot be read" in text


def log(*lines: tuple[float, str], begins_days: float = 7) -> PastLog:
    """A log whose times are seconds before now."""
    now = NOW.timestamp()
    return PastLog("journal", now - begins_days * 86400, (), tuple((now - at, text) for at, text in lines))


async def test_the_past_says_what_would_have_been_done_and_whose_log_is_missing_or_short() -> None:
    wiring = Wired({"node-1": log((86400, LOST), begins_days=2), "node-2": NodeUnreachable("no connection")})
    past = await read_past(Settings(), wiring, NODES, 7, NOW)  # type: ignore[arg-type]
    assert [(one.node, one.code) for one in past.found] == [("node-1", 79)]
    assert (past.read, past.unreadable, list(past.shorter)) == (1, {"node-2": "no connection"}, ["node-1"])
    text = shown([*past_in_words(past)])
    assert "quarantine node-1" in text
    assert "the logs of node-1 begin later, the last at 03-06 12:00 UTC" in text
    assert "the log of node-2 cannot be read" in text


async def test_a_crash_on_many_nodes_is_one_row() -> None:
    nodes = [node(n) for n in range(1, 9)]
    wiring = Wired({one.name: log((3600 + n, CRASH)) for n, one in enumerate(nodes)})
    past = await read_past(Settings(), wiring, nodes, 7, NOW)  # type: ignore[arg-type]
    assert len(past.found) == 8
    text = shown([*past_in_words(past)])
    assert "8 nodes" in text
    assert text.count("application (31)") == 1


async def test_a_quiet_week_says_so_and_from_how_many_logs() -> None:
    past = await read_past(Settings(), Wired({"node-2": ProbeCrashed("no log")}), NODES, 7, NOW)  # type: ignore[arg-type]
    text = shown([*past_in_words(past)])
    assert "nothing would have been done in the last 7 days" in text
    assert "the logs of 1 node" in text


@pytest.mark.parametrize("width", [80, 140])
async def test_no_line_is_wider_than_the_terminal_and_nothing_in_a_log_steers_it(width: int) -> None:
    odd = LOST.replace("fallen", "\x1b[31mfallen")
    past = await read_past(Settings(), Wired({"node-1": log((86400, odd))}), NODES, 7, NOW)  # type: ignore[arg-type]
    text = shown([*past_in_words(past)], width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
