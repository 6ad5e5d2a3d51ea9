"""What the manifests grant, one permission at a time, and a Kubernetes in memory that keeps to it as the API server does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

import infra.kubernetes
from activities.errors import AccessRefused
from activities.kubernetes import POD, Access, Blocked, Kind, KubernetesApi, Object

MANIFESTS = Path(infra.kubernetes.__path__[0])
WORKER, OBSERVER, RUN = "hotspare:k8s", "hotspare:observe", "hotspare-run"
"""Who is granted something: the groups of workers and of those who look, and the service account of runs on nodes."""


@dataclass(frozen=True, order=True)
class Grant:
    """One verb on one resource ("pods/eviction", with its API group unless that is the core), in one namespace or in all."""

    resource: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" in {self.namespace}" if self.namespace else "")


def documents() -> list[dict[str, Any]]:
    """Every object of the manifests."""
    return [one for file in sorted(MANIFESTS.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text()) if one]


def grants_of(subject: str) -> set[Grant]:
    """What the bindings give to a group, or to a service account of Hotspare's namespace."""
    every = documents()
    roles = {(one["kind"], one["metadata"]["name"]): one for one in every if one["kind"] in ("Role", "ClusterRole")}
    found: set[Grant] = set()
    for one in every:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding") and subject in {who["name"] for who in one["subjects"]}:
            role = roles[one["roleRef"]["kind"], one["roleRef"]["name"]]
            found.update(_grants(role["rules"], one["metadata"].get("namespace", "")))
    return found


def _grants(rules: Iterable[dict[str, Any]], namespace: str) -> Iterator[Grant]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Grant(f"{resource}.{group}" if group else resource, verb, namespace)


class GuardedKubernetes:
    """`KubernetesApi` of somebody who has just these grants. `refused` are the calls that were not allowed."""

    def __init__(self, api: KubernetesApi, grants: Iterable[Grant]) -> None:
        self._api, self._grants = api, frozenset(grants)
        self.refused: set[tuple[str, str]] = set()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self._check("get", kind, namespace)
        return self._api.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str = "", **selectors: Any) -> list[Object]:
        self._check("list", kind, namespace)
        return self._api.list(kind, namespace, **selectors)

    def create(self, kind: Kind, body: Object, namespace: str = "") -> Object:
        self._check("create", kind, namespace)
        return self._api.create(kind, body, namespace)

    def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        self._check("patch", kind, namespace, subresource)
        return self._api.patch(kind, name, body, namespace, subresource=subresource)

    def delete(self, kind: Kind, name: str, namespace: str = "", **how: Any) -> None:
        self._check("delete", kind, namespace)
        self._api.delete(kind, name, namespace, **how)

    def evict(self, pod: str, namespace: str, **how: Any) -> Blocked | None:
        self._check("create", POD, namespace, "eviction")
        return self._api.evict(pod, namespace, **how)

    def watch(self, kind: Kind, namespace: str = "", **how: Any) -> Iterator[tuple[str, Object]]:
        self._check("list", kind, namespace)
        self._check("watch", kind, namespace)
        return self._api.watch(kind, namespace, **how)

    def allowed(self, question: Access) -> bool:
        return self._api.allowed(question)  # everybody may ask what he himself may do

    def version(self) -> str:
        return self._api.version()  # everybody who is known there may read it

    def _check(self, verb: str, kind: Kind, namespace: str, subresource: str = "") -> None:
        group = kind.api_version.rpartition("/")[0]
        resource = kind.plural + (f"/{subresource}" if subresource else "")
        resource = f"{resource}.{group}" if group else resource
        wanted = {Grant(resource, verb), *([Grant(resource, verb, namespace)] if namespace else [])}
        if not wanted & self._grants:
            self.refused.add((resource, verb))
            raise AccessRefused(f"Kubernetes: may not {verb} {resource} in {namespace or 'all namespaces'}; infra/kubernetes")
