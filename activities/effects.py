"""Effects that must happen once, though the attempt that makes them may die, hang or lose its answer.

The rule: note the intent under the effect's token, act, and on any later attempt observe before acting again. An attempt
whose own time is nearly up does not act at all, so a timed-out attempt never acts late.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import CancelledError

from activities.clock import Clock, SystemClock, beat, silent_s
from activities.errors import NoCapacity, Throttled, TooLate

ACT_MARGIN_S = 5.0
"""Seconds before the end of an attempt in which it no longer acts. Hotspare default: longer than a mutating call's time-out."""


class IntentStore(Protocol):
    """Remembers that an effect may have been made."""

    def note_intent(self, token: str, what: str) -> bool:
        """Record the token; return True if it was not known before. Durable when it returns."""
        ...

    def intent_age_s(self, token: str) -> float | None:
        """Return how long ago the token was recorded, seconds, or None."""
        ...

    def withdraw_intent(self, token: str) -> None:
        """Forget the token: the effect was provably not made."""
        ...


def refuse_if_late(now: datetime | None = None) -> None:
    """Raise TooLate when this attempt is within `ACT_MARGIN_S` of a time-out: after it another attempt may be at work already."""
    info = activity.info()
    if activity.is_cancelled():
        raise CancelledError(f"{info.activity_type}: cancelled before it acted")
    silence = info.heartbeat_timeout.total_seconds() if info.heartbeat_timeout else None
    if silence is not None and silent_s() > silence - min(ACT_MARGIN_S, silence / 3):
        raise TooLate(f"{info.activity_type}: attempt {info.attempt} was silent for too long; the next attempt observes first")
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
    in_doubt: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> bool:
    """Make an effect once and return whether this call made it.

    `happened` observes the outside world. When the intent is already noted, an earlier attempt may have acted: it is given
    `settle_s` seconds to show, and only an effect that does not show by then is made (again). Where the world then shows
    neither the effect nor its absence (`in_doubt`), it is left to whoever waits for the effect: never made a second time.
    """
    beat()
    if happened():
        return False
    if not store.note_intent(token, what):
        left_s = settle_s - _watched_s(token, store)
        if _shows_late(what, happened, left_s, clock or SystemClock()) or in_doubt():
            return False
    refuse_if_late()
    try:
        act()
    except (Throttled, NoCapacity):
        store.withdraw_intent(token)
        raise
    return True


def _watched_s(token: str, store: IntentStore) -> float:
    """Return how long earlier attempts have watched already: attempts may be shorter than the time an effect needs to show."""
    watch = f"{token}/watch"
    store.note_intent(watch, "an earlier attempt is watched for")
    return store.intent_age_s(watch) or 0.0


def _shows_late(what: str, happened: Callable[[], bool], left_s: float, clock: Clock) -> bool:
    """Watch whether what an earlier attempt may have done shows. Raises TooLate when this attempt ends before the watch does."""
    deadline = clock.now() + left_s
    while (left := deadline - clock.now()) > 0:
        refuse_if_late()
        beat(f"an earlier attempt may have made this: {what}; watching")
        clock.wait(min(0.5, left))
        if happened():
            return True
    return False
