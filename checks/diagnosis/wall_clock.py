"""Reads the time of day at which a log line says that it was written: journald, ISO 8601, `dmesg -T`, syslog."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Optional

LOOKED_AT = 8192
"""Characters of a line in which its time is looked for. Hotspare default: a journald document has its stamps well within."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(" + "|".join(_MONTHS) + ")"
_JOURNAL = re.compile(r'REALTIME_TIMESTAMP\\?"\s{0,2}:\s{0,2}\\?"?(\d{13,17})(?!\d)')
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(?:([+-])(\d\d):?(\d\d)(?!\d)|Z)?")
_LONG = re.compile(_MONTH + r"\s{1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\]")
_SYSLOG = re.compile(r"^\s*(?:<\d{1,3}>)?" + _MONTH + r"\s{1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?\s")
_DAY = timedelta(days=1)


def written_at(line: str, now: float) -> Optional[float]:
    """Return the Unix time (s) that a line bears, None where it bears none. Times without a zone are read as UTC.

    Syslog leaves out the year: it is the last one in which the date is not later than a day after `now` (Unix time, s).
    """
    line = line[:LOOKED_AT]
    journal = _JOURNAL.search(line)
    if journal:
        return int(journal.group(1)) / 1e6
    try:
        return _iso(line) or _long(line) or _syslog(line, datetime.fromtimestamp(now, timezone.utc))
    except (ValueError, OverflowError):
        return None


def _iso(line: str) -> Optional[float]:
    found = _ISO.search(line)
    if not found:
        return None
    sign, hours, minutes = found.group(8, 9, 10)
    offset = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    zone = timezone(-offset if sign == "-" else offset)
    year, month, day, hour, minute, second = (int(number) for number in found.group(1, 2, 3, 4, 5, 6))
    return datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp() + _fraction(found.group(7))


def _long(line: str) -> Optional[float]:
    found = _LONG.search(line)
    if not found:
        return None
    day, hour, minute, second, year = (int(number) for number in found.group(2, 3, 4, 5, 6))
    return datetime(year, _MONTHS.index(found.group(1)) + 1, day, hour, minute, second, tzinfo=timezone.utc).timestamp()


def _syslog(line: str, now: datetime) -> Optional[float]:
    found = _SYSLOG.match(line)
    if not found:
        return None
    month, (day, hour, minute, second) = _MONTHS.index(found.group(1)) + 1, (int(number) for number in found.group(2, 3, 4, 5))
    for year in range(now.year + 1, now.year - 5, -1):
        try:
            moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
        except ValueError:
            continue
        if moment <= now + _DAY:
            return moment.timestamp() + _fraction(found.group(6))
    return None


def _fraction(digits: Optional[str]) -> float:
    return float(f"0.{digits}") if digits else 0.0
