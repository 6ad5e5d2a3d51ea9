"""`hotspare judge`: what the output of a test tool says of the machines, with an exit status that a shell script can use."""

from __future__ import annotations

import codecs
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from activities.errors import BadInput
from checks.judges import tools
from checks.judges.judgement import Judgement
from checks.model import Verdict
from workers.cli.common import Answer, JsonOption, answering
from workers.cli.inputs import DAMAGED, open_input
from workers.settings import load_settings

MOST_BYTES = 64 * 2**20
"""Longest output that is read. Hotspare default: the longest real ones, with NCCL_DEBUG=INFO on many nodes, are a tenth of it."""

Tool = Enum("Tool", {name.replace("-", "_"): name for name in tools.TOOLS}, type=str)  # type: ignore[misc]

_STYLES = {Verdict.OK: "bold green", Verdict.WARN: "bold yellow", Verdict.CRITICAL: "bold red", Verdict.UNKNOWN: "bold magenta"}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(judge)


def judge(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The tool's whole output, packed too; - reads standard input.")],
    tool: Annotated[Tool, typer.Option("--tool", "-t", help="What printed it.")],
    instance_type: Annotated[
        str, typer.Option(help="EC2 instance type of the nodes, such as p5.48xlarge; else the GPU is read from the output.")
    ] = "",
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes that were to take part; else as many as the output names.")
    ] = None,
    link_gbits: Annotated[float | None, typer.Option(min=0.001, help="Rate of one port in Gb/s, for ib_write_bw.")] = None,
    tool_status: Annotated[
        int | None, typer.Option("--exit-status", help="Exit status of the tool or its launcher, where it is known.")
    ] = None,
    floor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NUMBER", help='A floor of your own: "p5.48xlarge/2=440", "H100/2@1G=400", "ib_write_bw/400=370".'
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings file whose burn_in.floors_gbs hold too; none is looked for.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the output of a test tool: OK, WARN, CRITICAL or UNKNOWN (exit status 0 to 3), who is to blame, what to do next."""
    with answering(as_json) as answer:
        floors = dict(load_settings(config).burn_in.floors_gbs) if config else {}
        floors.update(_floor(word) for word in floor or [])
        judgement = tools.judge(
            tool.value,
            _read(file),
            instance_type=instance_type,
            nodes=nodes,
            link_gbits=link_gbits,
            floors=floors,
            exit_status=tool_status,
        )
        answer.document({"tool": tool.value, **judgement.document()})
        _tell(answer, tool.value, judgement)
    raise typer.Exit(judgement.verdict.exit_status)


def _read(file: str) -> str:
    """Read the output. Raises BadInput, saying why, where it cannot be read or is too long."""
    with ExitStack() as stack:
        stream = open_input(file, stack, "a file with the tool's output")
        try:
            data = stream.read(MOST_BYTES + 1)
        except DAMAGED as error:
            raise BadInput(f"cannot read {file} to its end: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MOST_BYTES:
        raise BadInput(f"{file} is longer than {MOST_BYTES >> 20} MiB; give the output of one test alone")
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf16 else "utf-8", errors="replace")


def _floor(word: str) -> tuple[str, float]:
    key, _, number = word.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not key or not 0 < value < float("inf"):
        raise BadInput(f'{word!r} is no floor; write KEY=NUMBER, such as "p5.48xlarge/2=440"')
    return key, value


def _tell(answer: Answer, tool: str, judgement: Judgement) -> None:
    headline = Text(judgement.verdict.value, style=_STYLES[judgement.verdict])
    answer.say(headline + Text(f"  {judgement.cause.replace('_', ' ')}  ({tool})", style=""))
    floor = ""
    if judgement.floor is not None:
        floor = f"{judgement.floor:g} {judgement.unit}" + (f" ({judgement.floor_source})" if judgement.floor_source else "")
    measured = f"{judgement.measured:g} {judgement.unit}" if judgement.measured is not None else ""
    for name, words in (
        ("culprits", ", ".join(judgement.culprits)),
        ("evidence", judgement.evidence),
        ("line", judgement.line),
        ("measured", measured),
        ("floor", floor),
        ("next", judgement.next),
    ):
        if words:
            answer.say(Text(f"  {name + ':':<10}", style="dim") + Text(_printable(words)))


def _printable(words: str) -> str:
    """Leave out what would steer the terminal: the text comes from a file."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in words)
