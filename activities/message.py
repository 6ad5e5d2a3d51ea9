"""Base class of every message that enters Temporal history: frozen, and forgiving of fields it does not know.

Every field added after the first release is optional or has a default: that is how running workflows stay readable.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Message(BaseModel):
    """Input or output of a workflow, an activity or a signal."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


UtcTime = Annotated[datetime, AfterValidator(_as_utc)]
"""A time with its zone. One that comes without is taken as UTC: senders outside are not ours to mend."""
