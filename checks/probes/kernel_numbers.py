"""Numbers in the small text files of /proc and /sys; what is no number, or longer than one can be, is None."""

from __future__ import annotations

import math
import re
from typing import Optional

_WHOLE = re.compile(r"[0-9]{1,20}\Z")
"""Counters have at most 64 bits: 20 digits."""
_DECIMAL = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,3})?\Z")


def whole(text: Optional[str]) -> Optional[int]:
    """Read a whole number of 0 or more."""
    return int(text) if text is not None and _WHOLE.match(text) else None


def decimal(text: Optional[str]) -> Optional[float]:
    """Read a finite number."""
    if text is None or not _DECIMAL.match(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None
