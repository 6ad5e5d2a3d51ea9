"""For `hotspare status`: which nodes are seen and why others are not, what reservations have left, what would have been done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rich import box
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from activities.capacity import Reservation
from activities.errors import HotspareError
from activities.inventory import Node
from activities.names import ROLE_HEAD
from activities.node import Examine
from activities.probing import PastLog, ProbeCrashed
from checks.catalog import read_overrides
from checks.diagnosis import Hardware
from checks.model import Verdict
from workers.cli.common import many
from workers.cli.health_nodes import side_by_side
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.would_have import EPISODE_S, WouldHave, would_have

NAMED = 10
"""Nodes that one line names. Hotspare default: a line or two; --json has all."""

SHOWN = 40
"""Episodes that are shown to people, the newest. Hotspare default: a screenful; --json has all."""

MOST_DAYS = 60
"""Days of logs that are read at most. Hotspare default: journals rarely go back further."""


@dataclass
class Seen:
    """How many nodes the inventory expects, how many were read, by a sweep or now, and why the others were not.

    `not_lately` are those that no sweep has read in time and that were not looked at now; `stopped` do not run.
    """

    expected: int
    read: int = 0
    not_lately: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass
class Past:
    """What would have been done, from how many nodes' logs; whose could not be read and why, and whose begin later than asked."""

    days: int
    read: int = 0
    found: list[WouldHave] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    shorter: dict[str, datetime] = field(default_factory=dict)


async def look_at_nodes(settings: Settings, wiring: Wiring, nodes: Sequence[Node], now: datetime, *, look: bool) -> Seen:
    """Say which nodes are read: by the last sweeps, or now where `look` is asked for."""
    working = [node for node in nodes if node.role != ROLE_HEAD]
    running = [node for node in working if node.state == "running"]
    seen = Seen(len(working), stopped=[f"{node.name} ({node.state})" for node in working if node.state != "running"])
    if look:
        answers = await side_by_side(running, lambda node: _unreadable(wiring, node))
        seen.unreadable = {node.name: why for node, why in zip(running, answers, strict=True) if why}
        seen.read = len(running) - len(seen.unreadable)
        return seen
    lately = await asyncio.to_thread(_seen_lately, settings, wiring, running, now)
    seen.not_lately = [node.name for node in running if node.instance_id not in lately]
    seen.read = len(running) - len(seen.not_lately)
    return seen


def _unreadable(wiring: Wiring, node: Node) -> str:
    """Why a node cannot be read, empty where it can."""
    try:
        seen = wiring.node_activities.examine(Examine(node=node))
    except (HotspareError, ApplicationError) as error:
        return str(error)
    return (seen.why_unreachable or "; ".join(seen.opinion.because)) if seen.verdict is Verdict.UNKNOWN else ""


def _seen_lately(settings: Settings, wiring: Wiring, nodes: Sequence[Node], now: datetime) -> set[str]:
    oldest = now - timedelta(seconds=settings.parity.max_age_s)
    known = wiring.memory.configurations([node.instance_id for node in nodes])
    return {one.instance_id for one in known if one.taken_at >= oldest}


def reservations_of(wiring: Wiring, nodes: Sequence[Node]) -> tuple[list[Reservation], dict[str, str]]:
    """The Capacity Reservations that the nodes run in, and why one could not be read."""
    found: list[Reservation] = []
    unknown: dict[str, str] = {}
    for reservation_id in sorted({node.reservation for node in nodes if node.reservation}):
        try:
            found.append(wiring.capacity.reservation(reservation_id))
        except HotspareError as error:
            unknown[reservation_id] = str(error)
    return found, unknown


async def read_past(settings: Settings, wiring: Wiring, nodes: Sequence[Node], days: int, now: datetime) -> Past:
    """Read the logs of all running nodes, a bounded number at once, and judge them together."""
    since = now - timedelta(days=days)
    running = [node for node in nodes if node.role != ROLE_HEAD and node.state == "running"]
    answers = await side_by_side(running, lambda node: _log(wiring, node, since))
    logs = {node.instance_id: log for node, log in zip(running, answers, strict=True) if isinstance(log, PastLog)}
    past = Past(days, read=len(logs))
    past.unreadable = {node.name: why for node, why in zip(running, answers, strict=True) if isinstance(why, str)}
    for node in running:
        begins = logs[node.instance_id].begins if node.instance_id in logs else None
        if begins is not None and begins > (since + timedelta(hours=1)).timestamp():
            past.shorter[node.name] = datetime.fromtimestamp(begins, UTC)
    hardware = Hardware(next((node.instance_type for node in running), ""), overrides=read_overrides(settings.checks.overrides))
    past.found = await asyncio.to_thread(would_have, settings.name, running, logs, settings.policy, hardware, now)
    return past


