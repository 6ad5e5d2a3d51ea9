"""NodeClaims on a real API server: found by their instance, deleted by uid, held by their finalizer, replaced by the stand-in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubernetes.config import new_client_from_config

from activities import names
from activities.clients.fake_fleet import FakeFleet
from activities.clients.kubernetes_api import KubernetesClient
from activities.karpenter_claims import NODE_CLAIM, KarpenterClaims, instance_of
from activities.kubernetes import NODE
from activities.owner_slots import AwaitSuccessor, GiveUpSlot, LookAtOwner, OwnerSlotActivities
from activities.owners import Owner
from activities.settings import EffectSettings
from infra.lab.karpenter import LabKarpenter
from infra.lab.kube.control_plane import ControlPlane
from tests.activities.conftest import attempt

pytestmark = pytest.mark.asyncio(loop_scope="module")

INCIDENT = "incident/lab/i-2"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodeclaims.karpenter.sh"},
    "spec": {
        "group": "karpenter.sh",
        "scope": "Cluster",
        "names": {"kind": "NodeClaim", "listKind": "NodeClaimList", "plural": "nodeclaims", "singular": "nodeclaim"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
            }
        ],
    },
}
"""The kind as Karpenter has it, without the rules of its fields."""


@pytest_asyncio.fixture(loop_scope="module")
async def api(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    """A client of an API server that serves the kind."""
    file = tmp_path / "crd.json"
    file.write_text(json.dumps(CRD))
    await control_plane.kubectl("apply", "-f", str(file))
    await control_plane.kubectl("wait", "--for=condition=Established", "crd/nodeclaims.karpenter.sh", "--timeout=60s")
    kubeconfig = str(control_plane.kubeconfig())
    client = KubernetesClient(new_client_from_config(kubeconfig, persist_config=False), timeout_s=20.0)
    yield client
    client.close()


async def test_a_node_goes_back_to_karpenter_once_and_what_it_launches_is_found(api: KubernetesClient) -> None:
    fleet = FakeFleet(nodes=2, spares=0)
    ids = {f"ip-{name}": fleet.node(name).instance_id for name in ("node-1", "node-2")}
    for name, instance_id in ids.items():
        await asyncio.to_thread(api.create, NODE, {"metadata": {"name": name}, "spec": {"providerID": f"aws:///a/{instance_id}"}})
    karpenter = LabKarpenter(api, lambda pool: fleet.launch_for(), fleet.ec2.terminate, fleet.ec2.machine_state)
    await asyncio.to_thread(karpenter.own, "gpus", ids)
    node = fleet.node("node-2")
    fleet.ec2.tags[node.instance_id] |= {names.TAG_QUARANTINE: INCIDENT, names.TAG_FATE: names.FATE_RETIRED}
    slots = OwnerSlotActivities({Owner.KARPENTER: KarpenterClaims(api)}, fleet.ec2, fleet.memory, EffectSettings(), fleet.clock)

    def give_back() -> str:
        owner = Owner.KARPENTER
        seen = attempt().run(slots.look_at_owner, LookAtOwner(node=node, owned_by=owner))
        ask = GiveUpSlot(node=node, owned_by=owner, quarantined_by=INCIDENT, token="t#1")
        made = [attempt().run(slots.give_up_slot, ask).made_now for _ in range(2)]
        assert (seen.keeper, seen.members, made) == ("gpus", sorted(ids.values()), [True, False])
        left = next(one for one in api.list(NODE_CLAIM) if instance_of(one) == node.instance_id)
        assert left["metadata"]["deletionTimestamp"]  # its finalizer holds it
        for _ in range(3):
            karpenter.look()
        wait = AwaitSuccessor(node=node, owned_by=owner, keeper=seen.keeper, known=seen.members, deadline_s=60.0)
        return attempt().run(slots.await_successor, wait).instance_id

    new = await asyncio.to_thread(give_back)
    claims = await asyncio.to_thread(api.list, NODE_CLAIM)
    assert sorted(map(instance_of, claims)) == sorted([ids["ip-node-1"], new])
    assert (karpenter.ended, karpenter.launched) == ([node.instance_id], [new])
    assert await asyncio.to_thread(api.get, NODE, "ip-node-2") is None
