"""How far each node's kernel log has been reported, kept in one file so that a restart neither repeats nor misses.

A place in a log is the cursor of `checks.kernel_log`: boot, seconds since boot, and what was judged at that very stamp.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from activities.errors import BadInput
from checks.kernel_log import Cursor

_FILE = TypeAdapter(dict[str, Cursor])


class CursorFile:
    """The cursors of all nodes, by instance id. Safe for several threads of one process."""

    def __init__(self, file: Path) -> None:
        """Read the file; an absent one is a first start. Raises BadInput when it is there and unreadable."""
        self._file = file
        self._lock = threading.Lock()
        self._cursors = self._read()

    def of(self, instance_id: str) -> Cursor | None:
        """Return how far the node's log was read, None for a node never seen."""
        with self._lock:
            return self._cursors.get(instance_id)

    def move(self, instance_id: str, cursor: Cursor) -> None:
        """Remember the place durably. Call only after the server has confirmed every report up to it."""
        with self._lock:
            if self._cursors.get(instance_id) == cursor:
                return
            self._cursors[instance_id] = cursor
            self._write()

    def _read(self) -> dict[str, Cursor]:
        try:
            return _FILE.validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            raise BadInput(
                f"{self._file}: the watcher's cursors cannot be read ({type(error).__name__}); "
                "mend or delete the file: then faults of the last minutes are reported again, which does no harm"
            ) from error

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_name(self._file.name + ".new")
        with new.open("w", encoding="utf-8") as out:
            json.dump({key: asdict(cursor) for key, cursor in self._cursors.items()}, out)
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._file)
