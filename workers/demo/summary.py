"""The summary of a story: what was wrong, what was done and why, where the node is now, and what it cost the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from workers.demo.ending import Ending
from workers.demo.following import Told
from workers.demo.stories import Story

LOOKING = frozenset(
    {"reported", "reported again", "diagnosed", "looked again", "waiting", "evidence", "resolved", "nothing found"}
)
"""Phases of an incident in which nothing is done to the node or the job."""

NOTHING = "none "
"""Begin of the diagnosis of a node with which nothing is wrong (any more)."""


@dataclass(frozen=True)
class Row:
    """A row of the summary. One without a label goes on with the row before it."""

    label: str
    text: str


def summary(story: Story, ending: Ending, told: list[Told], since: datetime) -> list[Row]:
    """Return the summary, the node that began the story first."""
    rows: list[Row] = []
    for node in sorted(ending.reports, key=lambda name: (name != story.fault.node, name)):
        rows += _of_node(node, ending, [one for one in told if one.by_incident and one.who == node], since)
    rows.append(Row(ending.job_after.name, _job(ending)))
    return rows


def _of_node(node: str, ending: Ending, told: list[Told], since: datetime) -> list[Row]:
    report = ending.reports[node]
    diagnoses = [one.line.text for one in told if one.line.phase == "diagnosed"]
    diagnoses = [text for text in diagnoses if not text.startswith(NOTHING)] or diagnoses
    done = [one for one in told if one.line.phase not in LOOKING]
    rows = [Row(node, ""), Row("  was wrong", diagnoses[-1] if diagnoses else report.fault or "nothing was found")]
    labels = ["  was done", *[""] * len(done)]
    rows += [
        Row(label, f"{offset(one, since)}  {one.line.phase}: {one.line.text}") for label, one in zip(labels, done, strict=False)
    ]
    lost = "no training was lost"
    if report.lost_minutes is not None:
        lost = f"{report.lost_minutes:.1f} minutes ({report.lost_minutes * 60:.0f} s) of training lost"
    rows.append(Row("  is now", f"{_place(node, report.fate, ending)}; {lost}"))
    return rows


def _place(node: str, fate: str, ending: Ending) -> str:
    """Where the node is: its fate as the incident recorded it, and what EC2's tags and the job say."""
    seen = ["quarantined" if node in ending.quarantined else "in service"]
    if node in ending.job_after.nodes:
        seen.append("training")
    return f"{fate} ({', '.join(seen)})" if fate and fate not in seen else ", ".join(seen)


def _job(ending: Ending) -> str:
    parts = []
    if ending.stopped_at is not None and ending.stopped_s is not None:
        parts.append(f"stopped at step {ending.stopped_at} (+{ending.stopped_s:.1f} s)")
    if ending.resumed_from is not None:
        parts.append(f"went back to the checkpoint of step {ending.resumed_from}")
    if ending.again_s is not None:
        parts.append(f"was seen past it at +{ending.again_s:.1f} s")
    return ", ".join(parts) or "was not seen to stop"


def offset(told: Told, since: datetime) -> str:
    """Return when a line was told, as seconds after the fault."""
    return f"+{(told.line.at - since).total_seconds():.1f} s"
