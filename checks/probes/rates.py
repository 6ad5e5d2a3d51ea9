"""Says of a counter whether it rose too far or too fast, from what earlier looks remembered."""

from __future__ import annotations

from typing import Optional

from checks.probes.looks import Looks, Rise

HOUR_S = 3600.0
RATE_WINDOW_S = 600.0
"""Rates are means over so many seconds. Source: gpud counts clock events over 10 minutes; Hotspare default for the others."""
_RATE_SPAN_S = 55.0
"""Two looks must be so far apart to tell a rate. Hotspare default: the next look after a minute can."""
SETTLES_S = 300.0
"""Links train and drivers load in the first seconds of a boot: what counters do then is not judged.

Source: NVIDIA Fabric Manager and DCGM leave minutes; Hotspare default.
"""


def rose(looks: Looks, name: str, value: float, most: float, window_s: float = HOUR_S) -> Optional[Rise]:
    """Return the rise of a counter by more than `most` since about `window_s` ago, None where it did not or cannot be told."""
    rise = looks.rise(name, value, window_s)
    return rise if rise is not None and rise.amount > most else None


def too_fast(looks: Looks, name: str, value: float, limit_per_s: float) -> Optional[Rise]:
    """Return the rise of a counter above its rate; once it was, it has to fall below half of that to be in order again."""
    rise = looks.rise(name, value, RATE_WINDOW_S, min_span_s=_RATE_SPAN_S)
    high = f"{name}/high"
    if rise is None or rise.per_second <= (limit_per_s / 2 if _was(looks, high) else limit_per_s):
        return None
    looks.note(high, 1)
    return rise


def last_seen(looks: Looks, name: str) -> Optional[float]:
    """Return what a counter read at the look before, None where there was none in this boot."""
    past = looks.earlier.get(name)
    if not past or not looks.boot_id or past[-1].boot_id != looks.boot_id:
        return None
    return past[-1].value


def _was(looks: Looks, high: str) -> bool:
    """Say whether the last looks called the rate high; what is not noted again is forgotten after a while."""
    past = looks.earlier.get(high, [])
    return bool(past) and past[-1].boot_id == looks.boot_id and looks.now - past[-1].at <= 2 * RATE_WINDOW_S


def worth_noting(uptime_s: Optional[float]) -> bool:
    """Say whether counters of this moment are a base to judge later ones by: not while links train after a boot."""
    return uptime_s is not None and uptime_s >= SETTLES_S
