"""Base class of every message that enters Temporal history: frozen, and forgiving of fields it does not know.

Every field added after the first release is optional or has a default: that is how running workflows stay readable.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Input or output of a workflow, an activity or a signal."""

    model_config = ConfigDict(frozen=True, extra="ignore")
