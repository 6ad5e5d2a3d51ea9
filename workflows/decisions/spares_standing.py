"""How a spare stands: qualified, or why it does not count; on probation or not. What is not known is no qualification."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum

from activities.host_records import SpareRecord
from activities.message import Message
from checks.model import Verdict
from workflows.decisions.spares_settings import SpareSettings

NEVER_TESTED = "was never tested"


class Rank(IntEnum):
    """Who is taken first. REFUSED is not taken at all."""

    QUALIFIED = 0
    ON_PROBATION = 1
    UNPROVEN = 2
    REFUSED = 3


class Standing(Message):
    """Where a spare stands, and why."""

    rank: Rank
    reason: str

    @property
    def counts(self) -> bool:
        """Whether it counts as a spare: it has passed, and not too long ago."""
        return self.rank in (Rank.QUALIFIED, Rank.ON_PROBATION)


def standing_of(record: SpareRecord | None, rules: SpareSettings, probation_h: float, now: datetime) -> Standing:
    """Return how a spare stands now; `probation_h` is how long one is on probation after a repair."""
    if record is None:
        return Standing(rank=Rank.UNPROVEN, reason="nothing is known of it")
    if record.bans:
        return Standing(rank=Rank.REFUSED, reason=record.bans[0])
    test, qualified_at = record.test, record.qualified_at
    if test is not None and test.verdict is Verdict.CRITICAL and (qualified_at is None or qualified_at < test.at):
        why = "; ".join(test.because[:2]) or "it failed"
        return Standing(rank=Rank.REFUSED, reason=f"failed its test {_ago(test.at, now)}: {why}")
    if qualified_at is None:
        return Standing(rank=Rank.UNPROVEN, reason=NEVER_TESTED if test is None else f"its test gave no result: {_why(record)}")
    age = now - qualified_at
    if age > timedelta(hours=rules.qualified_h):
        return Standing(rank=Rank.UNPROVEN, reason=f"its qualification has expired: it passed {_ago(qualified_at, now)}")
    passed = f"passed {_ago(qualified_at, now)}"
    if record.repaired_at is not None and now - record.repaired_at < timedelta(hours=probation_h):
        return Standing(rank=Rank.ON_PROBATION, reason=f"{passed}, on probation since its repair {_ago(record.repaired_at, now)}")
    return Standing(rank=Rank.QUALIFIED, reason=passed)


def _why(record: SpareRecord) -> str:
    return "; ".join(record.test.because[:2]) if record.test else ""


def _ago(at: datetime, now: datetime) -> str:
    hours = max(0.0, (now - at).total_seconds() / 3600)
    if hours >= 48:
        return f"{hours / 24:.0f} days ago"
    return f"{hours:.0f} h ago" if hours >= 1.5 else f"{60 * hours:.0f} min ago"
