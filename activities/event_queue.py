"""The queue in which AWS tells about instances: EventBridge rules put events in, the intake takes them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class QueuedEvent:
    """One message. `receipt` is good for this one reception; without `done` the message comes again."""

    body: str
    receipt: str


class EventQueue(Protocol):
    """At least once, in no order. Raises AccessRefused, BadInput (no such queue) or ProviderBusy."""

    def receive(self) -> list[QueuedEvent]:
        """Wait a few seconds for messages; none is an answer too."""
        ...

    def done(self, event: QueuedEvent) -> None:
        """Take the message off the queue."""
        ...
