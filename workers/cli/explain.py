"""`hotspare explain`: what a fault code, a host signal, a log line or a group of rules means, without any connection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput
from checks.catalog import Machine, gpu_family, read_overrides
from checks.catalog.explain import GROUPS, Explanation, UnknownTopic, explain
from checks.catalog.rule_tables import Rules
from checks.model import Action
from workers.cli.common import Answer, ConfigOption, JsonOption, answering
from workers.cli.inputs import driver_of
from workers.settings import Settings, SettingsError, load_settings, named_config
from workflows.decisions.settings import PolicySettings

_STYLES = {
    Action.NONE: "bold green",
    Action.RESTART_JOB: "bold yellow",
    Action.RUN_DIAGNOSTICS: "bold yellow",
    Action.CONTACT_SUPPORT: "bold magenta",
}
"""Colours of actions; the others disrupt the node and are red."""

TOPICS = f"An XID number, sxid NUMBER, {', '.join(GROUPS)}, a host signal, or a whole log line."


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="explain")(explain_topic)


def explain_topic(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC", help=TOPICS)],
    instance_type: Annotated[str, typer.Option(help="EC2 instance type, such as p5.48xlarge: does the code apply to it?")] = "",
    driver_version: Annotated[str, typer.Option(help="Driver version: NVLink 5 registers changed with 575.")] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a fault: what it means, what is done about it, what becomes of the job, and who says so."""
    with answering(as_json) as answer:
        settings = _settings(config)
        overrides = read_overrides(settings.checks.overrides) if settings else {}
        try:
            found = explain(topic, Machine(driver_of(driver_version), gpu_family(instance_type), overrides))
        except UnknownTopic as error:
            raise BadInput(str(error)) from error
        ladder = _ladder(found, settings.policy if settings else PolicySettings())
        answer.document({**found.to_json(), "ladder": ladder})
        _show(answer, found, ladder)


def _settings(config: Path | None) -> Settings | None:
    """The settings, for their overrides and ladders. Without any file, or with a broken one that nobody named, none."""
    try:
        return load_settings(config)
    except SettingsError:
        if named_config(config):
            raise
        return None


def _ladder(found: Explanation, policy: PolicySettings) -> list[str]:
    """The rungs that the cluster climbs for this fault."""
    by_code = policy.ladders_by_code.get(found.topic)
    rungs = by_code if by_code is not None else policy.ladders.get(str(found.data.get("fault_class")), [])
    return [rung.value for rung in rungs]


def _show(answer: Answer, found: Explanation, ladder: list[str]) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, text in found.facts:
        style = _style(str(found.data.get("action", ""))) if label == "first action" else ""
        facts.add_row(label, Text(text, style=style))
    if ladder:
        facts.add_row("our ladder", Text(" -> ".join(ladder)))
    if found.facts:
        answer.say(Panel(facts, title=Text(found.title, style="bold"), title_align="left", box=box.ROUNDED, padding=(0, 1)))
    for rules in found.rules:
        answer.say(_table(rules))
    for source in found.sources:
        answer.say(Text(f"source  {source}", style="dim"))


def _table(rules: Rules) -> Table:
    table = Table(title=Text(rules.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rules.columns:
        table.add_column(column, overflow="fold")
    for row in rules.rows:
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    return table


def _style(word: str) -> str:
    if word not in Action.__members__:
        return ""
    return _STYLES.get(Action(word), "bold red")
