"""What every inventory does alike: keeps an answer for some seconds, and resolves aliases in it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from activities.clients.aliases import KnownNode, resolve_alias
from activities.errors import UnknownNode
from activities.inventory import Node


class CachedInventory(ABC):
    """Base of inventories that ask somebody. `cluster` is the one that an empty cluster name means."""

    def __init__(self, cluster: str, cache_s: float, now: Callable[[], float]) -> None:
        self._cluster, self._cache_s, self._now = cluster, cache_s, now
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Sequence[KnownNode]]] = {}

    @abstractmethod
    def _look(self, cluster: str) -> Sequence[KnownNode]:
        """Ask for the nodes of a cluster."""

    def resolve(self, cluster: str, alias: str) -> Node:
        """Look in the kept answer first; an alias that is not in it may be new, so it is looked for once more in a fresh one."""
        place = f"cluster {cluster or self._cluster}"
        try:
            return resolve_alias(self._known(cluster), alias, place)
        except UnknownNode:
            return resolve_alias(self._known(cluster, fresh=True), alias, place)

    def list(self, cluster: str) -> list[Node]:
        """Return every node, sorted by role and name."""
        return [entry.node for entry in self._known(cluster)]

    def _known(self, cluster: str, fresh: bool = False) -> Sequence[KnownNode]:
        wanted = cluster or self._cluster
        with self._lock:
            asked_at, known = self._kept.get(wanted, (0.0, ()))
            if known and not fresh and self._now() - asked_at < self._cache_s:
                return known
        asked_at = self._now()
        found = sorted(self._look(wanted), key=lambda entry: (entry.node.role, entry.node.name, entry.node.instance_id))
        with self._lock:
            self._kept[wanted] = (asked_at, found)
        return found
