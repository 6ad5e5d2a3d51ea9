"""Where the programs of the real clusters lie: $KUBEBUILDER_ASSETS, else the cache folder that `make kube-assets` fills."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MODULES = Path(__file__).with_name("assets")
"""One Go module a folder, each without Go source: its go.mod pins what is built, its go.sum what that is made of."""


class AssetsMissing(FileNotFoundError):
    """A program of the real clusters is not there. The message has the line to type."""


def cache_folder() -> Path:
    """Return the folder that `make kube-assets` fills. It is outside the tree: a new checkout finds them."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotspare" / "kube-assets"


def binary(name: str) -> Path:
    """Return the path of a program, e.g. `kube-apiserver`. AssetsMissing says how to get it.

    KUBEBUILDER_ASSETS is the variable that envtest (sigs.k8s.io/controller-runtime) reads, so assets that are there for other
    projects are used here as well; what that folder lacks is looked for in our own.
    """
    folders = [*_told(), cache_folder() / "bin"]
    for folder in folders:
        found = shutil.which(name, path=str(folder))
        if found:
            return Path(found)
    raise AssetsMissing(f"no {name} in {' or '.join(map(str, folders))}: run make kube-assets")


def manifests(name: str) -> Path:
    """Return the folder with the manifests of a controller: `crds/`, `webhooks.yaml`. AssetsMissing says how to get it."""
    folders = [folder / "manifests" / name for folder in (*_told(), cache_folder())]
    for folder in folders:
        if folder.is_dir():
            return folder
    raise AssetsMissing(f"no manifests of {name} in {' or '.join(map(str, folders))}: run make kube-assets")


def _told() -> list[Path]:
    told = os.environ.get("KUBEBUILDER_ASSETS")
    return [Path(told)] if told else []


def missing(*names: str) -> list[str]:
    """Return those of `names` that are not there."""
    absent = []
    for name in names:
        try:
            binary(name)
        except AssetsMissing:
            absent.append(name)
    return absent
