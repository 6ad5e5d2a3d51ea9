"""Reports that wait on disk while Temporal is away: one file each, written whole or not at all, for their owner alone.

A process that is killed at any moment loses none: a report counts as held once its file is there under its name, and the file
goes only when the server has the report. What is delivered twice for that joins the same incident.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from activities.errors import TransientError
from activities.inventory import Node
from activities.message import Message, UtcTime
from activities.node import Report
from workers.sections import SpoolSettings

logger = logging.getLogger(__name__)

SAME_AGAIN = timedelta(seconds=60)
"""Within this time a report that is said again without a change is not written again. Hotspare default: small beside any age."""

_NAME = re.compile(r"^(\d{12})\.json$")


class SpoolFailed(TransientError):
    """The report is not on disk either: whoever has it must keep it."""


class Held(Message):
    """One report that waits.

    `identity` tells the same report said again, `fault` the kind by which older ones give way to newer ones of the same node when
    there is no more room; `folded` is how many did. `boot_id` is the boot that the report is about, where known; `held_at` when
    it was last said, by our own clock.
    """

    identity: str
    node: Node
    report: Report
    fault: str
    held_at: UtcTime
    boot_id: str = ""
    folded: int = 0


@dataclass(frozen=True)
class SpoolState:
    """What a spool holds now, and how many reports it lost for want of room since the process started."""

    reports: int
    size: int
    full: bool
    lost: int


@dataclass(frozen=True)
class _Entry:
    held: Held
    size: int


class Spool:
    """The reports of one process, in the order in which they were said. Safe for several threads."""

    def __init__(self, folder: Path, settings: SpoolSettings) -> None:
        """Take up what an earlier process left in the folder."""
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._full = False
        self._lost = 0
        last = self._take_up()
        self._numbers = itertools.count(last + 1)

    @property
    def state(self) -> SpoolState:
        """How full it is."""
        with self._lock:
            return SpoolState(len(self._entries), self._size(), self._full, self._lost)

    def holds(self, instance_id: str) -> bool:
        """Whether a report of this node waits: then a newer one waits behind it, so that they arrive in order."""
        with self._lock:
            return any(entry.held.node.instance_id == instance_id for entry in self._entries.values())

    def waiting(self) -> dict[str, list[tuple[str, Held]]]:
        """Everything that waits, by instance id, the oldest first; with each the name to `release` it by."""
        by_node: dict[str, list[tuple[str, Held]]] = {}
        with self._lock:
            for name in sorted(self._entries):
                held = self._entries[name].held
                by_node.setdefault(held.node.instance_id, []).append((name, held))
        return by_node

    def hold(self, new: Held) -> None:
        """Keep a report; returns once it is on disk. The same report said again replaces the one that waits.

        Where there is no more room, older reports give way, never this one. Raises SpoolFailed when it cannot be written.
        """
        with self._lock:
            same = next((name for name, entry in self._entries.items() if entry.held.identity == new.identity), None)
            if same is not None:
                if self._says_nothing_new(self._entries[same].held, new):
                    return
                new = new.model_copy(update={"folded": self._entries[same].held.folded})
            name = f"{next(self._numbers):012d}.json"
            self._write(name, new)
            if same is not None:
                self._drop(same)
            self._make_room(name)

    def release(self, name: str) -> None:
        """Forget a report: it was delivered, or is not to be."""
        with self._lock:
            self._drop(name)
            self._full = self._full and bool(self._entries)

    def _says_nothing_new(self, held: Held, new: Held) -> bool:
        """Whether the very same was said a moment ago: a hundred equal alerts at once are one file, written once."""
        return held.report == new.report and timedelta(0) <= new.held_at - held.held_at < SAME_AGAIN

    def _size(self) -> int:
        return sum(entry.size for entry in self._entries.values())

    def _over(self) -> bool:
        return len(self._entries) > self._settings.max_reports or self._size() > self._settings.max_bytes

    def _make_room(self, newest: str) -> None:
        """Fold older reports into newer ones of the same node and fault first; only then is the oldest of all lost."""
        if self._over() and not self._full:
            self._full = True
            state = f"{len(self._entries)} reports, {self._size()} bytes"
            logger.error("%s is full (%s): older reports give way to newer ones until Temporal answers", self._folder, state)
        while self._over() and len(self._entries) > 1:
            folding = self._oldest_that_folds()
            if folding is not None:
                self._fold(*folding)
                continue
            oldest = min(name for name in self._entries if name != newest)
            self._lost += 1
            logger.error("%s is full: lost the oldest report: %s", self._folder, words_of(self._entries[oldest].held))
            self._drop(oldest)

    def _oldest_that_folds(self) -> tuple[str, str] | None:
        """Return the oldest report after which the same node reported the same fault, and the newest such report."""
        newest_of: dict[tuple[str, str], str] = {}
        for name in sorted(self._entries, reverse=True):
            held = self._entries[name].held
            newest_of.setdefault((held.node.instance_id, held.fault), name)
        for name in sorted(self._entries):
            held = self._entries[name].held
            newer = newest_of[held.node.instance_id, held.fault]
            if newer != name:
                return name, newer
        return None

    def _fold(self, older: str, newer: str) -> None:
        held = self._entries[newer].held
        folded = held.folded + self._entries[older].held.folded + 1
        with suppress(SpoolFailed):  # the count is for people; the report is there
            self._write(newer, held.model_copy(update={"folded": folded}))
        self._drop(older)

    def _write(self, name: str, held: Held) -> None:
        data = held.model_dump_json(exclude_defaults=True).encode()
        file = self._folder / name
        new = file.with_name(file.name + ".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            new.replace(file)
            with _opened(self._folder) as folder:
                os.fsync(folder)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise SpoolFailed(f"{self._folder}: a report cannot be kept on disk ({error.strerror or error})") from error
        self._entries[name] = _Entry(held, len(data))

    def _drop(self, name: str) -> None:
        self._entries.pop(name, None)
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:  # delivered again after a restart, which does no harm
            logger.warning("%s/%s cannot be removed (%s)", self._folder, name, error.strerror or error)

    def _take_up(self) -> int:
        """Read what is there; returns the last number used. What is half written was never held; what is damaged is set aside."""
        last = 0
        try:
            files = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        except OSError as error:
            logger.error("%s cannot be read (%s): reports are lost when Temporal is away", self._folder, error.strerror or error)
            return last
        for file in files:
            if file.name.endswith(".json.new"):
                file.unlink(missing_ok=True)
            if found := _NAME.match(file.name):
                last = max(last, int(found.group(1)))
                self._take_up_file(file)
        if self._entries:
            logger.warning("%s: %d reports wait for Temporal since before the start", self._folder, len(self._entries))
        return last

    def _take_up_file(self, file: Path) -> None:
        try:
            data = file.read_bytes()
            held = Held.model_validate_json(data)
        except (OSError, ValidationError) as error:
            aside = file.with_name(file.name + ".damaged")
            logger.error("%s: a report that waited cannot be read (%s); set aside as %s", file, type(error).__name__, aside.name)
            with suppress(OSError):
                file.replace(aside)
            return
        for name in [name for name, entry in self._entries.items() if entry.held.identity == held.identity]:
            self._drop(name)  # killed after the newer was written, before the older was removed
        self._entries[file.name] = _Entry(held, len(data))


def words_of(held: Held) -> str:
    """Name a report in one line, for the log."""
    report = held.report
    code = f"XID {report.xid}: " if report.xid is not None else f"SXid {report.sxid}: " if report.sxid is not None else ""
    folded = f" (and {held.folded} older ones of the kind)" if held.folded else ""
    return f"{held.node.name}: {code}{report.what or 'reported'}, said {held.held_at:%Y-%m-%d %H:%M:%S} UTC{folded}"


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
