"""`hotspare promote`: the record of a rung for a fault class so far, and, after a yes, its new mode in the settings file."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from activities.errors import BadInput
from activities.host_memory import HostRecord
from checks.model import Action
from workers.cli.common import OK, REFUSED, Answer, ConfigOption, JsonOption, answering, many
from workers.cli.promote_healers import Healers, healers_in_words, look_for_healers
from workers.cli.promoting import pools_apart, promoted, write_promotion
from workers.cli.replay import MOST_INCIDENTS, SinceOption, closed_since, read_period
from workers.cli.track_record import RUNG_NAMES, TrackRecord, track_record
from workers.credentials import observes
from workers.settings import Settings, load_settings
from workers.wiring import Wiring
from workflows.decisions.gates import mode_of
from workflows.decisions.ladder import DISRUPTIVE
from workflows.decisions.replayed import Replay, in_words, replay
from workflows.decisions.settings import Mode

MOST_SHOWN = 10
"""Differences and words that are shown to people. Hotspare default; --json gives all."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(promote)


def promote(
    fault_class: Annotated[str, typer.Option("--class", help="Fault class, such as gpu_lost; see: hotspare explain.")],
    rung: Annotated[str, typer.Option("--rung", help=f"{', '.join(RUNG_NAMES)}.")],
    to: Annotated[Mode, typer.Option("--to", help="approve: ask a person first; act: do it; observe: take it back.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    since: SinceOption = "90d",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the record of a rung for a fault class, then write its new mode into the settings file.

    Ends with 0 when the file says so, with 1 when it was left as it was.
    """
    with answering(as_json) as answer:
        settings = load_settings(config)
        action = read_rung(rung)
        refuse_unless_on_a_ladder(settings, fault_class, action)
        present = mode_of(action, settings.policy, fault_class)
        record, past, healers, cut = look(settings, fault_class, action, to, since)
        _tell(answer, settings, Asked(fault_class, action, present, to), record, past, healers)
        if cut:
            answer.say(Text(f"only the newest {MOST_INCIDENTS} incidents of all classes were looked at", style="yellow"))
        written = present is to or ((yes or _agreed(as_json)) and bool(write_promotion(settings.file, fault_class, action, to)))
        answer.document(
            {
                "class": fault_class,
                "rung": action.value,
                "from": present.value,
                "to": to.value,
                "record": record,
                "replay": past,
                "cut": cut,
                "healers": healers.nodes,
                "healers_unknown": healers.unknown,
                "without_rung": healers.without_rung,
                "not_asked": healers.not_asked,
                "file": settings.file,
                "written": written,
            }
        )
        _tell_end(answer, settings, Asked(fault_class, action, present, to), written)
    raise typer.Exit(OK if written else REFUSED)


@dataclass(frozen=True)
class Asked:
    """The promotion that is asked for."""

    fault_class: str
    rung: Action
    present: Mode
    to: Mode


def read_rung(text: str) -> Action:
    """Read a rung by the name that a person types, or the one in the settings. Raises BadInput with the names."""
    action = RUNG_NAMES.get(text.lower().replace("_", "-")) or Action.__members__.get(text.upper())
    if action not in RUNG_NAMES.values():
        raise BadInput(f"{text!r} is no rung; rungs are {', '.join(RUNG_NAMES)}")
    assert action is not None
    return action


def refuse_unless_on_a_ladder(settings: Settings, fault_class: str, rung: Action) -> None:
    """Raise BadInput where the mode could never matter: unknown class, or a rung that its ladder has not."""
    policy = settings.policy
    ladder = policy.ladders.get(fault_class)
    if ladder is None:
        near = difflib.get_close_matches(fault_class, policy.ladders, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(policy.ladders)}"
        raise BadInput(f"{fault_class!r} is no fault class; {hint}")
    soft = policy.soft_reboot and rung is Action.SOFT_REBOOT and Action.REBOOT_NODE in ladder
    by_code = any(rung in rungs for rungs in policy.ladders_by_code.values())
    if rung not in ladder and not soft and not by_code:
        rungs = ", then ".join(one.value for one in ladder) or "no rung: it is for people"
        raise BadInput(f"the ladder of {fault_class} has no {rung.value}; it has {rungs}")


def look(settings: Settings, fault_class: str, rung: Action, to: Mode, since: str) -> tuple[TrackRecord, Replay, Healers, bool]:
    """Read the record, decide the past again with the promotion, ask who else repairs these nodes; and whether there was more."""
    begin = datetime.now(UTC) - read_period(since)
    closed, cut = closed_since(settings, begin)
    of_class = [one for one in closed if one.fault_class == fault_class]
    wiring = Wiring(settings)
    try:
        hosts: list[HostRecord] = wiring.memory.records()
        healers = look_for_healers(wiring, settings, rung) if rung in DISRUPTIVE else Healers()
    finally:
        wiring.close()
    record = track_record(of_class, hosts, fault_class, rung, begin)
    return record, replay(of_class, promoted(settings.policy, fault_class, rung, to), settings.policy), healers, cut


def _agreed(as_json: bool) -> bool:
    """Ask; who cannot be asked has not agreed."""
    if as_json:
        return False
    try:
        return typer.confirm("Write it?", default=False)
    except typer.Abort:
        return False


def _tell(answer: Answer, settings: Settings, asked: Asked, record: TrackRecord, past: Replay, healers: Healers) -> None:
    lines: list[Any] = [
        Text(f"{asked.rung.value} for {asked.fault_class}: {asked.present.value} -> {asked.to.value}", style="bold")
    ]
    if not record.incidents:
        lines.append(Text(f"no incident of {asked.fault_class} is remembered: there is no record to go by", style="yellow"))
    else:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in record.outcomes.items())
        lines.append(f"{many(record.incidents, 'incident')} since {record.since:%Y-%m-%d}: {ends}")
        lines.append(f"  only observed {record.observed} times, asked for in {many(record.asked, 'incident')}")
        lines.append(f"  of those approved in {record.approved}, never answered in {record.unanswered}")
        lines.append(f"  taken {record.taken} times")
    if asked.rung in DISRUPTIVE:
        tried = f"{record.helped} helped, {record.did_not_help} did not, {record.without_result} without a result yet"
        lines.append(f"  attempts on all nodes: {tried}")
    if record.unreadable:
        lines.append(Text(f"  {many(record.unreadable, 'decision')} could not be read", style="yellow"))
    lines += _otherwise(record)
    lines += _past(past, asked)
    lines += healers_in_words(healers) if asked.rung in DISRUPTIVE else []
    for pool, mode in pools_apart(
        promoted(settings.policy, asked.fault_class, asked.rung, asked.to), asked.fault_class, asked.rung
    ).items():
        lines.append(Text(f"pool {pool} keeps {mode.value}: policy.pools.{pool} has its own", style="yellow"))
    for line in lines:
        answer.say(line if isinstance(line, Text) else Text(line))


def _otherwise(record: TrackRecord) -> list[str]:
    if not record.otherwise:
        return ["what people did otherwise: nothing that they told Hotspare; what they did by hand it does not know"]
    lines = [f"what people did otherwise ({len(record.otherwise)}):"]
    for one in record.otherwise[-MOST_SHOWN:]:
        about = f" {one.step}" if one.step else ""
        who = one.by or "somebody"
        lines.append(
            f"  {one.at:%Y-%m-%d %H:%M} {one.instance_id}: {who} said {one.verb}{about}: {one.reason or 'no reason given'}"
        )
    return lines


def _past(past: Replay, asked: Asked) -> list[str]:
    first = [one for one in past.differences if one.first and not one.already]
    lines = [f"in mode {asked.to.value}, {many(len(first), 'incident')} of {past.incidents} would have gone otherwise"]
    lines += [
        f"  {one.at:%Y-%m-%d %H:%M} {one.node}: {in_words(one.was)} -> {in_words(one.would_be)}" for one in first[-MOST_SHOWN:]
    ]
    if past.unknown:
        lines.append(f"  {many(past.unknown, 'decision')} could not be made again; see: hotspare replay")
    return lines


def _tell_end(answer: Answer, settings: Settings, asked: Asked, written: bool) -> None:
    if not written:
        answer.say(Text(f"{settings.file} was left as it was"))
        return
    if asked.present is asked.to:
        answer.say(Text(f"{settings.file} says so already; nothing was written"))
        return
    answer.say(Text(f"written to {settings.file}; workers take it up when they are started again", style="bold"))
    if "observe" in settings.aws.roles and observes(settings.policy) and asked.to is not Mode.OBSERVE:
        answer.say(Text("from then on they use the credentials of their own roles (aws.roles), which can write"))
