"""How a burn-in looks to a person: its rounds, its pairs, its nodes and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from checks.judges.judgement import MEASURED
from checks.model import Verdict
from workers.cli.burn_in_matrix import PairMatrix, matrix_lines, rate
from workers.cli.common import Answer
from workers.cli.health_shown import STYLES
from workflows.decisions.burn_in_advice import BAD_PATH
from workflows.messages import BurnInReport, GroupRun, NodeVerdict

GROUPS_SHOWN = 8
"""Groups of the present round that are named while they run. Hotspare default: they fit on a screen with the rounds before."""

LEFT_OUT_SHOWN = 10
"""Nodes that are left out and named. Hotspare default: a screen has room for the rounds too."""

GOOD = (Verdict.OK, Verdict.WARN)


def rounds_table(runs: list[GroupRun], width: int, spinner: Spinner | None = None) -> RenderableType:
    """The rounds so far, one line each, and below them, beside the spinner, the groups that run now."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, width=width)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold", ratio=1)
    table.add_column(no_wrap=True)
    for number, of_round in groupby(runs, key=lambda run: run.round):
        group = list(of_round)
        table.add_row(f"round {number}", ": ".join(words for words in (group[0].why, _who(group)) if words), _count(group))
    running = [run for run in runs if run.verdict is None]
    if not running or spinner is None:
        return table
    names = [" + ".join(run.nodes[:3]) + (f" + {len(run.nodes) - 3} more" if len(run.nodes) > 3 else "") for run in running]
    more = f", and {len(names) - GROUPS_SHOWN} more groups" if len(names) > GROUPS_SHOWN else ""
    spinner.update(text=Text(f"running: {', '.join(names[:GROUPS_SHOWN])}{more}"))
    return Group(table, Padding(spinner, (0, 0, 0, 2)))


def _who(group: list[GroupRun]) -> str:
    rails = sorted({run.rail for run in group if run.rail is not None})
    over = f" over rail {', '.join(map(str, rails))}" if rails else ""
    if len(group) > 1:
        return f"{len(group)} groups of {_span(len(run.nodes) for run in group)} nodes{over}"
    run = group[0]
    who = (" + ".join(run.nodes) if len(run.nodes) <= 3 else f"{len(run.nodes)} nodes") + over
    words = [] if who in run.why else [who]
    if run.busbw_gbs is not None:
        words.append(f"{rate(run.busbw_gbs)} GB/s" + (f", floor {rate(run.floor_gbs)}" if run.floor_gbs else ""))
    return ", ".join(words)


def _span(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _count(group: list[GroupRun]) -> Text:
    """How many of the groups have passed, failed, and said nothing."""
    parts = []
    for words, style in (
        ("passed", "green"),
        ("failed", "bold red"),
        ("without result", "magenta"),
        (MEASURED, ""),
        ("running", ""),
    ):
        if count := sum(1 for run in group if _became(run) == words):
            parts.append(Text(f"{count} {words}" if len(group) > 1 else words, style=style))
    return Text(", ").join(parts)


def _became(run: GroupRun) -> str:
    if run.verdict is None:
        return "running"
    if run.cause == MEASURED:
        return MEASURED
    return "passed" if run.verdict in GOOD else "failed" if run.verdict is Verdict.CRITICAL else "without result"


def tell_report(answer: Answer, report: BurnInReport, matrix: PairMatrix, trouble: str) -> None:
    """Say what came out: the pairs, the nodes that are not simply well, and the verdict."""
    if trouble:
        answer.say(Text(f"the single runs cannot be shown: {trouble}", style="yellow"))
    for line in matrix_lines(matrix, answer.console.width):
        answer.say(line)
    well = [one for one in report.nodes if one.verdict is Verdict.OK]
    others = sorted((one for one in report.nodes if one.verdict is not Verdict.OK), key=lambda one: one.verdict.exit_status)
    nodes = [(_styled(Verdict.OK), Text(_listed(well)))] if well else []
    for one in others:
        what = one.cause.replace("_", " ") + (f": {one.evidence}" if one.evidence else "")
        nodes.append((_styled(one.verdict), Text(f"{one.node_name}  {what}")))
    because = [why for why in report.because if not any(why.startswith(f"{one.node_name}: ") for one in others)]
    rounds = f"{report.runs} run{'s' * (report.runs != 1)} in {report.rounds} round{'s' * (report.rounds != 1)}"
    whole = f"{cause_in_words(report)} ({rounds}): {'; '.join(because or report.because)}"
    answer.say(_in_columns(nodes))
    following = [(Text("next"), Text(report.next))] if report.next else []
    answer.say(_in_columns([(_styled(report.verdict), Text(whole, style=STYLES[report.verdict])), *following]))


def cause_in_words(report: BurnInReport) -> str:
    """Return what came out in a few words: nodes that are left out for a bad path alone are no bad nodes."""
    blamed = {one.cause for one in report.nodes if one.verdict is Verdict.CRITICAL}
    if blamed == {BAD_PATH}:
        return BAD_PATH if len(report.bad_paths) == 1 else f"{BAD_PATH}s"
    return "bad nodes and paths" if BAD_PATH in blamed else report.cause.replace("_", " ")


def tell_left_out(answer: Answer, left_out: dict[str, list[str]]) -> None:
    """Say which nodes of a cluster are not burned in, each with the first reason."""
    if not left_out:
        return
    rows = [(Text(name), Text(reasons[0])) for name, reasons in left_out.items()]
    more = len(rows) - LEFT_OUT_SHOWN
    answer.say(Text(f"left out, {len(rows)} node{'s' * (len(rows) != 1)}:", style="bold"))
    answer.say(Padding(_in_columns(rows[:LEFT_OUT_SHOWN]), (0, 0, 0, 2)))
    if more > 0:
        answer.say(f"  and {more} more; --json has them all")


def _in_columns(rows: list[tuple[Text, Text]]) -> Table:
    """Two columns, of which the second breaks between words."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _styled(verdict: Verdict) -> Text:
    return Text(verdict.value, style=STYLES[verdict])


def _listed(nodes: list[NodeVerdict]) -> str:
    names = [one.node_name for one in nodes]
    return ", ".join(names) if len(names) <= GROUPS_SHOWN else f"{len(names)} nodes: {', '.join(names[:GROUPS_SHOWN])}, ..."
