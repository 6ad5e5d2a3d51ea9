"""How far a job is, as the configured command on the head node tells it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from activities.errors import HotspareError
from activities.jobs.command import fill
from activities.message import Message
from activities.node_access import NodeAccess
from activities.settings_jobs import JobSettings


class Progress(Message):
    """Counters of the training loop, None where not known."""

    step: int | None = None
    checkpoint_step: int | None = None
    seconds_per_step: float | None = None


NOT_KNOWN = Progress()


class ProgressCommand:
    """Asks `job.progress`. A job whose progress cannot be told is not a job that stands still: then nothing is known."""

    def __init__(self, access_to_head: Callable[[], NodeAccess], settings: JobSettings) -> None:
        self._access_to_head = access_to_head
        self._settings = settings

    @property
    def configured(self) -> bool:
        """Whether there is a command to ask."""
        return bool(self._settings.progress)

    def of(self, job: str) -> Progress:
        """Return the progress of a job."""
        if not self.configured:
            return NOT_KNOWN
        command = [fill(part, {"job": job}) for part in self._settings.progress]
        try:
            answer = self._access_to_head().run(command, self._settings.command_deadline_s)
            told: dict[str, Any] = json.loads(answer.stdout) if answer.exit_status == 0 else {}
            return Progress(**{key: told.get(key) for key in Progress.model_fields})
        except (HotspareError, ValueError, TypeError, AttributeError):
            return NOT_KNOWN
