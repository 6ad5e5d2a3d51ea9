"""`hotspare diagnose`: what kernel logs of one node or many say is wrong, and what Hotspare would do about it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput
from checks.catalog import Assessment, read_overrides
from checks.diagnosis import FleetLogs, Hardware, Recommendation, Storm, describe
from checks.document import worst
from checks.model import KernelEvent, Verdict
from workers.cli.common import Answer, answering
from workers.cli.inputs import DAMAGED, driver_of, open_input
from workers.settings import load_settings

MOST_ROWS = 200
"""Different faults in the table for people. Hotspare default; --json gives every line."""

_WHAT = "files with kernel logs"

MOST_REASONS = 3
"""Reasons of a recommendation in the table for people. Hotspare default; --json gives all."""

_STYLES = {Verdict.OK: "bold green", Verdict.WARN: "bold yellow", Verdict.CRITICAL: "bold red", Verdict.UNKNOWN: "bold magenta"}
_FIELDS = ("kind", "code", "pci", "pid", "name", "severity", "link", "recovery_from", "recovery_to")
_MORE_FIELDS = ("gpu_instance", "compute_instance", "caused_by", "signal", "monotonic_s", "text")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diagnose)


def diagnose(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Kernel logs in any form, packed too; - reads standard input.")
    ],
    driver_version: Annotated[str, typer.Option(help="Driver version: NVLink 5 registers changed with 575.")] = "",
    instance_type: Annotated[str, typer.Option(help="EC2 instance type of the nodes, such as p5.48xlarge.")] = "",
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings file whose checks.overrides hold too; none is looked for.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout: events, recommendations, storms.")] = False,
) -> None:
    """Diagnose nodes from their kernel logs: OK, WARN, CRITICAL or UNKNOWN (exit status 0 to 3) by the worst recommendation."""
    with answering(as_json) as answer:
        overrides = read_overrides(load_settings(config).checks.overrides) if config else {}
        logs = FleetLogs(Hardware(instance_type, driver_version=driver_of(driver_version), overrides=overrides), time.time())
        faults = _Faults()
        for file, name in _named(files):
            for node, event, meaning in _read(logs, file, name):
                _line(as_json, _event(node, event, meaning))
                faults.count(node, event, meaning)
        recommendations, storms = logs.conclude()
        for recommendation in recommendations:
            _line(as_json, _recommendation(recommendation))
        for storm in storms:
            _line(as_json, _storm(storm))
        _tell(answer, faults, recommendations, storms)
    raise typer.Exit(worst(recommendation.verdict for recommendation in recommendations).exit_status)


def _named(files: list[str]) -> list[tuple[str, str]]:
    """Pair each file with the node it stands for: its name, its whole path where two files have one name.

    Raises BadInput for a file that cannot be read, before anything is answered.
    """
    for file in files:
        # A pipe can be opened but once.
        if file != "-" and not Path(file).is_fifo():
            with ExitStack() as stack:
                open_input(file, stack, _WHAT)
    shared = Counter(Path(file).name for file in dict.fromkeys(files))
    return [(file, "stdin" if file == "-" else Path(file).name if shared[Path(file).name] == 1 else file) for file in files]


def _read(logs: FleetLogs, file: str, name: str) -> Iterator[tuple[str, KernelEvent, Assessment]]:
    with ExitStack() as stack:
        stream = open_input(file, stack, _WHAT)
        try:
            yield from logs.read(stream, name)
        except DAMAGED as error:
            raise BadInput(f"cannot read {file} to its end: {getattr(error, 'strerror', None) or error}") from error


def _line(as_json: bool, document: dict[str, Any]) -> None:
    if as_json:
        print(json.dumps(document, ensure_ascii=True))


def _event(node: str, event: KernelEvent, meaning: Assessment) -> dict[str, Any]:
    """What the line says, null where it does not say, and what that means by itself."""
    said = {name: None if (value := getattr(event, name)) == "" else value for name in (*_FIELDS, *_MORE_FIELDS)}
    words = {"action": meaning.action.value, "fault_class": meaning.fault_class, "because": meaning.because}
    return {"type": "event", "node": node, **said, "companion": event.companion, **words}


def _recommendation(found: Recommendation) -> dict[str, Any]:
    diagnosis = found.diagnosis
    return {
        "type": "recommendation",
        "node": found.node,
        "verdict": found.verdict.value,
        "fault_class": diagnosis.fault_class,
        "action": diagnosis.action.value,
        "confidence": diagnosis.confidence.value,
        "because": list(diagnosis.because),
        "code": diagnosis.code,
        "pci": diagnosis.gpu.pci if diagnosis.gpu and diagnosis.gpu.pci else None,
        "at_boundary": diagnosis.at_boundary,
        "lines": found.lines,
    }


def _storm(storm: Storm) -> dict[str, Any]:
    start, end = (None if at is None else datetime.fromtimestamp(at, UTC).isoformat() for at in storm.span)
    return {
        "type": "storm",
        "kind": storm.kind,
        "nodes": list(storm.nodes),
        "suspect": storm.suspect or None,
        "fault_class": storm.fault_class,
        "action": storm.action.value,
        "confidence": storm.confidence.value,
        "because": list(storm.because),
        "codes": list(storm.codes),
        "lines": storm.lines,
        "start": start,
        "end": end,
    }


@dataclass
class _Faults:
    """Different faults and how many lines tell of each, up to what a person reads."""

    rows: dict[tuple[str, str], tuple[Assessment, int]] = field(default_factory=dict)
    left_out: int = 0

    def count(self, node: str, event: KernelEvent, meaning: Assessment) -> None:
        key = (node, describe(event))
        if key in self.rows:
            self.rows[key] = (self.rows[key][0], self.rows[key][1] + 1)
        elif event.companion:
            return
        elif len(self.rows) < MOST_ROWS:
            self.rows[key] = (meaning, 1)
        else:
            self.left_out += 1


def _tell(answer: Answer, faults: _Faults, recommendations: list[Recommendation], storms: list[Storm]) -> None:
    if faults.rows:
        table = _table("fault lines", "node", "fault", "lines", "action alone", "because")
        for (node, what), (meaning, lines) in faults.rows.items():
            table.add_row(*(_text(cell) for cell in (node, what, str(lines), meaning.action.value, meaning.because)))
        answer.say(table)
    if faults.left_out:
        answer.say(Text(f"and {faults.left_out} lines of still other faults; --json gives all", style="dim"))
    for storm in storms:
        suspect = f"; suspected: {storm.suspect}" if storm.suspect else ""
        answer.say(_text(f"one {storm.kind} incident on {len(storm.nodes)} nodes: {storm.action.value}{suspect}", "bold magenta"))
        for reason in storm.because:
            answer.say(_text(f"  {reason}"))
    table = _table("recommendation", "node", "verdict", "fault", "action", "confidence", "because")
    for found in recommendations:
        diagnosis = found.diagnosis
        because = _text("; ".join(_first(diagnosis.because)))
        verdict = Text(found.verdict.value, style=_STYLES[found.verdict])
        cells = (diagnosis.fault_class, diagnosis.action.value, diagnosis.confidence.value)
        table.add_row(_text(found.node), verdict, *(_text(cell) for cell in cells), because)
    answer.say(table)


def _first(reasons: tuple[str, ...]) -> tuple[str, ...]:
    more = len(reasons) - MOST_REASONS
    return (*reasons[:MOST_REASONS], f"and {more} more") if more > 0 else reasons


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(words: str, style: str = "") -> Text:
    """Leave out what would steer the terminal: the words come from a log."""
    return Text("".join(letter if letter.isprintable() or letter in "\t\n" else "?" for letter in words), style=style)
