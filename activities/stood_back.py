"""The record that other healers stand back for a node: a tag on the instance with the incident and the kinds of healers.

Written before a healer is told and removed after it was released, so that a kind that is not named was not told by us.
"""

from __future__ import annotations

from activities import names
from activities.ec2 import Ec2Client
from activities.effects import refuse_if_late
from activities.errors import NotOurs
from activities.inventory import Node

AND = " + "
"""Between kinds. AWS allows it in the values of tags; a semicolon it does not."""


class StoodBack:
    """Reads and writes the tag hotspare:stood-back."""

    def __init__(self, ec2: Ec2Client) -> None:
        self._ec2 = ec2

    def kinds(self, node: Node, incident: str) -> set[str]:
        """Return which kinds stand back for the incident. Raises NotOurs where they do for another."""
        value = self._ec2.describe(node.instance_id).tags.get(names.TAG_STOOD_BACK, "")
        owner, _, kinds = value.partition(" ")
        if value and owner != incident:
            raise NotOurs(f"healers of {node.name} stand back for {value}; {incident} leaves that as it is")
        return set(kinds.split(AND)) if kinds else set()

    def add(self, node: Node, incident: str, kind: str) -> None:
        """Note that a kind is about to be told."""
        self._write(node, incident, self.kinds(node, incident), {kind})

    def remove(self, node: Node, incident: str, kind: str) -> None:
        """Note that a kind was released. With the last one the tag goes."""
        known = self.kinds(node, incident)
        if kind not in known:
            return
        if left := known - {kind}:
            self._write(node, incident, known, left, anew=True)
            return
        refuse_if_late()
        self._ec2.remove_tags(node.instance_id, [names.TAG_STOOD_BACK])

    def _write(self, node: Node, incident: str, known: set[str], kinds: set[str], *, anew: bool = False) -> None:
        wanted = kinds if anew else known | kinds
        if wanted != known:
            refuse_if_late()
            self._ec2.set_tags(node.instance_id, {names.TAG_STOOD_BACK: f"{incident} {AND.join(sorted(wanted))}"})
