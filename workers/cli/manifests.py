"""`hotspare manifests DIR`: writes the Kubernetes manifests that come with this release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import infra.kubernetes
from activities.errors import BadInput
from workers.cli.common import JsonOption, answering


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(manifests)


def manifests(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they are written; made if it is not there.")],
    force: Annotated[bool, typer.Option("--force", help="Write over files that differ.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the manifests of namespace, service accounts and roles, to be read, changed and applied: kubectl apply -f DIR."""
    with answering(as_json) as answer:
        written = write_manifests(folder, force)
        answer.document({"folder": str(folder), "files": [file.name for file in written]})
        answer.say(f"{', '.join(file.name for file in written)} in {folder}; next: kubectl apply -f {folder}")


def write_manifests(folder: Path, force: bool) -> list[Path]:
    """Write all manifests and return their paths. Raises BadInput for a file that somebody has changed, unless `force`."""
    sources = sorted(Path(infra.kubernetes.__path__[0]).glob("*.yaml"))
    changed = [file.name for file in sources if _differs(folder / file.name, file.read_text())]
    if changed and not force:
        raise BadInput(f"{folder}: {', '.join(changed)} differ from those of this release; --force writes over them")
    folder.mkdir(parents=True, exist_ok=True)
    for file in sources:
        (folder / file.name).write_text(file.read_text())
    return [folder / file.name for file in sources]


def _differs(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() != text
