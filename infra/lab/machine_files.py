"""The files of a node that tell of its machine: healthy ones, shared by the nodes of a type, and what faults make of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
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


def _flat(folders: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {f"{folder}/{name}": text for folder, files in folders.items() for name, text in files.items()}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))


class MachineFiles:
    """One node's view of a template: folders of devices are links to it, as those of /sys are links, and other files hard links.

    What a fault changes becomes the node's own file; when the fault is gone the link comes back.
    """

    def __init__(self, root: Path, template: Path, hardware: Hardware | None) -> None:
        self._root = root
        self._template = template
        self._linked = tuple(device_folders(hardware)) if hardware else ()
        self._files = tuple(host_files(hardware))
        self._asked: dict[str, str | None] = {}
        self._shown: dict[str, str | None] = {}
        self._rising: dict[str, tuple[float, float]] = {}

    def lay_out(self) -> None:
        """Link everything."""
        for folder in {PCI_DEVICES, *(os.path.dirname(name) for name in (*self._files, *self._linked))}:
            os.makedirs(self._root / folder, exist_ok=True)
        for name in self._files:
            _link(self._template / name, self._root / name)
        for name in self._linked:
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

    def _device(self, name: str) -> str | None:
        return next((folder for folder in self._linked if name == folder or name.startswith(folder + "/")), None)

    def _change(self, name: str, text: str | None) -> None:
        self._own(name)
        path = self._root / name
        if text is None and path.is_dir():
            shutil.rmtree(path)
        elif text is None:
            path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)
            _write(path, text)

    def _own(self, name: str) -> None:
        """Give the node a copy of the device's folder that `name` lies in."""
        folder = self._device(name)
        if folder and (self._root / folder).is_symlink():
            (self._root / folder).unlink()
            shutil.copytree(self._template / folder, self._root / folder)

    def _heal(self, name: str) -> None:
        folder = self._device(name)
        if folder is not None:
            shutil.rmtree(self._root / folder, ignore_errors=True)
            (self._root / folder).unlink(missing_ok=True)
            os.symlink(self._template / folder, self._root / folder)
            for other in [other for other in self._shown if other != name and self._device(other) == folder]:
                del self._shown[other]
            return
        path = self._root / name
        path.unlink(missing_ok=True)
        if (self._template / name).exists():
            _link(self._template / name, path)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
