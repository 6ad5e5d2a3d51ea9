"""Effects that must happen once, though the attempt that makes them may die, hang or lose its answer.

The rule: note the intent under the effect's token, act, and on any later attempt observe before acting again. An attempt
whose own time is nearly up does not act at all, so a timed-out attempt never acts late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from temporalio import activity

from activities.errors import TooLate

ACT_MARGIN_S = 5.0
"""Seconds before the end of an attempt in which it no longer acts. Hotspare default: longer than a mutating call's time-out."""


class IntentStore(Protocol):
    """Remembers that an effect may have been made."""

    def note_intent(self, token: str, what: str) -> bool:
        """Record the token; return True if it was not known before. Durable when it returns."""
        ...


def refuse_if_late(now: datetime | None = None) -> None:
    """Raise TooLate when this attempt is within `ACT_MARGIN_S` of its start-to-close time-out."""
    info = activity.info()
    if info.start_to_close_timeout is None:
        return
    ends = info.started_time + info.start_to_close_timeout
    if (now or datetime.now(UTC)) > ends - timedelta(seconds=ACT_MARGIN_S):
        raise TooLate(f"{info.activity_type}: attempt {info.attempt} has no time left to act; the next attempt observes first")


def act_once(
    token: str,
    what: str,
    store: IntentStore,
    *,
    happened: Callable[[], bool],
    act: Callable[[], None],
    settle_s: float,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Make an effect once and return whether this call made it.

    `happened` observes the outside world. When the intent is already noted, an earlier attempt may have acted: it is given
    `settle_s` seconds to show, and only an effect that does not show by then is made (again).
    """
    if happened():
        return False
    first = store.note_intent(token, what)
    deadline = now() + (0.0 if first else settle_s)
    while now() < deadline:
        activity.heartbeat(f"an earlier attempt may have made this: {what}; watching")
        wait(min(0.5, settle_s))
        if happened():
            return False
    refuse_if_late()
    act()
    return True
