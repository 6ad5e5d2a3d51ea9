"""Other healers: who else repairs a node, told to stand back by their own switch before it is disrupted, and released afterwards.

A healer that is not told takes a node that reboots for a broken one and replaces it meanwhile.
"""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from activities.errors import as_application_error
from activities.inventory import Node
from activities.message import Message


class Healer(Message):
    """Who else repairs a node: what it is, and its name. `owns`: why nobody else may disrupt or replace the node at all.

    `doubt`: why it is not known whether it is there; it is then treated as if it were.
    """

    kind: str
    name: str
    owns: str = ""
    doubt: str = ""

    @property
    def words(self) -> str:
        """How a reason names it."""
        return f"{self.kind} {self.name}".rstrip()


class StandBack(Message):
    """Have the other healers of a node leave it alone while `incident` works on it."""

    node: Node
    incident: str


class ReleaseHealers(Message):
    """Let the healers that stand back for `incident` look after the node again; refused (NotOurs) for those of another."""

    node: Node
    incident: str


class HealersSaid(Message):
    """How the healers stand now, in words for the story."""

    said: str


class Healers(Protocol):
    """The healers of one kind. What was done to them is recorded outside of the worker, with the incident's id."""

    def found(self, node: Node) -> list[Healer]:
        """Return who else repairs the node, from what the inventory and the cluster's lists say, some seconds old at most."""
        ...

    def stand_back(self, node: Node, incident: str) -> str:
        """Have them leave the node alone; returns what is so now, also when it was before, empty where they have no such node.

        Raises a FinalError with the reason, and what to change, where they cannot be told.
        """
        ...

    def release(self, node: Node, incident: str) -> str:
        """Undo `stand_back` of this incident; nothing, and empty, where it did nothing. NotOurs where it was another's."""
        ...


class HealerActivities:
    """Telling other healers, on behalf of an incident."""

    def __init__(self, healers: Healers) -> None:
        self._healers = healers

    @activity.defn
    def stand_back(self, request: StandBack) -> HealersSaid:
        """Have the other healers of a node stand back."""
        with as_application_error():
            return HealersSaid(said=self._healers.stand_back(request.node, request.incident))

    @activity.defn
    def release_healers(self, request: ReleaseHealers) -> HealersSaid:
        """Let them look after the node again."""
        with as_application_error():
            return HealersSaid(said=self._healers.release(request.node, request.incident))
