"""`hotspare evidence NODE|FILE`: shows a bundle and checks its digests, prints the text for a support case, takes a new one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from activities.errors import BadInput
from activities.evidence_bundle import Bundle, unpack
from activities.evidence_parts import SUPPORT_CASE
from activities.evidence_store import ENDING, EvidenceStore, StoredBundle, bundle_prefix
from activities.inventory import Node
from activities.names import incident_id
from activities.node_messages import CollectEvidence
from workers.cli.common import CRITICAL, UNKNOWN, Answer, ConfigOption, JsonOption, answering, person
from workers.settings import Settings, load_settings
from workers.wiring import Wiring

COLOURS = {"taken": "green", "truncated": "yellow", "missing": "red", "skipped": "dim"}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evidence)


def evidence(
    what: Annotated[str, typer.Argument(metavar="NODE|FILE", help="A node by any name, a bundle's file, or its s3:// address.")],
    take: Annotated[bool, typer.Option("--take", help="Take a new bundle of NODE now. Nothing is tested or changed.")] = False,
    no_nvml: Annotated[bool, typer.Option("--no-nvml", help="With --take: start nothing that opens NVML.")] = False,
    case: Annotated[bool, typer.Option("--case", help="Print the text for an AWS support case alone.")] = False,
    part: Annotated[str, typer.Option("--part", metavar="NAME", help="Print this part alone, e.g. dmesg.txt.")] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest evidence bundle of NODE, or the bundle in FILE: what it holds, and what is missing and why.

    Ends with 2 when a part is not what was stored, with 3 when there is no bundle.
    """
    with answering(as_json) as answer:
        kept = _found(what, config, take=take, no_nvml=no_nvml)
        if kept is None:
            answer.document({"bundle": None})
            answer.say(Text(f"{what}: no evidence bundle is kept; take one: hotspare evidence {what} --take"))
            raise typer.Exit(UNKNOWN)
        bundle = unpack(kept.content)
        wanted = SUPPORT_CASE if case else part
        if wanted:
            _print_part(answer, bundle, wanted)
        else:
            answer.document(
                {"bundle": kept.uri, "sha256": kept.sha256, "broken": list(bundle.broken), "manifest": dict(bundle.manifest)}
            )
            _show(answer, kept, bundle)
        if bundle.broken:
            raise typer.Exit(CRITICAL)


def _found(what: str, config: Path | None, *, take: bool, no_nvml: bool) -> StoredBundle | None:
    """Return the bundle that is meant: of a file without any settings, else from where the settings keep them."""
    if not take and (what.endswith(ENDING) or "/" in what) and not what.startswith("s3://"):
        return _of_file(Path(what.removeprefix("file://")))
    settings = load_settings(config)
    wiring = Wiring(settings)
    try:
        if what.startswith("s3://"):
            return wiring.evidence_stores[0].find(what.rpartition("/")[2])
        node = wiring.inventory.resolve(settings.name, what)
        if take:
            return _taken(wiring, settings, node, no_nvml=no_nvml)
        return _newest(wiring.evidence_stores, bundle_prefix(incident_id(settings.name, node.instance_id)))
    finally:
        wiring.close()


def _of_file(file: Path) -> StoredBundle:
    try:
        return StoredBundle(file.absolute().as_uri(), file.read_bytes())
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}; name a node, or a bundle's file") from error


def _taken(wiring: Wiring, settings: Settings, node: Node, *, no_nvml: bool) -> StoredBundle | None:
    """Take a bundle by hand. It belongs to the node's incident, open or not."""
    kept = wiring.evidence.collect(
        CollectEvidence(
            node=node,
            incident=incident_id(settings.name, node.instance_id),
            token=f"by hand/{person()}/{datetime.now(UTC).isoformat()}",
            no_nvml=no_nvml,
            deadline_s=settings.policy.evidence_deadline_s,
        )
    )
    name = kept.uri.rpartition("/")[2]
    return next((found for store in wiring.evidence_stores if (found := store.find(name)) is not None), None)


def _newest(stores: tuple[EvidenceStore, EvidenceStore], prefix: str) -> StoredBundle | None:
    """The newest bundle of the usual place, else of the folder that takes what is not taken there."""
    for store in dict.fromkeys(stores):
        if names := store.names(prefix):
            return store.find(names[-1])
    return None


def _print_part(answer: Answer, bundle: Bundle, name: str) -> None:
    if name not in bundle.texts:
        there = ", ".join(bundle.items)
        raise BadInput(f"the bundle has no part {name}; there are {there}")
    answer.document({"name": name, "text": bundle.texts[name]})
    if not answer.as_json:
        typer.echo(bundle.texts[name], nl=False)


def _show(answer: Answer, kept: StoredBundle, bundle: Bundle) -> None:
    about: Mapping[str, Any] = bundle.manifest
    node = about.get("node", {})
    answer.say(Text(f"{node.get('name', '')} {node.get('instance_id', '')}: {about.get('incident', '')}", style="bold"))
    answer.say(Text(f"{kept.uri}\n{len(kept.content)} bytes, sha256 {kept.sha256}"))
    silent = "; the node stopped answering" if about.get("node_stopped_answering") else ""
    answer.say(Text(f"from {about.get('began_at', '?')} to {about.get('ended_at', '?')}{silent}; NVML: {about.get('nvml', '?')}"))
    table = Table()
    for heading in ("part", "state", "bytes", "why"):
        table.add_column(heading, overflow="fold")
    for part in bundle.parts:
        state = "CHANGED" if part["name"] in bundle.broken else part["state"]
        style = COLOURS.get(state, "bold red")
        table.add_row(Text(part["name"]), Text(state, style=style), Text(str(part.get("bytes", ""))), Text(part.get("why", "")))
    answer.say(table)
    out = about.get("taken_out", {})
    answer.say(Text(f"taken out: {out.get('secrets', 0)} secrets; {out.get('serials', 0)} serial numbers became marks"))
    if bundle.broken:
        answer.say(Text(f"not what was stored: {', '.join(bundle.broken)}", style="bold red"))
