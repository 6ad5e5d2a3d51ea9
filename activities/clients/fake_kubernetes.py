"""Kubernetes in memory, for tests: resource versions and conflicts, selectors, watches, disruption budgets. Safe for threads.

Every verb passes a point named "<verb> <plural>" ("patch nodes"), of the object's name, so a test can hold it or make it fail.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, TypeVar

from activities.clients.fake_kubernetes_rules import budgets_against, matches, merge, status_only
from activities.clients.fake_points import Points
from activities.errors import BadInput, CapabilityMissing, NodeUnreachable, PreconditionFailed
from activities.kubernetes import NODE, POD, Access, Blocked, Kind, Object

T = TypeVar("T")

IDLE_S = 0.05
"""Seconds after which a watch with no news lets its caller look up."""

Address = tuple[str, str]
"""Namespace and name."""

Objects = list[Object]
News = list[tuple[str, Object]]


class FakeKubernetes:
    """`KubernetesApi` without a server.

    A pod whose name is in `lingering` stays, marked as being deleted, as one does on a node whose kubelet is dead; so does what
    has a finalizer, until the last one is taken off. The API server is `down` while that is set; a kind in `missing` is one whose
    CRD is not installed; what is in `refused` is not `allowed`.
    """

    def __init__(self) -> None:
        self.points = Points()
        self.down = False
        self.missing: set[Kind] = set()
        self.refused: set[Access] = set()
        self.lingering: set[str] = set()
        self._objects: dict[Kind, dict[Address, Object]] = {}
        self._changed = threading.Condition()
        self._version = 0
        self._log: list[tuple[int, Kind, Address]] = []

    # Verbs.

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        return self._do("get", kind, name, lambda: deepcopy(self._all(kind).get((namespace, name))))

    def list(self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", cached: bool = False) -> list[Object]:
        return self._do("list", kind, namespace, lambda: self._matching(kind, namespace, labels, fields))

    def create(self, kind: Kind, body: Object, namespace: str = "") -> Object:
        item = deepcopy(body)
        item.pop("status", None)
        meta = item.setdefault("metadata", {})
        if "name" not in meta:
            meta["name"] = f"{meta.get('generateName', '')}{uuid.uuid4().hex[:5]}"
        if kind.namespaced and not namespace:
            raise BadInput(f"{kind.name} {meta['name']}: an empty namespace may not be set during creation")

        def create() -> Object:
            if (namespace, meta["name"]) in self._all(kind):
                raise PreconditionFailed(f"{kind.plural} {meta['name']!r} already exists")
            return self._store(kind, item, namespace)

        return self._do("create", kind, meta["name"], create)

    def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        return self._do("patch", kind, name, lambda: self._patched(kind, name, body, namespace, subresource))

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = "", orphans: bool = False
    ) -> None:
        def delete() -> None:
            item = self._all(kind).get((namespace, name))
            if item is not None and uid in ("", item["metadata"]["uid"]):
                self._let_go(kind, item, force=grace_s == 0, orphans=orphans)

        self._do("delete", kind, name, delete)

    def evict(self, pod: str, namespace: str, *, grace_s: int | None = None, uid: str = "") -> Blocked | None:
        def evict() -> Blocked | None:
            item = self._all(POD).get((namespace, pod))
            if item is None or uid not in ("", item["metadata"]["uid"]):
                return None
            blocked = budgets_against(item, self._objects)
            if blocked is None:
                self._let_go(POD, item, force=grace_s == 0)
            return blocked

        return self._do("evict", POD, pod, evict)

    def watch(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", deadline_s: float
    ) -> Iterator[tuple[str, Object]]:
        until = time.monotonic() + deadline_s
        at, items = self._do("watch", kind, namespace, lambda: (len(self._log), self._matching(kind, namespace, labels, fields)))
        known = {_address(item): item for item in items}
        yield from (("ADDED", item) for item in items)
        while time.monotonic() < until:
            with self._changed:
                if at == len(self._log):
                    self._changed.wait(IDLE_S)
                changed, at = {address for _, of, address in self._log[at:] if of == kind}, len(self._log)
                now = {_address(item): item for item in self._matching(kind, namespace, labels, fields)}
            news = _news(changed, known, now)
            known = now
            yield from news or [("", {})]

    def allowed(self, question: Access) -> bool:
        return self._do("allowed", question.kind, question.verb, lambda: question not in self.refused)

    def version(self) -> str:
        return "v1.36.0-fake"

    # What a test arranges.

    def put(self, kind: Kind, body: Object, namespace: str = "") -> Object:
        """Store an object as it stands, status and all, over one that is there."""
        with self._changed:
            return self._store(kind, deepcopy(body), namespace)

    def add_node(self, name: str, instance_id: str = "", *, gpus: int = 8, ready: bool = True, **labels: str) -> Object:
        """Store a Node with all its GPUs allocatable."""
        count = {"nvidia.com/gpu": str(gpus)}
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}, "annotations": {}},
            "spec": {"providerID": f"aws:///us-east-1a/{instance_id}"} if instance_id else {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
                "capacity": dict(count),
                "allocatable": dict(count),
            },
        }
        return self.put(NODE, node)

    def add_pod(
        self,
        name: str,
        node: str,
        namespace: str = "default",
        *,
        owner: tuple[str, str, str] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        phase: str = "Running",
    ) -> Object:
        """Store a pod that is bound to a node; `owner` is the kind, name and uid of its controller."""
        meta: dict[str, Any] = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        if owner:
            meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "uid": owner[2], "controller": True}]
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        return self.put(
            POD, {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": ready}}, namespace
        )

    def set_status(self, kind: Kind, name: str, namespace: str = "", **status: Any) -> None:
        """Merge into an object's status, as its controller would."""
        with self._changed:
            self._patched(kind, name, {"status": status}, namespace, "status")

    # Inside.

    def _do(self, verb: str, kind: Kind, name: str, effect: Callable[[], T]) -> T:
        def locked() -> T:
            with self._changed:
                return effect()

        if self.down:
            raise NodeUnreachable("the Kubernetes API server does not answer")
        if kind in self.missing:
            raise CapabilityMissing(f"the API server does not know {kind.name} ({kind.api_version}): its CRD is not installed")
        return self.points.carry_out(f"{verb} {kind.plural}", name, locked)

    def _all(self, kind: Kind) -> dict[Address, Object]:
        return self._objects.setdefault(kind, {})

    def _matching(self, kind: Kind, namespace: str, labels: str, fields: str) -> Objects:
        items = sorted(self._all(kind).items())
        return [deepcopy(item) for (of, _), item in items if namespace in ("", of) and matches(item, labels, fields)]

    def _store(self, kind: Kind, item: Object, namespace: str) -> Object:
        item = {"apiVersion": kind.api_version, "kind": kind.name, **item}
        meta = item.setdefault("metadata", {})
        before = self._all(kind).get((namespace, meta["name"]))
        meta.setdefault("uid", before["metadata"]["uid"] if before else str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", _now())
        if namespace:
            meta["namespace"] = namespace
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self._all(kind)[namespace, meta["name"]] = item
        self._tell(kind, (namespace, meta["name"]))
        return deepcopy(item)

    def _patched(self, kind: Kind, name: str, body: Object, namespace: str, subresource: str) -> Object:
        before = self._all(kind).get((namespace, name))
        if before is None:
            raise PreconditionFailed(f"{kind.plural} {name!r} not found")
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected not in (None, before["metadata"]["resourceVersion"]):
            raise PreconditionFailed(f"Operation cannot be fulfilled on {kind.plural} {name!r}: the object has been modified")
        after = (
            status_only(before, body)
            if subresource == "status"
            else merge(before, {key: value for key, value in body.items() if key != "status"})
        )
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if after == before:
            return deepcopy(before)
        if after["metadata"].get("deletionTimestamp") and before["metadata"].get("finalizers") and not _finalizers(after):
            self._forget(kind, (namespace, name))
            return deepcopy(after)
        return self._store(kind, after, namespace)

    def _let_go(self, kind: Kind, item: Object, *, force: bool, orphans: bool = False) -> None:
        address = _address(item)
        if _finalizers(item) or (kind == POD and address[1] in self.lingering and not force):
            if "deletionTimestamp" not in item["metadata"]:
                item["metadata"]["deletionTimestamp"] = _now()
                self._store(kind, item, address[0])
            return
        self._forget(kind, address)
        if not orphans:
            self._forget_children(item["metadata"]["uid"])

    def _forget_children(self, uid: str) -> None:
        for kind, items in tuple(self._objects.items()):
            for item in tuple(items.values()):
                if uid in [owner.get("uid") for owner in item["metadata"].get("ownerReferences", [])]:
                    self._let_go(kind, item, force=False)

    def _forget(self, kind: Kind, address: Address) -> None:
        if self._all(kind).pop(address, None) is not None:
            self._version += 1
            self._tell(kind, address)

    def _tell(self, kind: Kind, address: Address) -> None:
        self._log.append((self._version, kind, address))
        self._changed.notify_all()


def _address(item: Object) -> Address:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _finalizers(item: Object) -> list[str]:
    return list(item["metadata"].get("finalizers") or [])


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _news(changed: set[Address], known: dict[Address, Object], now: dict[Address, Object]) -> News:
    news: News = []
    for address in sorted(changed):
        if address in now:
            news.append(("MODIFIED" if address in known else "ADDED", now[address]))
        elif address in known:
            news.append(("DELETED", known[address]))
    return news
