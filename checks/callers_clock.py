"""The time of a look: this node's clock, or the caller's where this one is plainly wrong or has jumped.

What was dealt with before, and what was reported, is told in the caller's time. On a node whose clock is hours behind, a fault of
this minute would count as dealt with long ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Optional

SAME_S = 60.0
"""Clocks that differ by less count as the same, seconds. Hotspare default: more than a connection and a start of Python take."""


def callers_clock(asked_at: Optional[float], own: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return the clock to look by; `asked_at` is the caller's time when it asked, None where it does not say."""

    def clock() -> float:
        here = own()
        return here if asked_at is None or abs(here - asked_at) <= SAME_S else asked_at

    return clock
