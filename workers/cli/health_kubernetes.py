"""What `doctor` looks at in Kubernetes: does its API answer, do we have each right of the roles, is every node known?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import infra
from activities.errors import HotspareError
from activities.inventory import Node
from activities.kubernetes import NODE, Access, Kind, KubernetesApi, instance_id_of
from activities.names import ROLE_HEAD
from checks.model import Verdict
from workers.cli.common import many
from workers.cli.health import Line
from workers.credentials import observes
from workers.settings import Settings
from workers.wiring import Wiring

PART, RIGHTS = "Kubernetes", "Kubernetes rights"

NOT_EVERYWHERE = ("x-k8s.io", "kubeflow.org", "nvidia.com")
"""Ends of the API groups that a cluster may lack: there the missing right stops what uses them, and nothing else."""

OBSERVE, ACT = "hotspare-observe", "hotspare"
"""The roles in rbac.yaml: what is read, and what is changed."""


async def check_kubernetes(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> list[Line]:
    """Ask the API server about ourselves. Nothing is changed."""
    if settings.kubernetes.source == "none":
        return []
    try:
        assert wiring.kubernetes is not None  # only without a source
        return await asyncio.to_thread(lines_of, settings, wiring.kubernetes, nodes)
    except HotspareError as error:
        how = f'is kubernetes.source = "{settings.kubernetes.source}" right? try: kubectl auth whoami'
        return [Line(PART, Verdict.CRITICAL, str(error), how)]


def lines_of(settings: Settings, api: KubernetesApi, nodes: Sequence[Node]) -> list[Line]:
    """What the API server answers, judged."""
    return [Line(PART, Verdict.OK, f"{api.version()} answers"), *_rights(settings, api), _known(api, nodes)]


def questions(settings: Settings) -> list[Access]:
    """Everything that the roles of this release grant, as far as these settings use it, each once."""
    acts = not observes(settings.policy)
    in_pods = settings.access.kind == "agent" or settings.burn_in.launcher in ("kubernetes", "mpijob")
    asked: list[Access] = []
    for role in _roles():
        name, namespaced = role["metadata"]["name"], role["kind"] == "Role"
        if name == OBSERVE or (in_pods if namespaced else acts):
            asked += _of_role(role, settings.kubernetes.namespace if namespaced else "")
    return list(dict.fromkeys(asked))


def _roles() -> Iterator[dict[str, Any]]:
    from yaml import safe_load_all  # type: ignore[import-untyped]  # comes with the client of Kubernetes

    for document in safe_load_all((files(infra) / "kubernetes" / "rbac.yaml").read_text(encoding="utf-8")):
        if document and document["kind"] in ("ClusterRole", "Role"):
            yield document


def _of_role(role: dict[str, Any], namespace: str) -> Iterator[Access]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, _, subresource = resource.partition("/")
                kind = Kind(f"{group}/v1" if group else "v1", plural, plural)
                for verb in rule["verbs"]:
                    yield Access(verb, kind, namespace, subresource)


def _rights(settings: Settings, api: KubernetesApi) -> list[Line]:
    asked = questions(settings)
    refused = [one for one in asked if not api.allowed(one)]
    bad = [one for one in refused if not _group(one).endswith(NOT_EVERYWHERE)]
    others = [one for one in refused if one not in bad]
    how = "hotspare manifests DIR, then kubectl apply -f DIR/rbac.yaml, and bind the role to this login (docs/kubernetes.md)"
    lines = []
    if bad:
        lines.append(Line(RIGHTS, Verdict.CRITICAL, f"we may not {', '.join(map(_words, bad))}", how))
    if others:
        text = f"we may not {', '.join(map(_words, others))}"
        lines.append(Line(RIGHTS, Verdict.WARN, f"{text}: it matters where these kinds are used", how))
    return lines or [Line(RIGHTS, Verdict.OK, f"all {len(asked)} rights are there")]


def _known(api: KubernetesApi, nodes: Sequence[Node]) -> Line:
    """Nodes without a Node object can be neither cordoned nor drained."""
    known = {instance_id_of(item) for item in api.list(NODE, cached=True)}
    wanted = [node for node in nodes if node.role != ROLE_HEAD]
    missing = [node.name for node in wanted if node.instance_id not in known]
    if not missing:
        return Line(PART, Verdict.OK, f"{many(len(wanted), 'node')} known there by instance id")
    text = f"it has no Node for {', '.join(missing[:10])}{f' and {len(missing) - 10} more' if len(missing) > 10 else ''}"
    how = "let them join the cluster, or take their tag away: such a node can be neither cordoned nor drained"
    return Line(PART, Verdict.WARN, text, how)


def _group(access: Access) -> str:
    return access.kind.api_version.rpartition("/")[0]


def _words(access: Access) -> str:
    name = access.kind.plural + (f"/{access.subresource}" if access.subresource else "")
    group = _group(access)
    return f"{access.verb} {name}{f'.{group}' if group else ''}{f' in {access.namespace}' if access.namespace else ''}"
