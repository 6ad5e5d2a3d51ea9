"""Moving pods off a node before it is disrupted."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from activities.errors import as_application_error
from activities.inventory import Node
from activities.message import Message


class DrainNode(Message):
    """Move the pods off a node that `incident` has quarantined. `deadline_s`: kubernetes.drain_deadline_s where not given."""

    node: Node
    incident: str
    reason: str
    deadline_s: float | None = None


class Drained(Message):
    """What came of a drain: in words; `left` are pods that stay on purpose (of DaemonSets, static ones), `blocked` those that
    could not be moved and why. Each is named namespace/pod."""

    said: str
    left: list[str] = []
    blocked: list[str] = []


class Drainer(Protocol):
    """Moves pods off nodes."""

    def drain(self, request: DrainNode) -> Drained:
        """Return when no pod that can be moved is left, heartbeating meanwhile.

        Raises PreconditionFailed without the incident's own quarantine, DeadlinePassed with the pods that are left and what holds
        them. Doing it again is harmless; a cancelled drain leaves the quarantine as it is.
        """
        ...


class NoDrainer:
    """For a cluster without an orchestrator that places pods."""

    def drain(self, request: DrainNode) -> Drained:
        return Drained(said=f"nothing to drain on {request.node.name}: no Kubernetes is configured (kubernetes.source)")


class DrainActivities:
    """Drains."""

    def __init__(self, drainer: Drainer) -> None:
        self._drainer = drainer

    @activity.defn
    def drain_node(self, request: DrainNode) -> Drained:
        """Move the pods off a node."""
        with as_application_error():
            return self._drainer.drain(request)
