"""All healers of a cluster as one: every kind that has the node stands back before it is disrupted, or none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from activities.errors import FinalError, HotspareError, TransientError
from activities.healers import Healer, Healers
from activities.inventory import Node
from activities.stood_back import StoodBack

UNKNOWN = Healer(kind="somebody", name="who cannot be looked up", doubt="cannot tell who else repairs the node")
"""A kind that did not answer: nobody is ever taken for absent because he could not be asked."""


class KindOfHealers(Healers, Protocol):
    """`Healers` of one kind, by whose name the record knows them."""

    kind: str


class AllHealers:
    """`Healers` that joins several kinds."""

    def __init__(self, kinds: Sequence[KindOfHealers], record: StoodBack) -> None:
        self._kinds = kinds
        self._record = record

    def found(self, node: Node) -> list[Healer]:
        """Return who else repairs the node. A kind that cannot be looked up counts as found: `stand_back` asks it again."""
        found: list[Healer] = []
        for kind in self._kinds:
            try:
                found += kind.found(node)
            except HotspareError as error:
                doubt = f"{UNKNOWN.doubt}: {error}"
                found += [] if UNKNOWN.kind in {one.kind for one in found} else [UNKNOWN.model_copy(update={"doubt": doubt})]
        return found

    def stand_back(self, node: Node, incident: str) -> str:
        """Tell every kind. Where one cannot be told, those that were told in this call are released, and its reason is raised.

        One that may be told later (TransientError) leaves the others as they are: the next attempt goes on.
        """
        for kind in self._kinds:
            kind.found(node)  # raises before anybody is told
        before = self._record.kinds(node, incident)
        said = []
        for kind in self._kinds:
            try:
                said.append(kind.stand_back(node, incident))
            except FinalError as error:
                self._release_again(node, incident, before, error)
                raise
        return "; ".join(filter(None, said)) or f"nobody else repairs {node.name}"

    def release(self, node: Node, incident: str) -> str:
        """Release every kind, also when another fails; the first failure that can be mended by trying again is raised first."""
        said, failed = [], []
        for kind in self._kinds:
            try:
                said.append(kind.release(node, incident))
            except HotspareError as error:
                failed.append(error)
        if failed:
            worst = next((one for one in failed if isinstance(one, TransientError)), failed[0])
            raise type(worst)("; ".join(dict.fromkeys(map(str, failed))))
        return "; ".join(filter(None, said)) or f"{node.name}: nobody stands back for {incident}"

    def _release_again(self, node: Node, incident: str, before: set[str], error: FinalError) -> None:
        told_now = self._record.kinds(node, incident) - before
        for kind in self._kinds:
            if kind.kind in told_now:
                try:
                    kind.release(node, incident)
                except HotspareError as another:
                    error.add_note(f"{kind.kind} was told, and could not be released: {another}")
