"""`hotspare replay --policy FILE`: which past decisions a changed policy would have made otherwise, and why. Changes nothing."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from activities.errors import BadInput
from activities.host_memory import ClosedIncident
from workers.cli.common import OK, UNKNOWN, WARN, Answer, ConfigOption, JsonOption, answering, many
from workers.settings import Settings, load_settings
from workers.wiring import Wiring
from workflows.decisions.replayed import Difference, Replay, in_words, replay
from workflows.decisions.settings import PolicySettings

MOST_INCIDENTS = 5_000
"""Closed incidents that are read at most, newest first. Hotspare default: with 20 decisions each about 100 MB of memory."""

MOST_REASONS = 4
"""Reasons of a decision that are shown to people. Hotspare default; --json gives all."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERIOD = re.compile(r"(\d{1,6})([mhdw])")

SinceOption = Annotated[str, typer.Option("--since", help="How far back incidents are looked at: 30d, 12h, 90m, 4w.")]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="replay")(replay_policy)


def replay_policy(
    policy: Annotated[Path, typer.Option("--policy", "-p", help="Settings file whose [policy] table is tried.")],
    since: SinceOption = "30d",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a changed policy on past incidents: every decision that would differ, with both reasons.

    Ends with 0 when none differs, 1 when some do, 3 when no recorded decision could be made again.
    """
    with answering(as_json) as answer:
        settings = load_settings(config)
        tried = read_policy(policy)
        begin = datetime.now(UTC) - read_period(since)
        closed, cut = closed_since(settings, begin)
        outcome = replay(closed, tried, settings.policy)
        answer.document({"policy": policy, "since": begin.isoformat(), "cut": cut, "unknown": outcome.unknown, "replay": outcome})
        _tell(answer, outcome, f"closed since {begin:%Y-%m-%d %H:%M} UTC, under {policy}", cut)
    raise typer.Exit(exit_status(outcome))


def exit_status(outcome: Replay) -> int:
    """0: nothing differs; 1: something does; 3: nothing could be said."""
    if outcome.differences:
        return WARN
    return UNKNOWN if outcome.unknown and not outcome.decisions else OK


def read_policy(file: Path) -> PolicySettings:
    """Read the [policy] table of a settings file. Raises BadInput: a file without one would try the defaults unasked."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file; copy the settings file, change its [policy], and name the copy")
    settings = load_settings(file)
    if "policy" not in tomllib.loads(file.read_text(encoding="utf-8")):
        raise BadInput(f"{file}: has no [policy] table, so there is nothing to try")
    return settings.policy


def read_period(text: str) -> timedelta:
    """Read 30d, 12h, 90m or 4w. Raises BadInput."""
    found = _PERIOD.fullmatch(text.strip().lower())
    if found is None:
        raise BadInput(f"{text!r} is no period; write 30d, 12h, 90m or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def closed_since(settings: Settings, begin: datetime) -> tuple[list[ClosedIncident], bool]:
    """Incidents of the cluster from host memory, oldest first, and whether there were more than are read."""
    wiring = Wiring(settings)
    try:
        newest = wiring.memory.incidents(limit=MOST_INCIDENTS)
    finally:
        wiring.close()
    wanted = [one for one in newest if one.cluster == settings.name and one.closed_at >= begin]
    cut = len(newest) == MOST_INCIDENTS and newest[-1].closed_at >= begin
    return sorted(wanted, key=lambda one: one.closed_at), cut


def _tell(answer: Answer, outcome: Replay, what: str, cut: bool) -> None:
    answer.say(Text(f"{many(outcome.decisions, 'decision')} of {many(outcome.incidents, 'incident')} {what}", style="bold"))
    for difference in outcome.differences:
        _tell_difference(answer, difference)
    first = sum(1 for one in outcome.differences if one.first)
    later = len(outcome.differences) - first
    words = (
        f"{many(len(outcome.differences), 'decision')} would differ, in {many(first, 'incident')}"
        if first
        else "no decision would differ"
    )
    answer.say(Text(words, style="bold yellow" if first else "bold green"))
    if later:
        answer.say(Text(f"{later} of them come after their incident's first difference: what they rest on might not have come"))
    if outcome.assumed:
        answer.say(Text(f"{outcome.assumed} are from older records, in which node, past attempts and probe were put in"))
    lost: Counter[str] = Counter()
    for missing in outcome.not_rebuilt:
        lost[missing.why] += missing.count
    for why, count in lost.most_common():
        answer.say(Text(f"{many(count, 'decision')} could not be made again: {why}", style="yellow"))
    if cut:
        answer.say(Text(f"only the newest {MOST_INCIDENTS} incidents were looked at; shorten --since", style="yellow"))


def _tell_difference(answer: Answer, one: Difference) -> None:
    answer.say(Text(f"\n{one.node}  {one.at:%Y-%m-%d %H:%M:%S} UTC  {one.incident}", style="bold"))
    for label, step in (("was", one.was), ("would be", one.would_be)):
        answer.say(Text(f"  {label:9}{in_words(step)}"))
        for reason in step.because[:MOST_REASONS]:
            answer.say(Text(f"           - {reason}", style="dim"))
    notes = [
        *(["the present settings decide so too"] if one.already else []),
        *([] if one.first else ["after this incident's first difference"]),
        *(["from an older record"] if one.assumed else []),
    ]
    if notes:
        answer.say(Text(f"  {'; '.join(notes)}", style="yellow"))
