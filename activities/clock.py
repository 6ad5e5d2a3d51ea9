"""Time for activities that wait: an injected clock, so that tests wait without time passing, and the heartbeat of a wait."""

from __future__ import annotations

import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol

from temporalio import activity


class Clock(Protocol):
    """Time that only goes forward, and a way to let it pass."""

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after so many seconds; heartbeats meanwhile, so that a cancellation gets through."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))  # a thread is cancelled between byte-codes only
            beat()


_last_detail: ContextVar[object] = ContextVar("last_detail", default="")
_last_beat: ContextVar[float | None] = ContextVar("last_beat", default=None)


def beat(detail: object = None) -> None:
    """Heartbeat when running inside an activity; outside of one (command line, watcher) do nothing.

    Without `detail` the last one is sent again: a heartbeat replaces the details that the next attempt reads.
    """
    if detail is not None:
        _last_detail.set(detail)
    if activity.in_activity():
        activity.heartbeat(_last_detail.get())
        _last_beat.set(time.monotonic())


def silent_s() -> float:
    """Seconds since this attempt last gave a sign of life: its last heartbeat, or its start."""
    last = _last_beat.get()
    if last is not None:
        return time.monotonic() - last
    return (datetime.now(UTC) - activity.info().started_time).total_seconds()


def waited_before() -> float:
    """Seconds that earlier attempts of this activity waited, as their last heartbeat told; 0.0 for a first attempt."""
    details = activity.info().heartbeat_details if activity.in_activity() else []
    return float(details[0]) if details and isinstance(details[0], (int, float)) else 0.0
