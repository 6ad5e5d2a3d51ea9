"""Karpenter in the lab does what its pages say: claims that are deleted drain, end and replace their node, once."""

from __future__ import annotations

import pytest

from activities.clients.fake_kubernetes import FakeKubernetes
from activities.karpenter import DISRUPTED
from activities.karpenter_claims import NODE_CLAIM, instance_of
from activities.kubernetes import NODE, POD
from infra.lab.karpenter import DO_NOT_DISRUPT, DO_NOT_REPAIR, LabKarpenter


class Rig:
    """Two nodes of a static pool over instances that are words."""

    def __init__(self, *, repairs: bool = False) -> None:
        self.api, self.states = FakeKubernetes(), {"i-1": "running", "i-2": "running"}
        self.karpenter = LabKarpenter(self.api, self.launch, self.end, self.states.__getitem__, repairs=repairs)
        for number in (1, 2):
            self.api.add_node(f"ip-{number}", f"i-{number}")
        self.karpenter.own("gpus", {"ip-1": "i-1", "ip-2": "i-2"})

    def launch(self, pool: str) -> str:
        instance_id = f"i-{len(self.states) + 1}"
        self.states[instance_id] = "running"
        return instance_id

    def end(self, instance_id: str) -> None:
        self.states[instance_id] = "terminated"

    def instances(self) -> list[str]:
        """The instances of claims that are not being deleted."""
        claims = self.api.list(NODE_CLAIM)
        return sorted(instance_of(one) for one in claims if not one["metadata"].get("deletionTimestamp"))

    def delete(self, instance_id: str) -> None:
        claim = next(one for one in self.api.list(NODE_CLAIM) if instance_of(one) == instance_id)
        self.api.delete(NODE_CLAIM, claim["metadata"]["name"])

    def looks(self, number: int = 3) -> None:
        for _ in range(number):
            self.karpenter.look()


def test_a_claim_that_is_deleted_has_its_node_ended_and_another_launched_once() -> None:
    rig = Rig()
    rig.delete("i-2")
    rig.looks()
    rig.looks()
    assert (rig.instances(), rig.karpenter.ended, rig.karpenter.launched) == (["i-1", "i-3"], ["i-2"], ["i-3"])
    assert rig.states["i-2"] == "terminated"
    assert sorted(node["metadata"]["name"] for node in rig.api.list(NODE)) == ["ip-1", "ip-i-3"]
    assert len(rig.api.list(NODE_CLAIM)) == 2


@pytest.mark.parametrize("held_by", ["its kubelet", DO_NOT_DISRUPT])
def test_a_pod_that_may_not_go_keeps_its_node_until_it_has_ended(held_by: str) -> None:
    rig = Rig()
    held = {} if held_by == "its kubelet" else {DO_NOT_DISRUPT: "true"}
    rig.api.add_pod("rank-1", "ip-2", annotations=held)
    if held_by == "its kubelet":
        rig.api.lingering.add("rank-1")
    rig.delete("i-2")
    rig.looks()
    node = rig.api.get(NODE, "ip-2")
    assert node is not None
    assert [taint["key"] for taint in node["spec"]["taints"]] == [DISRUPTED]
    assert (rig.states["i-2"], rig.instances()) == ("running", ["i-1", "i-3"])
    rig.api.lingering.clear()
    rig.api.delete(POD, "rank-1", "default", grace_s=0)
    rig.looks()
    assert rig.states["i-2"] == "terminated"


def test_an_instance_that_stops_takes_its_claim_along() -> None:
    rig = Rig()
    rig.states["i-1"] = "stopped"
    rig.looks()
    assert (rig.instances(), rig.karpenter.ended) == (["i-2", "i-3"], ["i-1"])


def test_node_repair_replaces_a_node_that_is_not_ready_unless_the_node_forbids_it() -> None:
    rig = Rig(repairs=True)
    for name in ("ip-1", "ip-2"):
        rig.api.set_status(NODE, name, conditions=[{"type": "Ready", "status": "Unknown"}])
    rig.api.patch(NODE, "ip-1", {"metadata": {"annotations": {DO_NOT_REPAIR: "true"}}})
    rig.looks()
    assert (rig.instances(), rig.karpenter.ended) == (["i-1", "i-3"], ["i-2"])


def test_without_node_repair_an_ill_node_stays() -> None:
    rig = Rig()
    rig.api.set_status(NODE, "ip-1", conditions=[{"type": "Ready", "status": "Unknown"}])
    rig.looks()
    assert (rig.instances(), rig.karpenter.ended) == (["i-1", "i-2"], [])
