"""Time for activities that wait: an injected clock, so that tests wait without time passing, and the heartbeat of a wait."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
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


@dataclass
class _Signs:
    """The signs of life of one attempt."""

    attempt: tuple[bytes, int, datetime]
    detail: object = ""
    beat_at: float | None = None


_signs: ContextVar[_Signs | None] = ContextVar("signs_of_life", default=None)


def _of_this_attempt() -> _Signs:
    """Return the signs of this attempt. A thread of the pool keeps what the activity before left in it: that is not ours."""
    info = activity.info()
    attempt = (info.task_token, info.attempt, info.started_time)
    signs = _signs.get()
    if signs is None or signs.attempt != attempt:
        signs = _Signs(attempt)
        _signs.set(signs)
    return signs


def beat(detail: object = None) -> None:
    """Heartbeat when running inside an activity; outside of one (command line, watcher) do nothing.

    Without `detail` the last one is sent again: a heartbeat replaces the details that the next attempt reads.
    """
    if not activity.in_activity():
        return
    signs = _of_this_attempt()
    if detail is not None:
        signs.detail = detail
    activity.heartbeat(signs.detail)
    signs.beat_at = time.monotonic()


def silent_s() -> float:
    """Seconds since this attempt last gave a sign of life: its last heartbeat, or its start."""
    last = _of_this_attempt().beat_at
    if last is not None:
        return time.monotonic() - last
    return (datetime.now(UTC) - activity.info().started_time).total_seconds()


def waited_before() -> float:
    """Seconds that earlier attempts of this activity waited, as their last heartbeat told; 0.0 for a first attempt."""
    details = activity.info().heartbeat_details if activity.in_activity() else []
    return float(details[0]) if details and isinstance(details[0], (int, float)) else 0.0
