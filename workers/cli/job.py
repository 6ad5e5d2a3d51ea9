"""`hotspare job NODE|JOB`: a job by its name or a node: who restarts it, where it runs, how far it is, what is wrong."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from activities.errors import BadInput, PreconditionFailed, UnknownNode
from activities.inventory import Node
from activities.jobs.judging import JobJudgement, judge_job, steps_behind
from activities.jobs.protocol import JobStatus, RestartedBy
from checks.model import Verdict
from workers.cli.common import Answer, ConfigOption, JsonOption, answering
from workers.cli.health_shown import STYLES
from workers.settings import Settings, load_settings
from workers.wiring import Wiring

JobArgument = Annotated[
    str, typer.Argument(metavar="NODE|JOB", help="A node by any name, or a job as its adapter calls it: team/jobset/train, 4711.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(job)


def job(what: JobArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show a job and judge it: OK, WARN, CRITICAL or UNKNOWN (exit status 0 to 3)."""
    with answering(as_json) as answer:
        settings = load_settings(config)
        wiring = Wiring(settings)
        try:
            node, status = _found(wiring, settings, what)
        finally:
            wiring.close()
        if status is None:
            assert node is not None  # a job that is not there is an error
            answer.document(
                {"adapter": settings.job.adapter, "node": node, "job": None, "verdict": Verdict.OK.value, "because": []}
            )
            answer.say(Text(f"no job has {node.name} in its node set"))
            return
        judgement = judge_job(status)
        answer.document(_document(settings, node, status, judgement))
        _show(answer, settings, status, judgement)
    raise typer.Exit(judgement.verdict.exit_status)


def _found(wiring: Wiring, settings: Settings, what: str) -> tuple[Node | None, JobStatus | None]:
    """Take the word for a node where there is one of that name, else for a job."""
    try:
        node = wiring.inventory.resolve(settings.name, what)
    except UnknownNode as unknown:
        return None, _by_name(wiring, what, unknown)
    return node, wiring.jobs.find_on(node)


def _by_name(wiring: Wiring, what: str, unknown: UnknownNode) -> JobStatus:
    try:
        return wiring.jobs.status(what)
    except (BadInput, PreconditionFailed) as error:
        raise BadInput(f"{what!r} is neither a job nor a node. As a job: {error}. As a node: {unknown}") from error


def _document(settings: Settings, node: Node | None, status: JobStatus, judgement: JobJudgement) -> dict[str, object]:
    steps, seconds = steps_behind(status)
    return {
        "adapter": settings.job.adapter,
        "node": node,
        "job": status,
        "checkpoint_steps_behind": steps,
        "checkpoint_age_s": seconds,
        "verdict": judgement.verdict.value,
        "because": judgement.because,
    }


def _show(answer: Answer, settings: Settings, status: JobStatus, judgement: JobJudgement) -> None:
    headline = Text(judgement.verdict.value, style=STYLES[judgement.verdict])
    answer.say(headline + Text(f"  {status.job} is {status.state.value}  ({settings.job.adapter})", style=""))
    for words in judgement.because:
        answer.say(Text(f"  {'because:':<15}", style="dim") + Text(words))
    for name, words in _rows(status):
        if words:
            answer.say(Text(f"  {name + ':':<15}", style="dim") + Text(words))


def _rows(status: JobStatus) -> list[tuple[str, str]]:
    return [
        ("restarted by", _who(status)),
        ("node set", ", ".join(status.nodes)),
        ("ranks on", "" if status.ranks_on is None else ", ".join(status.ranks_on) or "no node"),
        ("step", "not told" if status.step is None else str(status.step)),
        ("checkpoint", _checkpoint(status)),
        ("restarts left", _budget(status)),
        ("run of", f"the resume with token {status.run_token}" if status.run_token else ""),
    ]


def _who(status: JobStatus) -> str:
    if status.restarted_by is RestartedBy.HOTSPARE:
        return "Hotspare"
    who = "its controller" if status.restarted_by is RestartedBy.CONTROLLER else "itself, inside its ranks"
    return f"{who}{f', {status.controller}' if status.controller else ''}"


def _checkpoint(status: JobStatus) -> str:
    if status.checkpoint_step is None:
        return "not told"
    steps, seconds = steps_behind(status)
    if steps is None:
        return f"step {status.checkpoint_step}"
    age = f", {seconds:.0f} s of training" if seconds is not None else ""
    return f"step {status.checkpoint_step}, {steps} steps ago{age}"


def _budget(status: JobStatus) -> str:
    if status.restarts_left is not None:
        return str(status.restarts_left)
    return "" if status.restarted_by is RestartedBy.HOTSPARE else "without a bound, or not told"
