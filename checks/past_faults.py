"""The fault lines of the days before, from the journal that a node keeps: `run_checks.py past` prints them as one JSON document.

Read on the node, because a week of a kernel's log has megabytes of which a few lines matter.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Callable, Optional, cast

from checks.diagnosis.wall_clock import written_at
from checks.host import Host
from checks.kernel_log.scan import ALL_WORDS, scan

SCHEMA = 1

DEADLINE_S = 45.0
"""For the journal to be read. Hotspare default: journalctl reads some hundred thousand lines a second."""

MOST_LINES = 2000
"""Lines that are handed on, the newest. Hotspare default: 200 incidents of a burst each; about 400,000 characters."""

LINE_LIMIT = 500
"""Characters of one line. Hotspare default: as a report's raw line."""

_BOOT = re.compile(r"^.{0,200}?\bLinux version \d.*$", re.MULTILINE)
_JOURNAL = ("journalctl", "_TRANSPORT=kernel", "-o", "short-iso-precise", "--utc", "--no-pager")
_ENVELOPE = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \S+ [^:]{1,64}: (?P<text>.*)$")
_RING = re.compile(r"^\s*\[\s*(?P<stamp>\d{1,12}\.\d{1,9})\] (?P<text>.*)$")

Clock = Callable[[], float]


def past_faults(host: Host, since: float, clock: Clock = time.time) -> dict[str, Any]:
    """Return the fault lines since a Unix time, each [Unix time or null, text], and the times of boots.

    `begins` is the time of the oldest line there is: a journal may not go back so far. Where no journal can be read it is the
    ring buffer of this boot; `error` says why nothing was read at all.
    """
    tried = []
    for source, argv in _readers(since):
        output = host.run(argv, DEADLINE_S)
        if output.ok and output.stdout.strip():
            lines = _ring(output.stdout, host, clock()) if source == "dmesg" else _journal(output.stdout, clock())
            return _document(source, lines, since, truncated=output.truncated)
        why = "no such command" if output.missing else "too slow" if output.timed_out else output.stderr.strip()[:200]
        tried.append(f"{' '.join(argv[:3])}: {why or 'printed nothing'}")
    return {"schema": SCHEMA, "error": "; ".join(tried)}


def _readers(since: float) -> Iterator[tuple[str, tuple[str, ...]]]:
    journal = (*_JOURNAL, "--since", f"@{since:.0f}")
    yield "journal", journal
    yield "journal", ("sudo", "-n", *journal)
    yield "dmesg", ("dmesg",)
    yield "dmesg", ("sudo", "-n", "dmesg")


Stamped = tuple[Optional[float], str]


def _journal(text: str, now: float) -> Iterator[Stamped]:
    """Every line that may matter, and the first one, which tells how far back the journal goes."""
    first = next((line for line in text.split("\n", 50) if _ENVELOPE.match(line)), "")
    yield written_at(first, now), ""
    for line in _wanted(text):
        found = _ENVELOPE.match(line)
        if found:
            yield written_at(line, now), found.group("text")


def _ring(text: str, host: Host, now: float) -> Iterator[Stamped]:
    uptime = (host.read_text("/proc/uptime") or "").split(" ")[0]
    booted = now - float(uptime) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", uptime) else None
    yield booted, ""
    for line in _wanted(text):
        found = _RING.match(line)
        if found:
            yield None if booted is None else booted + float(found.group("stamp")), found.group("text")


def _wanted(text: str) -> Iterator[str]:
    """The kernel's first lines of boots, then what may be a fault."""
    stream = cast("BinaryIO", io.BytesIO(text.encode("utf-8", "replace")))
    yield from (found.group(0) for found in _BOOT.finditer(text))
    yield from (line.decode("utf-8", "replace") for line in scan(stream, ALL_WORDS))


def _document(source: str, lines: Iterable[Stamped], since: float, truncated: bool) -> dict[str, Any]:
    begins: Optional[float] = None
    boots: list[float] = []
    faults: list[Stamped] = []
    for position, (at, text) in enumerate(lines):
        if position == 0:
            begins = at
        elif text.startswith("Linux version "):
            boots += [] if at is None else [at]
        elif at is None or at >= since:
            faults.append((at, text[:LINE_LIMIT]))
    kept = faults[-MOST_LINES:]
    return {
        "schema": SCHEMA,
        "source": source,
        "begins": begins,
        "truncated": truncated,
        "boots": [at for at in boots if at >= since],
        "lines": [list(line) for line in kept],
        "left_out": len(faults) - len(kept),
        "error": "",
    }
