"""Doctor's questions to a real API server, under the roles that are shipped, and under those that lack something."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from activities.inventory import Node
from activities.settings_access import AccessSettings
from activities.settings_jobs import KubernetesSettings
from checks.model import Verdict
from tests.clusters.loop_plane import OBSERVER, WORKER, Plane
from workers.cli.health import Line, overall
from workers.cli.health_kubernetes import lines_of
from workers.settings import Settings
from workflows.decisions.settings import Mode, PolicySettings

WATCHING = Settings(kubernetes=KubernetesSettings(source="in-cluster"))
ACTING = WATCHING.model_copy(update={"policy": PolicySettings(mode=Mode.ACT), "access": AccessSettings(kind="agent")})
NODES: list[Node] = []


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    plane = Plane(tmp_path_factory.mktemp("plane"), node_grace_s=3600.0)  # no kubelet renews these nodes
    yield plane
    plane.close()


def told(plane: Plane, account: str, settings: Settings) -> dict[str, Line]:
    """Doctor's lines as a service account, the worst of each part."""
    client = plane.client(account)
    try:
        lines = lines_of(settings, client, NODES)
    finally:
        client.close()
    return {line.part: line for line in sorted(lines, key=lambda line: line.verdict.exit_status)}


@pytest.mark.parametrize(("account", "settings"), [(OBSERVER, WATCHING), (WORKER, WATCHING), (WORKER, ACTING)])
def test_the_roles_as_shipped_lack_nothing(plane: Plane, account: str, settings: Settings) -> None:
    lines = told(plane, account, settings)
    assert overall([*lines.values()]) is Verdict.OK, lines


def test_who_only_observes_is_told_what_acting_needs(plane: Plane) -> None:
    line = told(plane, OBSERVER, ACTING)["Kubernetes rights"]
    assert line.verdict is Verdict.CRITICAL
    assert all(right in line.text for right in ("patch nodes", "create pods/eviction", "create jobs.batch in hotspare"))


def test_a_role_that_has_lost_a_rule_is_seen_at_once(plane: Plane) -> None:
    role = "clusterrole/hotspare-observe"
    rules = json.loads(plane.do(plane.real.kubectl("get", role, "-o", "json")))["rules"]
    without_leases = {"rules": [rule for rule in rules if rule["resources"] != ["leases"]]}
    plane.do(plane.real.kubectl("patch", role, "--type=merge", "-p", json.dumps(without_leases)))
    try:
        line = told(plane, OBSERVER, WATCHING)["Kubernetes rights"]
    finally:
        plane.do(plane.real.kubectl("patch", role, "--type=merge", "-p", json.dumps({"rules": rules})))
    assert line.text == "we may not get leases.coordination.k8s.io"
