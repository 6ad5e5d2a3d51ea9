"""Which Kubernetes Node an EC2 instance is, and back: by provider id, never by a name that two machines may have had."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

from activities.clock import Clock, SystemClock
from activities.errors import PreconditionFailed, ProviderBusy, UnknownNode
from activities.inventory import Inventory, Node
from activities.kubernetes import NODE, KubernetesApi, Object, instance_id_of

CACHE_S = 10.0
"""Seconds for which a name found in a list of nodes is reused; the Node is read anew. Hotspare default: as inventory.cache_s."""

NAMED_AT_MOST = 16
"""How many Nodes are read one by one; more are read as one list. Hotspare default: a Node is 11 kB and 5 ms, and the list of a
cluster with 1,000 of them 11 MB and a second (tests/bench/test_kubernetes_cost.py)."""

CHANGE_TRIES = 5
"""How often a change of a Node is made anew after somebody else has changed it. Hotspare default."""

_INSTANCE = re.compile(r"(?:^|[/-])(i-[0-9A-Za-z]+)$")
_HYPERPOD = "hyperpod-"


def ec2_id(node: Object) -> str:
    """Return the EC2 instance id of a Kubernetes Node, empty where it has none. HyperPod puts the id behind names of its own."""
    name = str(node["metadata"]["name"])
    found = _INSTANCE.search(instance_id_of(node)) or (_INSTANCE.search(name) if name.startswith(_HYPERPOD) else None)
    return found.group(1) if found else ""


class KubernetesNodes:
    """Finds Nodes by instance id, and changes them without undoing what others change."""

    def __init__(self, api: KubernetesApi, clock: Clock | None = None) -> None:
        self._api = api
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._seen: dict[str, tuple[str, float]] = {}
        self._listed_at = float("-inf")

    def find(self, node: Node) -> Object | None:
        """Return the Node of an instance as it is now, None where none has its id."""
        with self._lock:
            name = self._names.get(node.instance_id, "")
        found = self._api.get(NODE, name) if name else None
        if found is not None and ec2_id(found) == node.instance_id:
            return found
        return next((one for one in self._list() if ec2_id(one) == node.instance_id), None)

    def get(self, node: Node) -> Object:
        """Return the Node of an instance; raises UnknownNode where none has its id."""
        found = self.find(node)
        if found is None:
            raise UnknownNode(
                f"Kubernetes has no Node whose spec.providerID ends in {node.instance_id} ({node.name}): it has not joined, or "
                "was removed with its instance; see: kubectl get nodes -o custom-columns=NAME:.metadata.name,ID:.spec.providerID"
            )
        return found

    def name(self, node: Node) -> str:
        """Return the name of an instance's Node; raises UnknownNode. A name that was seen some time ago is proved by the Node."""
        with self._lock:
            fresh = self._clock.now() - self._listed_at < CACHE_S
            known = self._names.get(node.instance_id, "")
        return known if fresh and known else str(self.get(node)["metadata"]["name"])

    def all(self) -> list[Object]:
        """Return every Node."""
        return list(self._list())

    def named(self, names: Collection[str]) -> list[Object]:
        """Return the Nodes of these names that exist, without reading the whole cluster for a few."""
        if len(names) > NAMED_AT_MOST:
            return [one for one in self._list(cached=True) if one["metadata"]["name"] in names]
        found = [self._api.get(NODE, name) for name in sorted(names)]
        return [one for one in found if one is not None]

    def instance_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the EC2 instance ids of Nodes, by name; none for one that does not exist or has none. Known for some seconds."""
        now = self._clock.now()
        with self._lock:
            known = {name: self._seen[name][0] for name in names if name in self._seen and now - self._seen[name][1] < CACHE_S}
        unknown = [name for name in names if name not in known]
        found = {str(one["metadata"]["name"]): ec2_id(one) for one in self.named(unknown)} if unknown else {}
        with self._lock:
            self._seen.update({name: (instance_id, now) for name, instance_id in found.items()})
        return {name: instance_id for name, instance_id in {**known, **found}.items() if instance_id}

    def labelled(self, key: str, value: str) -> list[Object]:
        """Return the Nodes with this label."""
        return self._api.list(NODE, labels=f"{key}={value}")

    def change(self, node: Node, change: Callable[[Object], Object | None]) -> Object:
        """Merge into a Node what `change` makes of it (None: nothing to do), only if nobody has changed it meanwhile.

        Returns the Node as it is then. Raises UnknownNode, and ProviderBusy where others do not stop changing it.
        """
        for _ in range(CHANGE_TRIES):
            found = self.get(node)
            body = change(found)
            if body is None:
                return found
            meta = {**body.get("metadata", {}), "resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                return self._api.patch(NODE, found["metadata"]["name"], {**body, "metadata": meta})
            except PreconditionFailed:
                continue
        raise ProviderBusy(f"the Node of {node.name} was changed by others {CHANGE_TRIES} times while we tried to")

    def _list(self, *, cached: bool = False) -> Iterable[Object]:
        nodes = self._api.list(NODE, cached=cached)
        with self._lock:
            now = self._clock.now()
            self._names = {ec2_id(one): str(one["metadata"]["name"]) for one in nodes}
            self._seen = {name: (instance_id, now) for instance_id, name in self._names.items()}
            self._listed_at = now
        return nodes


def inventory_names(nodes: Iterable[Object], inventory: Inventory) -> dict[str, Node]:
    """Return the inventory's node for each Kubernetes Node that it has, by the latter's name."""
    known = {node.instance_id: node for node in inventory.list("")}
    return {str(one["metadata"]["name"]): known[ec2_id(one)] for one in nodes if ec2_id(one) in known}


def is_ready(node: Object) -> bool:
    """Whether the kubelet says that the node works."""
    conditions: list[dict[str, Any]] = node.get("status", {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def gpus(node: Object, resource: str, of: str = "allocatable") -> int:
    """Return how many GPUs of a node the scheduler can hand out, or (`of="capacity"`) how many the device plugin has seen."""
    return int((node.get("status", {}).get(of) or {}).get(resource) or 0)
