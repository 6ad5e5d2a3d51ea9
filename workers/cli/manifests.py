"""`hotspare manifests DIR`: writes what this release needs in Kubernetes, on AWS and under systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import infra
from activities.errors import BadInput
from workers.cli.common import JsonOption, answering

PARTS: tuple[tuple[str, str, str], ...] = (
    ("kubernetes", "*.yaml", "."),
    ("helm/hotspare", "**/*", "helm/hotspare"),
    ("kubernetes", "*.yaml", "helm/hotspare/files"),  # the chart says nothing anew: it renders these
    ("terraform", "*.tf", "terraform"),
    ("iam", "**/*.json", "iam"),
    ("ssm", "*.json", "ssm"),
    ("systemd", "hotspare*", "systemd"),
)
"""Folder of the release, which files of it, and where they are written."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(manifests)


def manifests(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they are written; made if it is not there.")],
    force: Annotated[bool, typer.Option("--force", help="Write over files that differ.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write manifests, Helm chart, Terraform module with its policies, and systemd units, to be read and changed."""
    with answering(as_json) as answer:
        written = [str(file.relative_to(folder)) for file in write_manifests(folder, force)]
        answer.document({"folder": str(folder), "files": written})
        plain = [name for name in written if "/" not in name]
        answer.say(f"{', '.join(plain)} in {folder}; next: kubectl apply -f {folder}")
        answer.say(
            f"{folder}/helm/hotspare: the same and the workers as a chart; next: helm install hotspare {folder}/helm/hotspare"
        )
        answer.say(f"{folder}/terraform: roles, policies, event queue on AWS; {folder}/systemd: units")
        answer.say("Step by step: docs/deploy.md")


def write_manifests(folder: Path, force: bool) -> list[Path]:
    """Write all files and return their paths. Raises BadInput for a file that somebody has changed, unless `force`."""
    sources = release_files()
    changed = [name for name, source in sources.items() if _differs(folder / name, source.read_bytes())]
    if changed and not force:
        raise BadInput(f"{folder}: {', '.join(changed)} differ from those of this release; --force writes over them")
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(source.read_bytes())
    return [folder / name for name in sources]


def release_files() -> dict[str, Path]:
    """The files of this release: path below the folder that is written -> where it is."""
    root = Path(infra.__path__[0])
    found: dict[str, Path] = {}
    for part, pattern, target in PARTS:
        for source in sorted((root / part).glob(pattern)):
            if source.is_file() and "__pycache__" not in source.parts:
                found[(Path(target) / source.relative_to(root / part)).as_posix()] = source
    return found


def _differs(file: Path, content: bytes) -> bool:
    return file.exists() and file.read_bytes() != content
