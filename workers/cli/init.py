"""`hotspare init`: writes a settings file if there is none, prepares Temporal, and shows what was found. May be run again."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from temporalio.service import RPCError

from activities.errors import HotspareError
from checks.model import Verdict
from workers.attributes import prove_attributes, register_attributes
from workers.cli.common import Answer, ConfigOption, JsonOption, answering, run_async
from workers.cli.health import Line, check_inventory, overall
from workers.cli.health_shown import STYLES
from workers.cli.sweeping import schedule_reconcile, schedule_sweep
from workers.connection import connect
from workers.intake.token import write_token
from workers.settings import CONFIG_NAME, Settings, SettingsError, find_config, load_settings, named_config
from workers.settings_text import commented_file
from workers.wiring import Wiring


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    config: ConfigOption = None,
    cluster: Annotated[str, typer.Option(help="Name of the cluster: value of the EC2 tag hotspare:cluster.")] = "",
    region: Annotated[str, typer.Option(help="AWS region.")] = "",
    ssh_config: Annotated[str, typer.Option(help="OpenSSH client configuration that reaches the nodes.")] = "",
    head: Annotated[str, typer.Option(help="Head node that drives the training job.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take defaults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write hotspare.toml if absent, prepare Temporal, show the nodes found. Changes no node. May be run again at any time."""
    with answering(as_json) as answer:
        given = {"cluster": cluster, "region": region, "ssh_config": ssh_config, "head": head}
        file, written = _settings_file(config, given, ask=not yes and not as_json and sys.stdin.isatty())
        settings = load_settings(file)
        lines = [Line("settings", Verdict.OK, f"{'wrote' if written else 'found'} {file}")]
        lines.append(_token(settings))
        try:
            lines += run_async(prepare(settings))
        except HotspareError as error:
            lines.append(Line("set-up", Verdict.CRITICAL, str(error), "mend it, then run hotspare init again"))
        # An empty pool is worth a line, but is no reason to say that the set-up failed.
        verdict = overall([line for line in lines if (line.part, line.verdict) != ("inventory", Verdict.WARN)])
        answer.document({"verdict": verdict, "settings": file, "lines": [asdict(line) for line in lines]})
        _tell(answer, lines)
    raise typer.Exit(verdict.exit_status)


def _settings_file(config: Path | None, given: dict[str, str], *, ask: bool) -> tuple[Path, bool]:
    """Return the settings file, and whether it was written now. An existing one is never changed."""
    named = named_config(config)
    if named is not None and not named.exists():
        return write_settings(named, given, ask=ask), True
    try:
        return find_config(config), False
    except SettingsError:
        if named is not None:
            raise
        return write_settings(Path(CONFIG_NAME), given, ask=ask), True


def write_settings(file: Path, given: dict[str, str], *, ask: bool) -> Path:
    """Write a new file from flags and, when asked to, answers. Raises SettingsError when it is there or cannot be written."""
    values = dict(given)
    questions = {
        "cluster": ("Name of the cluster (EC2 tag hotspare:cluster)", "lab"),
        "region": ("AWS region (empty: from the AWS configuration)", ""),
        "ssh_config": ("OpenSSH client configuration that reaches the nodes", "~/.ssh/config"),
        "head": ("Head node that drives the training job (empty: none)", ""),
    }
    for key, (question, default) in questions.items():
        if ask and not values[key]:
            values[key] = typer.prompt(question, default=default, show_default=bool(default))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(commented_file(_tables(values)))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written ({error.strerror})") from error
    return file.resolve()


def _tables(values: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The settings that a new file sets; a new cluster observes."""
    given: dict[str, dict[str, Any]] = {
        "cluster": {"name": values["cluster"] or "lab"},
        "policy": {"mode": "observe"},
        "aws": {"region": values["region"] or None},
        "access": {"ssh_config": values["ssh_config"] or None},
        "job": {"head": values["head"] or None},
    }
    return {table: {key: value for key, value in keys.items() if value is not None} for table, keys in given.items()}


def _token(settings: Settings) -> Line:
    file = settings.intake.token_file
    try:
        written = write_token(file)
    except OSError as error:
        return Line(
            "intake token", Verdict.WARN, f"{file}: {error.strerror}", "set intake.token_file to a place that can be written"
        )
    return Line("intake token", Verdict.OK, f"{'wrote' if written else 'found'} {file}")


async def prepare(settings: Settings) -> list[Line]:
    """Register and prove search attributes, schedule what runs by the clock, start Cluster, look at the nodes. Idempotent."""
    client = await connect(codec=settings.codec)
    wiring = Wiring(settings, client)
    try:
        lines = [Line("Temporal", Verdict.OK, f"namespace {client.namespace} at {client.service_client.config.target_host}")]
        lines.append(await _attributes(client))
        lines.append(Line("sweep", Verdict.OK, await schedule_sweep(client, settings)))
        lines.append(Line("reconcile", Verdict.OK, await schedule_reconcile(client, settings)))
        joined = await wiring.gateway.ensure_cluster(settings.name)
        lines.append(Line("Cluster", Verdict.OK, f"{joined.workflow_id} runs"))
        found, nodes = await check_inventory(settings, wiring)
        lines += found
        lines += [
            Line(f"{node.role} {node.name}", Verdict.OK, f"{node.instance_id} {node.instance_type} {node.state}")
            for node in nodes
        ]
        return lines
    finally:
        await asyncio.to_thread(wiring.close)


async def _attributes(client: Any) -> Line:
    part = "search attributes"
    try:
        wrong = await register_attributes(client)
        if wrong:
            return Line(
                part, Verdict.WARN, "; ".join(wrong), "workers run with them off until this is mended; healing works without"
            )
        took = await prove_attributes(client)
    except (RPCError, TimeoutError) as error:
        return Line(part, Verdict.WARN, str(error), "run hotspare init again in a minute; healing works without them")
    return Line(part, Verdict.OK, f"registered and proven in {took:.1f} s")


def _tell(answer: Answer, lines: list[Line]) -> None:
    for line in lines:
        text = Text.assemble((f"{line.verdict.value:9}", STYLES[line.verdict]), f"{line.part}: {line.text}")
        if line.do:
            text.append(f"\n         → {line.do}", style=STYLES[line.verdict])
        answer.say(text)
    answer.say(Text("\nnext:", style="bold"))
    answer.say("  hotspare doctor     check Temporal, AWS, SSH and every node")
    answer.say("  hotspare run        worker, watcher and intake in one process")
    answer.say("  hotspare worker | hotspare watch | hotspare intake     the same as three processes")
