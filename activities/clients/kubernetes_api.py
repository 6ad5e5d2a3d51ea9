"""The Kubernetes API through the official client's configuration and connections; objects stay JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubernetes.client import ApiClient

from activities.clients.kubernetes_http import MERGE_PATCH, KubernetesHttp, Refused, explained, path_of
from activities.clients.kubernetes_watch import Event, Watch
from activities.errors import ProviderBusy
from activities.kubernetes import POD, Access, Blocked, Kind, Object

PAGE = 500
"""Objects a page. Source: what kubectl asks for."""

LIST_TRIES = 3
"""How often a list is begun anew when the server forgets its place between two pages. Hotspare default."""

REVIEWS = Kind("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False)

Objects = list[Object]

_BUDGET = re.compile(r"disruption budget (\S+)")
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


class KubernetesClient:
    """`KubernetesApi` on a real API server. Every request has a time limit; none that changes something is sent twice."""

    def __init__(self, api: ApiClient | Callable[[], ApiClient], timeout_s: float) -> None:
        """`api` may be a function that opens it at the first request, and again after one that failed."""
        self._http = KubernetesHttp(api, timeout_s)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        with _explaining(f"read {kind.name} {name}", kind):
            try:
                found: Object = self._http.get(path_of(kind, namespace, name))
            except Refused as refused:
                if refused.code == 404 and refused.names_object:
                    return None
                raise
            return found

    def list(self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", cached: bool = False) -> list[Object]:
        return self._list(kind, namespace, labels, fields, cached)[0]

    def create(self, kind: Kind, body: Object, namespace: str = "") -> Object:
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        with _explaining(f"create {kind.name} {body.get('metadata', {}).get('name', '')}", kind):
            made: Object = self._http.send("POST", path_of(kind, namespace), whole)
            return made

    def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        with _explaining(f"change {kind.name} {name}", kind):
            path = path_of(kind, namespace, name, subresource)
            changed: Object = self._http.send("PATCH", path, body, content_type=MERGE_PATCH)
            return changed

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, uid: str = "", orphans: bool = False
    ) -> None:
        options = _deletion(grace_s, uid) | {"propagationPolicy": "Orphan" if orphans else "Background"}
        with _explaining(f"delete {kind.name} {name}", kind):
            try:
                self._http.send("DELETE", path_of(kind, namespace, name), options)
            except Refused as refused:
                if not _is_gone(refused, uid):
                    raise

    def evict(self, pod: str, namespace: str, *, grace_s: int | None = None, uid: str = "") -> Blocked | None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": _deletion(grace_s, uid),
        }
        with _explaining(f"evict pod {namespace}/{pod}", POD):
            try:
                self._http.send("POST", path_of(POD, namespace, pod, "eviction"), body)
            except Refused as refused:
                if _is_gone(refused, uid):
                    return None
                return _blocked(refused)
            return None

    def watch(self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "", deadline_s: float) -> Iterator[Event]:
        selectors: dict[str, object] = {"labelSelector": labels, "fieldSelector": fields}
        return Watch(self._http, kind, namespace, selectors, lambda: self._list(kind, namespace, labels, fields)).events(
            deadline_s
        )

    def allowed(self, question: Access) -> bool:
        group, _, _ = question.kind.api_version.rpartition("/")
        attributes = {"verb": question.verb, "group": group, "resource": question.kind.plural}
        attributes |= {"namespace": question.namespace, "subresource": question.subresource}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.name, "spec": {"resourceAttributes": attributes}}
        with _explaining(f"ask whether we may {question.verb} {question.kind.plural}"):
            return bool(self._http.send("POST", path_of(REVIEWS), body).get("status", {}).get("allowed"))

    def version(self) -> str:
        with _explaining("read the version"):
            return str(self._http.get("/version")["gitVersion"])

    def _list(self, kind: Kind, namespace: str, labels: str, fields: str, cached: bool = False) -> tuple[Objects, str]:
        selectors: dict[str, object] = {"labelSelector": labels, "fieldSelector": fields}
        # Version 0 is "any": the API server answers out of its memory, in one page.
        selectors |= {"resourceVersion": "0"} if cached else {"limit": PAGE}
        with _explaining(f"list {kind.plural}", kind):
            for _ in range(LIST_TRIES):
                try:
                    return self._pages(kind, namespace, selectors)
                except Refused as refused:
                    if refused.code != 410:
                        raise
        raise ProviderBusy(f"Kubernetes: list {kind.plural}: the server forgot its place {LIST_TRIES} times")

    def _pages(self, kind: Kind, namespace: str, selectors: dict[str, object]) -> tuple[Objects, str]:
        items: Objects = []
        place = ""
        while True:
            answer = self._http.get(path_of(kind, namespace), selectors | {"continue": place})
            # Items of a list come without their kind, unlike those of a watch.
            items += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in answer.get("items") or []]
            place = answer["metadata"].get("continue", "")
            if not place:
                return items, str(answer["metadata"]["resourceVersion"])


@contextmanager
def _explaining(what: str, kind: Kind | None = None) -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        raise explained(what, refused, kind) from refused


def _deletion(grace_s: int | None, uid: str) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options | ({"preconditions": {"uid": uid}} if uid else {})


def _is_gone(refused: Refused, uid: str) -> bool:
    """Whether the object meant is not there: no such name, or another object has it."""
    return (refused.code == 404 and refused.names_object) or (refused.code == 409 and bool(uid))


def _blocked(refused: Refused) -> Blocked:
    """Return what forbids an eviction; raises the refusal where that is no budget."""
    cause = refused.cause("DisruptionBudget")
    if refused.code == 429 and cause is not None:
        named = _BUDGET.search(cause)
        return Blocked(named.group(1) if named else "", cause or refused.message)
    if refused.code == 500 and _SEVERAL_BUDGETS in refused.message:
        return Blocked("", refused.message)
    raise refused
