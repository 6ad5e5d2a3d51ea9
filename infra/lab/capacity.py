"""EC2 short of capacity, and EC2 that shows what was: answers that moto never gives, on a clock that a test can turn.

Sources: Amazon EC2 User Guide, "Troubleshoot Amazon EC2 instance launch issues" (InsufficientInstanceCapacity, which passes by
waiting); Amazon EC2 Developer Guide, "Eventual consistency in the Amazon EC2 API" (a describe may show the time before a change).
"""

from __future__ import annotations

import threading
import time

from infra.lab.ec2_calls import Answer, AwsCall, error
from infra.lab.moto_instances import state_of

LAUNCHES = ("RunInstances", "StartInstances")
"""Calls that take capacity."""


class LabClock:
    """Seconds that pass by themselves, and at once where a test says so. Called from server threads."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the time, in seconds since some moment."""
        return time.monotonic() + self._ahead

    def forward(self, seconds: float) -> None:
        """Let this much time pass at once: for slots that are cleaned, capacity that lacks and answers that lag."""
        self._ahead += seconds


class Shortage:
    """No capacity for a while: starts and launches outside of reservations are refused. `refused` counts them."""

    def __init__(self, clock: LabClock) -> None:
        self._clock = clock
        self._until = 0.0
        self.refused = 0

    def begin(self, lasts_s: float) -> None:
        """Have EC2 lack capacity from now on, for so many seconds of the lab's clock."""
        self._until = self._clock.now() + lasts_s

    @property
    def lasts(self) -> bool:
        """Whether there is none now."""
        return self._clock.now() < self._until

    def refusal(self, call: AwsCall, *, reserved: bool) -> Answer | None:
        """Refuse a start or a launch. Reserved capacity is there all the same."""
        starts = [one for one in call.instance_ids if state_of(one) == "stopped"]
        if reserved or not self.lasts or call.operation not in LAUNCHES or (call.operation == "StartInstances" and not starts):
            return None
        self.refused += 1
        said = "We currently do not have sufficient capacity in the Availability Zone you requested."
        return error(500, "InsufficientInstanceCapacity", said)


class StaleAnswers:
    """Describes that lag: for `stale_s` after each change a repeated question gets the answer from before the change."""

    def __init__(self, clock: LabClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, Answer]] = {}
        self._changed_at = float("-inf")
        self.stale_s = 0.0
        self.shown = 0

    def changed(self) -> None:
        """Take note that something has changed."""
        self._changed_at = self._clock.now()

    def answer(self, call: AwsCall) -> Answer | None:
        """Return what is shown in place of the truth, None where that is shown."""
        if not self.stale_s or not call.operation.startswith("Describe"):
            return None
        with self._lock:
            at, known = self._answers.get(_question(call), (0.0, None))
            if known is None or at > self._changed_at or self._clock.now() - self._changed_at >= self.stale_s:
                return None
            self.shown += 1
            return known

    def keep(self, call: AwsCall, answer: Answer) -> None:
        """Remember the truth, for a question that is asked again later."""
        if self.stale_s and call.operation.startswith("Describe") and answer.status < 300:
            with self._lock:
                self._answers[_question(call)] = (self._clock.now(), answer)


def _question(call: AwsCall) -> tuple[str, tuple[tuple[str, str], ...]]:
    return call.operation, tuple(sorted(call.parameters.items()))
