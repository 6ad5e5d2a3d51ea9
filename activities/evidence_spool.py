"""Keeps the parts of a bundle on disk while it is gathered: an attempt that dies has not read the node in vain."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from activities.evidence_parts import Part

FORGOTTEN_S = 30 * 86_400.0
"""Age of parts whose bundle no attempt finished. Hotspare default: long after anybody looks for them."""


class Spool:
    """The parts gathered so far of one bundle, cleaned already, in a folder that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def parts(self) -> dict[str, Part]:
        """What earlier attempts could read, by name."""
        found: dict[str, Part] = {}
        for file in sorted(self._folder.glob("*.part")):
            try:
                part = Part.from_json(json.loads(file.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # half of a part that a crash of the machine left: it is read again
            if part.held:
                found[part.name] = part
        return found

    def keep(self, part: Part) -> None:
        """Keep a part. A disk that does not take it costs no more than the second chance."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, beside = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                json.dump(part.to_json(), file)
            os.replace(beside, self._folder / f"{part.name}.part")
        except OSError:
            return

    def clear(self) -> None:
        """The bundle is kept: its parts are no longer needed here. Nor are those of bundles that nobody finished in a month."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for other in self._folder.parent.glob("*"):
            with contextlib.suppress(OSError):
                if other.stat().st_mtime < time.time() - FORGOTTEN_S:
                    shutil.rmtree(other, ignore_errors=True)
