"""What the credentials of a worker role may do on AWS, tried without doing it, and what AWS says of the queue of events.

For `hotspare doctor`. Sources: Amazon EC2 API Reference, common parameter DryRun; IAM API Reference, SimulatePrincipalPolicy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Permitted(StrEnum):
    """May it be done? UNKNOWN is never taken for YES."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True)
class Tried:
    """One action and whether it is permitted. `said` is why it cannot be told, or AWS' own words."""

    action: str
    permitted: Permitted
    said: str = ""


@dataclass(frozen=True)
class Identity:
    """Who the credentials are. `at` is AWS' time in the answer, `asked_at` ours in the middle of the call."""

    arn: str
    region: str
    at: datetime | None = None
    asked_at: datetime | None = None

    @property
    def skew_s(self) -> float | None:
        """By how much our clock is ahead of AWS', None where AWS did not say its time."""
        if self.at is None or self.asked_at is None:
            return None
        return (self.asked_at - self.at).total_seconds()


class Permissions(Protocol):
    """Questions about one set of credentials. Nothing is changed by any of them; no answer is an answer: UNKNOWN."""

    def identity(self) -> Identity:
        """Say who we are. Raises AccessRefused."""
        ...

    def try_dry(self, action: str, instance_id: str, tag: str = "", template: str = "") -> Tried:
        """Make an EC2 call as a dry run, on an instance; with a tag's key, or a launch template, where the call takes one."""
        ...

    def read(self, action: str, name: str = "") -> Tried:
        """Make a call that only reads."""
        ...

    def simulate(self, action: str, resource: str, context: Mapping[str, str]) -> Tried:
        """Ask IAM what the policies of our own role say of an action on a resource."""
        ...


@dataclass(frozen=True)
class QueueSeen:
    """What AWS says of the queue of events. `rules` are the EventBridge rules that fill it, `off` those that are disabled.

    `rules_unknown` says why they could not be read.
    """

    waiting: int = 0
    rules: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    rules_unknown: str = ""


class QueueLook(Protocol):
    """Looks at the queue of events from outside; raises AccessRefused, BadInput (no such queue), ProviderBusy."""

    def look(self) -> QueueSeen:
        """Describe the queue, and what fills it."""
        ...

    def send(self, body: str) -> None:
        """Put a message into it. Raises AccessRefused where we may not."""
        ...