def _log(wiring: Wiring, node: Node, since: datetime) -> PastLog | str:
    try:
        return wiring.past_log(node, since)
    except (HotspareError, ProbeCrashed) as error:
        return str(error)


def seen_in_words(seen: Seen) -> list[Text]:
    """What a person reads about which nodes are seen."""
    stopped = f", {len(seen.stopped)} not running" if seen.stopped else ""
    missing = len(seen.unreadable) + len(seen.not_lately)
    style = "red" if seen.unreadable else "yellow" if missing or seen.stopped else "green"
    lines = [Text(f"{many(seen.expected, 'node')} expected, {seen.read} read{stopped}", style=style)]
    if seen.not_lately:
        lines.append(Text(f"not read lately: {_some(seen.not_lately)}; why: hotspare status --look", style="yellow"))
    if seen.stopped:
        lines.append(Text(f"not running: {_some(seen.stopped)}", style="yellow"))
    lines += [Text(f"{name} cannot be read: {why}", style="red") for name, why in list(seen.unreadable.items())[:NAMED]]
    if len(seen.unreadable) > NAMED:
        lines.append(Text(f"and {len(seen.unreadable) - NAMED} more cannot be read; --json has all", style="red"))
    return lines


def reservations_in_words(found: Sequence[Reservation], unknown: dict[str, str], now: datetime) -> list[Text]:
    """What a person reads about reservations: free slots, and when each ends."""
    lines = []
    for one in found:
        kind = "Capacity Block" if one.kind == "capacity-block" else "reservation"
        words = f"{kind} {one.reservation_id}: {one.available} of {one.total} slots free ({one.instance_type} in {one.zone}), "
        soon = one.ends_at is not None and one.ends_at - now < timedelta(days=1)
        words += f"ends {one.ends_at:%Y-%m-%d %H:%M} UTC" if one.ends_at else "no end"
        lines.append(Text(words, style="yellow" if soon else ""))
    return [*lines, *(Text(f"reservation {name} cannot be read: {why}", style="red") for name, why in unknown.items())]


def past_in_words(past: Past) -> list[Text | Table]:
    """What a person reads about what would have been done."""
    lines: list[Text | Table] = []
    if past.found:
        title = f"what Hotspare would have done in the last {many(past.days, 'day')}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("when (UTC)", "node", "fault", "it would have"):
            table.add_column(heading, overflow="fold", no_wrap=heading.startswith("when"))
        events = _events(past.found)
        for together in events[-SHOWN:]:
            one = together[0]
            code = f" ({one.code})" if one.code is not None else ""
            what = Text(one.what.removeprefix("would "))
            if why := one.storm or "; ".join(one.because[:1]):
                what.append(f"\n{_printable(why)}", style="dim")
            names = list(dict.fromkeys(each.node for each in together))
            node = names[0] if len(names) == 1 else many(len(names), "node")
            table.add_row(f"{one.at:%m-%d %H:%M}", Text(node), Text(f"{one.fault_class.replace('_', ' ')}{code}"), what)
        lines.append(table)
        if len(events) > SHOWN:
            lines.append(Text(f"and {len(events) - SHOWN} earlier ones; --json has all"))
    else:
        lines.append(Text(f"nothing would have been done in the last {many(past.days, 'day')}", style="green"))
    lines.append(Text(f"read from the logs of {many(past.read, 'node')}, each time judged by itself", style="dim"))
    if past.shorter:
        newest = max(past.shorter.values())
        lines.append(
            Text(f"the logs of {_some(list(past.shorter))} begin later, the last at {newest:%m-%d %H:%M} UTC", style="dim")
        )
    lines += [
        Text(f"the log of {name} cannot be read: {why}", style="red") for name, why in list(past.unreadable.items())[:NAMED]
    ]
    if len(past.unreadable) > NAMED:
        lines.append(Text(f"and {len(past.unreadable) - NAMED} more logs cannot be read; --json has all", style="red"))
    return lines


def _events(found: Sequence[WouldHave]) -> list[list[WouldHave]]:
    """Put together what one event shows on many nodes; everything else stands alone."""
    events: list[list[WouldHave]] = []
    of_storm: dict[tuple[str, int], list[WouldHave]] = {}
    for one in found:
        if not one.storm:
            events.append([one])
            continue
        hour = int(one.at.timestamp() // EPISODE_S)
        known = of_storm.get((one.storm, hour)) or of_storm.get((one.storm, hour - 1))
        if known is None:
            known = []
            events.append(known)
        known.append(one)
        of_storm[(one.storm, hour)] = known
    return events


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _printable(words: str) -> str:
    """The words come from a log: nothing in them may steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:200]
