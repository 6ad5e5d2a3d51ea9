"""The manifests on a real API server: taken as they are, and granting just what the table of operations says that they grant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.clients.kubernetes_api import KubernetesClient
from activities.errors import AccessRefused
from activities.kubernetes import NODE, Access, Kind
from activities.kubernetes_marks import KubernetesMarks
from activities.kubernetes_nodes import KubernetesNodes
from infra.lab.kube.control_plane import KubectlFailed
from tests.activities import rbac
from tests.activities.kubernetes_contract import OURS
from tests.activities.kubernetes_world import GPU, ListedNodes, World
from tests.activities.rbac import MANIFESTS, Grant, grants_of
from tests.clusters.loop_plane import OBSERVER, WORKER, Plane

FILES = sorted(MANIFESTS.glob("*.yaml"))
DRY = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f")
ROLES = "/apis/rbac.authorization.k8s.io/v1"
VERBS = ("get", "list", "watch", "create", "patch", "update", "delete", "deletecollection")
PLACES = ("", "hotspare", "default", "kube-system")
MORE = ("poddisruptionbudgets.policy", "serviceaccounts", "daemonsets.apps", "pods/exec", "roles.rbac.authorization.k8s.io")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    plane = Plane(tmp_path_factory.mktemp("plane"), node_grace_s=3600.0)  # no kubelet renews these nodes
    plane.do(plane.real.apply(MANIFESTS / "agent.yaml"))
    yield plane
    plane.close()


@pytest.fixture
def worker(plane: Plane) -> Iterator[KubernetesClient]:
    client = plane.client(WORKER)
    yield client
    client.close()


def access(grant: Grant) -> Access:
    """The question whether a grant is given."""
    whole, _, subresource = grant.resource.partition("/")
    plural, _, group = whole.partition(".")
    return Access(grant.verb, Kind(f"{group}/v1" if group else "v1", plural, plural), grant.namespace, subresource)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_api_server_takes_a_manifest_as_it_is(plane: Plane, file: Path) -> None:
    said = plane.do(plane.real.kubectl(*DRY, str(file)))
    lines = said.splitlines()
    assert lines
    assert all(line.endswith("serverside-applied (server dry run)") for line in lines), said


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("rbac.yaml", "verbs:", "verb:"),
        ("agent.yaml", "hostNetwork: true", "hostNetworks: true"),
        ("namespace.yaml", "kind: ServiceAccount", "kind: ServiceAcount"),
    ],
)
def test_a_word_that_kubernetes_does_not_know_is_refused(plane: Plane, name: str, right: str, wrong: str) -> None:
    text = (MANIFESTS / name).read_text()
    assert right in text
    with pytest.raises(KubectlFailed):
        plane.do(plane.real.kubectl(*DRY, "-", input=text.replace(right, wrong, 1)))


@pytest.mark.parametrize(("user", "subject"), [(WORKER, rbac.WORKER), (OBSERVER, rbac.OBSERVER)])
def test_the_api_server_allows_what_the_manifests_were_read_to_grant_and_nothing_else(
    plane: Plane, user: str, subject: str
) -> None:
    """So that what is proved of every operation in memory holds on a cluster."""
    granted = grants_of(subject)
    resources = sorted({grant.resource for grant in grants_of(rbac.WORKER)} | set(MORE))
    client = plane.client(user)
    wrong = []
    for resource, verb, place in itertools.product(resources, VERBS, PLACES):
        said = bool({Grant(resource, verb), Grant(resource, verb, place)} & granted)
        if client.allowed(access(Grant(resource, verb, place))) is not said:
            wrong.append((resource, verb, place, said))
    client.close()
    assert wrong == []


@pytest.mark.parametrize("grant", sorted(grants_of(rbac.WORKER)), ids=str)
def test_a_grant_that_is_taken_away_is_given_by_nothing_else(plane: Plane, worker: KubernetesClient, grant: Grant) -> None:
    question = access(grant)
    assert worker.allowed(question)
    before = take_away(plane, grant)
    try:
        until(worker, question, allowed=False)
    finally:
        give_back(plane, before)
    until(worker, question, allowed=True)


def test_without_the_grant_to_change_nodes_none_is_quarantined(plane: Plane, worker: KubernetesClient) -> None:
    admin = plane.client("admin")
    world = World(admin)
    node, patch = world.node("n1"), Grant("nodes", "patch")
    marks = KubernetesMarks(KubernetesNodes(worker), ListedNodes(node), GPU)
    before = take_away(plane, patch)
    try:
        until(worker, access(patch), allowed=False)
        with pytest.raises(AccessRefused, match=r"nodes.*infra/kubernetes"):
            marks.write(node, OURS)
    finally:
        give_back(plane, before)
    until(worker, access(patch), allowed=True)
    marks.write(node, OURS)
    assert marks.read(node) == OURS
    admin.delete(NODE, "ip-n1")
    admin.close()


def take_away(plane: Plane, grant: Grant) -> list[dict[str, Any]]:
    """Take one verb on one resource out of every role of ours that has it; returns these roles as they were."""
    plural, group = access(grant).kind.plural, access(grant).kind.api_version.rpartition("/")[0]
    resource = plural + (f"/{access(grant).subresource}" if access(grant).subresource else "")
    places = [f"{ROLES}/namespaces/{grant.namespace}/roles" if grant.namespace else f"{ROLES}/clusterroles"]
    before = []
    for path in places:
        for role in plane.do(plane.real.request("GET", path))["items"]:
            if not role["metadata"]["name"].startswith("hotspare"):
                continue
            rules = [one for rule in role["rules"] for one in _without(rule, group, resource, grant.verb)]
            if rules != role["rules"]:
                before.append({"path": f"{path}/{role['metadata']['name']}", "rules": role["rules"]})
                change(plane, before[-1]["path"], rules)
    assert before, f"no role grants {grant}"
    return before


def give_back(plane: Plane, before: list[dict[str, Any]]) -> None:
    for one in before:
        change(plane, one["path"], one["rules"])


def change(plane: Plane, path: str, rules: list[dict[str, Any]]) -> None:
    plane.do(plane.real.request("PATCH", path, {"rules": rules}, content_type="application/merge-patch+json"))


def _without(rule: dict[str, Any], group: str, resource: str, verb: str) -> list[dict[str, Any]]:
    """The rule split, so that it no longer grants one verb on one resource."""
    if group not in rule["apiGroups"] or resource not in rule["resources"] or verb not in rule["verbs"]:
        return [rule]
    others = [one for one in rule["resources"] if one != resource]
    verbs = [one for one in rule["verbs"] if one != verb]
    kept = [{**rule, "resources": others}] if others else []
    return [*kept, *([{**rule, "resources": [resource], "verbs": verbs}] if verbs else [])]


def until(client: KubernetesClient, question: Access, *, allowed: bool) -> None:
    """Wait until the API server has taken in a change of roles; the test's own time limit ends a wait in vain."""
    while client.allowed(question) is not allowed:
        pass
