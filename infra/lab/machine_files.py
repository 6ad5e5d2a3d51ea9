"""The files of a node that tell of its machine: healthy ones, shared by the nodes of a type, and what faults make of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from infra.lab.hardware import Hardware
from infra.lab.healthy_devices import PCI_DEVICES, device_folders
from infra.lab.healthy_host import host_files

RISEN_FOR_S = 600.0
"""A counter that a fault makes rise has risen for so long when the fault is injected, so that the next look sees it."""


def make_template(folder: Path, hardware: Hardware | None) -> Path:
    """Write the healthy files of a kind of node once, for `MachineFiles` to share; returns the folder."""
    if not folder.is_dir():
        devices = device_folders(hardware) if hardware else {}
        for name, text in (host_files(hardware) | _flat(devices)).items():
            _write(folder / name, text)
        (folder / PCI_DEVICES).mkdir(parents=True, exist_ok=True)
    return folder


LINKED = (
    *("dev", "opt", "proc/driver", "proc/sys/fs", "proc/sys/net", "sys/block", "sys/bus", "sys/class", "sys/devices/system"),
    *("sys/module", "usr/include", "usr/lib", "usr/local/cuda", "var/lib/lab/services"),
)
"""Folders that a node shares as a whole until a fault changes something in them."""


@cache
def _names(hardware: Hardware | None) -> tuple[str, ...]:
    """The files of a kind of node that lie in no shared folder."""
    return tuple(name for name in host_files(hardware) if not _shared(name))


def _shared(name: str) -> str:
    return next((folder for folder in LINKED if name.startswith(folder + "/")), "")


def _flat(folders: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {f"{folder}/{name}": text for folder, files in folders.items() for name, text in files.items()}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))


class MachineFiles:
    """One node's view of a template: shared folders are links to it, other files hard links.

    Where a fault changes something, the folders on the way there become the node's own; when it is gone the link comes back.
    """

    def __init__(self, root: Path, template: Path, hardware: Hardware | None) -> None:
        self._root = root
        self._template = template
        self._files = _names(hardware)
        self._asked: dict[str, str | None] = {}
        self._shown: dict[str, str | None] = {}
        self._rising: dict[str, tuple[float, float]] = {}

    def lay_out(self) -> None:
        """Link everything."""
        linked = [name for name in LINKED if (self._template / name).is_dir()]
        for folder in {os.path.dirname(name) for name in (*self._files, *linked)}:
            os.makedirs(self._root / folder, exist_ok=True)
        for name in self._files:
            _link(self._template / name, self._root / name)
        for name in linked:
            os.symlink(self._template / name, self._root / name)

    def show(self, changes: Mapping[str, str | None], rising: Mapping[str, float] | None = None) -> None:
        """Make the machine look healthy but for `changes`: text by path under the root, None for what is gone.

        `rising` are counters, by path, that rise so much a second, and have done so for a while when they are first shown.
        """
        now = time.time()
        since = now - RISEN_FOR_S
        self._rising = {name: self._rising.get(name) or (rate, since) for name, rate in (rising or {}).items()}
        self._asked = dict(changes)
        self._bring(self._asked | self._counted(now))

    def count_on(self) -> None:
        """Bring the rising counters up to date; the lab does it before each command, which is when somebody may read them."""
        if self._rising:
            self._bring(self._asked | self._counted(time.time()))

    def _counted(self, now: float) -> dict[str, str | None]:
        counted: dict[str, str | None] = {}
        for name, (rate, since) in self._rising.items():
            start = self._asked.get(name) or (self._template / name).read_text()
            counted[name] = f"{int(start) + int(rate * (now - since))}\n"
        return counted

    def _bring(self, changes: Mapping[str, str | None]) -> None:
        for name in [name for name in self._shown if name not in changes]:
            self._heal(name)
        for name, text in changes.items():
            if name not in self._shown or self._shown[name] != text:
                self._change(name, text)
        self._shown = dict(changes)

    def _change(self, name: str, text: str | None) -> None:
        self._own(name)
        path = self._root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        if text is None:
            path.unlink(missing_ok=True)
            return
        # Somebody may read it at this moment, and is to find the old text or the new one.
        new = self._root / ".changed"
        _write(new, text)
        path.parent.mkdir(parents=True, exist_ok=True)
        new.replace(path)

    def _own(self, name: str) -> None:
        """Make every folder on the way to `name` the node's own; what lies beside stays linked."""
        for folder in reversed(Path(name).parents):
            path = self._root / folder
            if path.is_symlink():
                path.unlink()
                path.mkdir()
                for beside in (self._template / folder).iterdir():
                    (path / beside.name).symlink_to(beside)

    def _heal(self, name: str) -> None:
        """Bring back what was there; with a shared folder goes all that was changed in it, to be changed anew if still wanted."""
        folder = _shared(name)
        path = self._root / (folder or name)
        if not path.is_symlink() and path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        source = self._template / (folder or name)
        if folder and source.is_dir():
            os.symlink(source, path)
        elif source.exists():
            _link(source, path)
        for other in [other for other in self._shown if other != name and folder and _shared(other) == folder]:
            del self._shown[other]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
