"""Moving pods off a node before it is disrupted."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from activities.errors import as_application_error
from activities.inventory import Node
from activities.message import Message


class DrainNode(Message):
    """Move the pods off a node that `incident` has quarantined."""

    node: Node
    incident: str
    reason: str
    deadline_s: float | None = None


class Drained(Message):
    """What left the node and what stays there."""

    said: str
    left: list[str] = []
    blocked: list[str] = []


class Drainer(Protocol):
    """Moves pods off nodes."""

    def drain(self, request: DrainNode) -> Drained: ...


class DrainActivities:
    """Drains."""

    def __init__(self, drainer: Drainer) -> None:
        self._drainer = drainer

    @activity.defn
    def drain_node(self, request: DrainNode) -> Drained:
        """Move the pods off a node."""
        with as_application_error():
            return self._drainer.drain(request)
