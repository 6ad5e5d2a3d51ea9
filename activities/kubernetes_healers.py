"""Healers whose switch is a label or an annotation of the Node: what they share, which is the record of what was there before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from activities import names
from activities.clock import Clock, SystemClock, beat
from activities.effects import refuse_if_late
from activities.errors import FinalError, NotOurs, PreconditionFailed, ProviderBusy
from activities.inventory import Node
from activities.kubernetes import NODE, KubernetesApi, Object, annotations_of
from activities.kubernetes_nodes import KubernetesNodes, ec2_id
from activities.stood_back import StoodBack

CACHE_S = 10.0
"""How long the list of Nodes may be used again. Hotspare default: as the inventory's."""

TRIES = 5
"""Writes that lose against another writer before the activity is tried anew. Hotspare default: kubectl's own number."""


class NodeObjects:
    """The Node objects of nodes: from a list that is used for a while, or as they are now."""

    def __init__(self, api: KubernetesApi, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._nodes = KubernetesNodes(api, self._clock)
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._items: dict[str, Object] = {}

    def seen(self, node: Node) -> Object | None:
        """Return the object from a list that is some seconds old at most. Raises NodeUnreachable when the API does not answer."""
        with self._lock:
            now = self._clock.now()
            if self._read_at is None or not 0 <= now - self._read_at < CACHE_S:
                self._items = {ec2_id(item): item for item in self._nodes.all()}
                self._read_at = now
            return self._items.get(node.instance_id)

    def fresh(self, node: Node) -> Object | None:
        """Return the object as it is now."""
        return self._nodes.find(node)


@dataclass(frozen=True)
class Switch:
    """A label or an annotation that makes a healer stand back. `place` is "labels" or "annotations"."""

    place: str
    key: str
    value: str


class NodeSwitches:
    """Sets the switches of one kind of healer and puts back what was there, in one write each with the record of it.

    A write is refused when the Node has changed since it was read; it is then read, and judged, again.
    """

    def __init__(self, api: KubernetesApi, nodes: NodeObjects, record: StoodBack, kind: str, slug: str) -> None:
        self._api = api
        self._nodes = nodes
        self._record = record
        self._kind = kind
        self._key = f"{names.KUBE_STOOD_BACK}-{slug}"

    def set(self, node: Node, incident: str, switches: Sequence[Switch], judge: Callable[[Object], None]) -> None:
        """Set the switches, unless `judge` raises on the Node as it is. NotOurs where another incident has set them."""

        def change(item: Object) -> Object | None:
            held = self._held(item, node, incident)
            judge(item)
            if held is not None and all(_at(item, one.place).get(one.key) == one.value for one in switches):
                return None
            before = {f"{one.place} {one.key}": _at(item, one.place).get(one.key) for one in switches} | (held or {})
            wanted = _written([(one.place, one.key, one.value) for one in switches])
            wanted["annotations"][self._key] = json.dumps({"incident": incident, "before": before})
            return wanted

        item = self._nodes.fresh(node)
        if item is None:
            return
        self._held(item, node, incident)
        judge(item)
        known = self._kind in self._record.kinds(node, incident)
        self._record.add(node, incident, self._kind)
        try:
            self._write(node, change)
        except FinalError:
            if not known:
                self._record.remove(node, incident, self._kind)
            raise

    def restore(self, node: Node, incident: str, switches: Sequence[Switch]) -> bool:
        """Put back what was there before; what somebody has changed since stays. Returns whether there was anything to do."""
        ours = {f"{one.place} {one.key}": one.value for one in switches}

        def change(item: Object) -> Object | None:
            held = self._held(item, node, incident)
            if held is None:
                return None
            back = []
            for name, before in held.items():
                place, _, key = name.partition(" ")
                if _at(item, place).get(key) == ours.get(name):
                    back.append((place, key, before))
            wanted = _written(back)
            wanted["annotations"][self._key] = None
            return wanted

        did = self._write(node, change)
        known = self._kind in self._record.kinds(node, incident)
        if known:
            self._record.remove(node, incident, self._kind)
        return did or known

    def _write(self, node: Node, change: Callable[[Object], Object | None]) -> bool:
        for _ in range(TRIES):
            item = self._nodes.fresh(node)
            wanted = change(item) if item else None
            if item is None or wanted is None:
                return False
            refuse_if_late()
            meta = {**wanted, "resourceVersion": item["metadata"]["resourceVersion"]}
            try:
                self._api.patch(NODE, item["metadata"]["name"], {"metadata": meta})
            except PreconditionFailed:
                beat(f"{node.name} has changed meanwhile")
                continue
            return True
        raise ProviderBusy(f"the Node of {node.name} was changed by others {TRIES} times just before it was written")

    def _held(self, item: Object, node: Node, incident: str) -> dict[str, str | None] | None:
        text = annotations_of(item).get(self._key)
        if text is None:
            return None
        try:
            record = json.loads(text)
            owner, before = record["incident"], dict(record["before"])
        except (ValueError, KeyError, TypeError) as error:
            raise NotOurs(f"annotation {self._key} of {node.name} was not written by Hotspare: {text[:200]!r}") from error
        if owner != incident:
            raise NotOurs(f"{self._kind} stands back from {node.name} for {owner}; {incident} leaves that as it is")
        return before


def _at(item: Object, place: str) -> dict[str, str]:
    return dict(item.get("metadata", {}).get(place) or {})


def _written(values: Sequence[tuple[str, str, str | None]]) -> Object:
    wanted: Object = {"labels": {}, "annotations": {}}
    for place, key, value in values:
        wanted[place][key] = value
    return wanted
