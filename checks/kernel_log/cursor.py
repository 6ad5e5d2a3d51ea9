"""How far a node's kernel log was judged, so that no line is judged twice, and none of an earlier boot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from checks.model import KernelEvent


@dataclass(frozen=True)
class Cursor:
    """A place in the log of one boot: seconds since boot of the newest judged event, and digests of those with that stamp.

    `unstamped` is the digest of the last judged event without a stamp: a log without a clock keeps its order all the same.
    """

    boot_id: str = ""
    monotonic_s: float = -1.0
    at_that_stamp: tuple[str, ...] = ()
    unstamped: str = ""


def unread(events: Iterable[KernelEvent], cursor: Cursor, boot_id: str) -> tuple[list[KernelEvent], Cursor]:
    """Return the events that were not judged yet, and the cursor after them; `boot_id` is the node's present boot.

    After a reboot the log begins anew: the old cursor counts for nothing, and lines that name another boot are left out. An event
    that is printed late, with a stamp before the cursor's, was judged or is history.
    """
    if cursor.boot_id != boot_id:
        cursor = Cursor(boot_id)
    here = [event for event in events if not event.boot_id or event.boot_id.replace("-", "") == boot_id.replace("-", "")]
    stamped = [event for event in here if event.monotonic_s is not None]
    new_stamped = [event for event in stamped if _is_new(event, cursor)]
    new_unstamped = _after_last([event for event in here if event.monotonic_s is None], cursor.unstamped)
    new = {id(event) for event in (*new_stamped, *new_unstamped)}
    return [event for event in here if id(event) in new], _moved(cursor, new_stamped, new_unstamped)


def _is_new(event: KernelEvent, cursor: Cursor) -> bool:
    stamp = event.monotonic_s or 0.0
    return stamp > cursor.monotonic_s or (stamp == cursor.monotonic_s and _digest(event) not in cursor.at_that_stamp)


def _after_last(events: list[KernelEvent], digest: str) -> list[KernelEvent]:
    """What follows the last judged event; everything where it is no longer in the log."""
    places = [place for place, event in enumerate(events) if _digest(event) == digest]
    return events[places[-1] + 1 :] if places else events


def _moved(cursor: Cursor, stamped: list[KernelEvent], unstamped: list[KernelEvent]) -> Cursor:
    newest = max([cursor.monotonic_s, *(event.monotonic_s or 0.0 for event in stamped)])
    there = [_digest(event) for event in stamped if event.monotonic_s == newest]
    if newest == cursor.monotonic_s:
        there = [*cursor.at_that_stamp, *there]
    last = _digest(unstamped[-1]) if unstamped else cursor.unstamped
    return Cursor(cursor.boot_id, newest, tuple(dict.fromkeys(there)), last)


def _digest(event: KernelEvent) -> str:
    return hashlib.sha256(f"{event.kind} {event.code} {event.pci} {event.raw}".encode("utf-8", "replace")).hexdigest()[:16]
