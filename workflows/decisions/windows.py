"""Maintenance windows: the periods in which disruption is allowed. A scope without a window is always open."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from pydantic import Field, field_validator

from activities.settings import Section

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = timedelta(days=1)


class Window(Section):
    """One period that comes back every week, in UTC. `to` at or before `begins` ends on the next day."""

    scope: str = Field("cluster", description='What it is for: "cluster", "job:NAME", "pool:NAME", "zone:NAME", "rack:NAME"')
    days: list[str] = Field(list(DAYS), description="Days on which it begins, of Mon Tue Wed Thu Fri Sat Sun")
    begins: time = Field(description="When it begins, UTC, such as 22:00")
    ends: time = Field(description="When it ends, UTC, such as 06:00; at or before `begins`: on the next day")

    @field_validator("days")
    @classmethod
    def _known_days(cls, days: list[str]) -> list[str]:
        unknown = [day for day in days if day not in DAYS]
        if unknown or not days:
            raise ValueError(f"{', '.join(unknown) or 'no day'}: the days are {', '.join(DAYS)}")
        return days

    def is_open(self, now: datetime) -> bool:
        """Whether `now` (UTC) lies in the window."""
        return any(begin <= now < end for begin, end in self._around(now))

    def next_begin(self, now: datetime) -> datetime:
        """When it begins the next time after `now`."""
        return min(begin for begin, _ in self._around(now) if begin > now)

    def _around(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """The windows that begin between yesterday and a week from now."""
        found = []
        for days in range(-1, 8):
            day = (now + days * DAY).date()
            if DAYS[day.weekday()] not in self.days:
                continue
            begin = datetime.combine(day, self.begins, tzinfo=now.tzinfo)
            end = datetime.combine(day, self.ends, tzinfo=now.tzinfo)
            found.append((begin, end if end > begin else end + DAY))
        return found


def outside_windows(windows: list[Window], scopes: set[str], now: datetime) -> str:
    """Return why disruption within these scopes is not allowed now, empty when it is.

    Every scope that has windows must be in one of its own.
    """
    for scope in sorted({window.scope for window in windows} & scopes):
        of_scope = [window for window in windows if window.scope == scope]
        if not any(window.is_open(now) for window in of_scope):
            begins = min(window.next_begin(now) for window in of_scope)
            return f"outside the maintenance windows of {scope}; the next one begins {begins:%a %Y-%m-%d %H:%M} UTC"
    return ""
