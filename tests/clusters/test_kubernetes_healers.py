"""The switches of Karpenter and NVSentinel on a real API server: written on record, restored, never over another write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kubernetes.config import new_client_from_config

from activities import names
from activities.all_healers import AllHealers
from activities.clients.fake_fleet import FakeFleet
from activities.clients.kubernetes_api import KubernetesClient
from activities.healers import HealerActivities, ReleaseHealers, StandBack
from activities.karpenter import DEPLOYMENT
from activities.kubernetes import NODE, KubernetesApi, Object, annotations_of, labels_of
from activities.nvsentinel import OPT_OUT
from infra.lab.kube.control_plane import ControlPlane
from tests.activities.conftest import attempt

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = "incident/lab/i-2"
NAME = "healed-1"
WATCHED = {"karpenter.sh/nodepool": "gpus", "nvsentinel.dgxc.nvidia.com/driver.installed": "true"}


class Racing:
    """The API, where somebody else changes the Node between our look and our first write."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self.refused = 0
        self._raced = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def patch(self, kind: Any, name: str, body: Object, *more: Any, **named: Any) -> Object:
        if not self._raced:
            self._raced = True
            self._api.patch(NODE, NAME, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "30m"}}})
        try:
            return self._api.patch(kind, name, body, *more, **named)
        except Exception:
            self.refused += 1
            raise


@pytest_asyncio.fixture(loop_scope="module")
async def api(control_plane: ControlPlane) -> AsyncIterator[KubernetesClient]:
    """A client, a Node that two healers watch, and Karpenter 1.15's Deployment."""
    kubeconfig = str(control_plane.kubeconfig())
    client = KubernetesClient(new_client_from_config(kubeconfig, persist_config=False), timeout_s=20.0)
    gates = [{"name": "FEATURE_GATES", "value": "NodeRepair=true"}]
    container = {"name": "controller", "image": "public.ecr.aws/karpenter/controller:1.15.0", "env": gates}
    labels = {"app.kubernetes.io/name": "karpenter"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"metadata": {"name": "karpenter", "labels": labels}, "spec": spec}
    fleet = FakeFleet()
    provider = f"aws:///us-east-1a/{fleet.node('node-2').instance_id}"
    await asyncio.to_thread(client.create, DEPLOYMENT, deployment, "kube-system")
    await asyncio.to_thread(
        client.create, NODE, {"metadata": {"name": NAME, "labels": dict(WATCHED)}, "spec": {"providerID": provider}}
    )
    yield client
    await asyncio.to_thread(client.delete, NODE, NAME)
    await asyncio.to_thread(client.delete, DEPLOYMENT, "karpenter", "kube-system")
    client.close()


async def tell(healers: AllHealers, fleet: FakeFleet, *, stand_back: bool) -> str:
    activities, node = HealerActivities(healers), fleet.node("node-2")

    def run() -> str:
        if stand_back:
            return attempt().run(activities.stand_back, StandBack(node=node, incident=OURS)).said
        return attempt().run(activities.release_healers, ReleaseHealers(node=node, incident=OURS)).said

    return await asyncio.to_thread(run)


async def now(api: KubernetesApi) -> tuple[dict[str, str], dict[str, str]]:
    item = await asyncio.to_thread(api.get, NODE, NAME)
    assert item is not None
    theirs = "node.alpha.kubernetes.io/ttl"  # the node controller's, which writes it when it comes to it
    return labels_of(item), {key: value for key, value in annotations_of(item).items() if key != theirs}


async def test_switches_are_written_with_their_record_and_everything_is_as_before_after_the_release(
    api: KubernetesClient,
) -> None:
    fleet = FakeFleet()
    fleet.kubernetes = api
    before = await now(api)
    said = await tell(fleet.healers, fleet, stand_back=True)
    assert "NVSentinel leaves node-2 alone" in said
    assert "Karpenter 1.15.0" in said
    labels, annotations = await now(api)
    assert labels[OPT_OUT.key] == "false"
    assert annotations["karpenter.sh/do-not-repair"] == annotations["karpenter.sh/do-not-disrupt"] == "true"
    assert OURS in annotations[f"{names.KUBE_STOOD_BACK}-karpenter"]
    await tell(fleet.healers, fleet, stand_back=False)
    assert await now(api) == before


async def test_a_write_of_somebody_else_in_between_is_kept_and_put_back(api: KubernetesClient) -> None:
    fleet = FakeFleet()
    racing = Racing(api)
    fleet.kubernetes = racing
    await tell(fleet.healers, fleet, stand_back=True)
    assert racing.refused >= 1  # the controllers of the control plane write too
    _, annotations = await now(api)
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"
    await tell(fleet.healers, fleet, stand_back=False)
    labels, annotations = await now(api)
    assert (annotations["karpenter.sh/do-not-disrupt"], OPT_OUT.key in labels) == ("30m", False)
