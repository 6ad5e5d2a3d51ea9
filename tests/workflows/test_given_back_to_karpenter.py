"""A retired node of Karpenter goes back to it by its NodeClaim, once; what Karpenter launches is tested and becomes a spare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from activities import names
from activities.clients.fake_kubernetes import FakeKubernetes
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import AccessRefused, ProviderBusy
from activities.karpenter import DEPLOYMENT
from activities.karpenter_claims import NODE_CLAIM, instance_of
from activities.kubernetes import NODE
from activities.nvsentinel import REBOOT_NODE
from infra.lab.karpenter import LabKarpenter
from tests.workflows.healing import Healing
from tests.workflows.test_given_back_to_its_owner import RENEWS, sent_back
from workflows.messages import IncidentReport, Provisioned

POOL, NODES = "gpus", ("node-1", "node-2", "node-3", "node-4")


@dataclass
class Karpentered:
    """The fleet's workers as a static node pool, which a Karpenter in memory looks after."""

    cluster: Healing
    api: FakeKubernetes
    karpenter: LabKarpenter

    def instances(self) -> list[str]:
        """The instances of the pool's claims."""
        return [instance_of(claim) for claim in self.api.list(NODE_CLAIM)]

    async def retire(self) -> tuple[IncidentReport, str]:
        """Have an incident find that nothing mends node-2; returns its report, and the instance."""
        await self.cluster.restart_worker(RENEWS)
        bad = self.cluster.fleet.node("node-2").instance_id
        self.cluster.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
        return await (await self.cluster.report("node-2", xid=79)).result(), bad

    async def sent_back(self, bad: str) -> Provisioned:
        return await sent_back(self.cluster, bad).result()


@pytest.fixture
def karpentered(no_spares: Healing) -> Iterator[Karpentered]:
    fleet = no_spares.fleet
    fleet.kubernetes = api = FakeKubernetes()
    api.missing.add(REBOOT_NODE)
    container = {"image": "karpenter:1.15.0", "env": [{"name": "FEATURE_GATES", "value": "NodeRepair=false"}]}
    meta = {"name": "karpenter", "labels": {"app.kubernetes.io/name": "karpenter"}}
    api.put(DEPLOYMENT, {"metadata": meta, "spec": {"template": {"spec": {"containers": [container]}}}}, "karpenter")
    ids = {f"ip-{alias}": fleet.node(alias).instance_id for alias in NODES}
    for name, instance_id in ids.items():
        api.add_node(name, instance_id)
    karpenter = LabKarpenter(api, lambda pool: fleet.launch_for(), fleet.ec2.terminate, fleet.ec2.machine_state)
    karpenter.own(POOL, ids)
    karpenter.start()
    yield Karpentered(no_spares, api, karpenter)
    karpenter.stop()


async def test_its_claim_is_deleted_once_and_the_successor_becomes_a_tested_spare(karpentered: Karpentered) -> None:
    fleet = karpentered.cluster.fleet
    report, bad = await karpentered.retire()
    done = await karpentered.sent_back(bad)
    new = fleet.node("new-6").instance_id
    assert (report.fate, done.outcome, done.spare) == (names.FATE_RETIRED, "in the pool", new)
    assert (fleet.count("stop"), fleet.count("launch"), fleet.count("terminate")) == (0, 0, 0)
    assert karpentered.api.points.count("delete nodeclaims") == 1
    assert (karpentered.karpenter.ended, karpentered.karpenter.launched) == ([bad], [new])
    assert sorted(karpentered.instances()) == sorted([*(fleet.node(one).instance_id for one in NODES if one != "node-2"), new])
    assert karpentered.cluster.tags("new-6")[names.TAG_ROLE] == names.ROLE_SPARE
    assert karpentered.api.get(NODE, "ip-node-2") is None


async def test_karpenter_that_replaces_the_node_at_the_same_time_ends_with_one_node(karpentered: Karpentered) -> None:
    """Its own repair deletes the claim just before it is given back."""
    deleting = karpentered.api.points.hold("delete nodeclaims")
    _, bad = await karpentered.retire()
    await deleting.reached()
    karpentered.cluster.fleet.ec2.terminate(bad)  # and Karpenter finds its claim without an instance
    deleting.release()
    done = await karpentered.sent_back(bad)
    assert done.outcome == "in the pool"
    assert karpentered.karpenter.launched == [done.spare]
    assert len(karpentered.instances()) == 4


async def test_a_lost_answer_deletes_no_second_claim(karpentered: Karpentered) -> None:
    karpentered.api.points.lose_answer("delete nodeclaims", ProviderBusy("connection reset by peer"))
    _, bad = await karpentered.retire()
    done = await karpentered.sent_back(bad)
    assert (done.outcome, len(karpentered.karpenter.launched)) == ("in the pool", 1)
    assert karpentered.karpenter.ended == [bad]


async def test_a_pool_that_needs_no_other_node_is_told_and_is_no_failure(karpentered: Karpentered) -> None:
    karpentered.karpenter.replicas[POOL] = 3
    _, bad = await karpentered.retire()
    done = await karpentered.sent_back(bad)
    assert (done.outcome, done.spare, karpentered.karpenter.launched) == ("given up", "", [])
    assert not [page for page in karpentered.cluster.fleet.pages if "new spare" in page.title]


async def test_claims_that_may_not_be_read_leave_the_node_where_it_is(karpentered: Karpentered) -> None:
    karpentered.karpenter.stop()
    karpentered.api.points.fail_next("list nodeclaims", AccessRefused("may not list nodeclaims"), times=99)
    _, bad = await karpentered.retire()
    done = await karpentered.sent_back(bad)
    assert (done.outcome, karpentered.cluster.fleet.machines["node-2"].state) == ("with a person", "running")
    assert "may not list nodeclaims" in done.because[0]
