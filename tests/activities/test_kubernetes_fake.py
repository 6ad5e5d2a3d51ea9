"""The contract of Kubernetes, and of quarantine and drain there, on Kubernetes in memory."""

from __future__ import annotations

import pytest

from activities.clients.fake_kubernetes import FakeKubernetes
from activities.errors import DeadlinePassed, NodeUnreachable
from activities.kubernetes import JOB_SET, POD
from tests.activities.kubernetes_contract import DrainContract, MarksContract, VerbsContract
from tests.activities.kubernetes_world import KubeletClock, World


@pytest.fixture
def world() -> World:
    fake = FakeKubernetes()
    fake.missing.add(JOB_SET)
    return World(fake)


class TestVerbs(VerbsContract):
    pass


class TestMarks(MarksContract):
    pass


class TestDrain(DrainContract):
    def test_an_api_server_that_is_away_for_a_while_only_takes_time(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1")
        fake = world.api
        assert isinstance(fake, FakeKubernetes)
        fake.points.fail_next("evict pods", NodeUnreachable("away"), times=3)
        fake.points.lose_answer("evict pods", NodeUnreachable("the answer was lost"))
        assert "1 pod moved" in self.drain(world, node, KubeletClock(world)).said
        assert fake.points.count("evict pods!") + fake.points.count("evict pods") >= 1
        assert world.pods() == []

    def test_a_pod_is_tried_again_as_often_as_kubectl_does(self, world: World) -> None:
        node = self.quarantined(world)
        world.pod("rank-0", "ip-n1", labels={"a": "b"})
        world.budget("keep-all", {"a": "b"})
        with pytest.raises(DeadlinePassed):
            self.drain(world, node, KubeletClock(world))
        assert isinstance(world.api, FakeKubernetes)
        assert world.api.points.count("evict pods") == 4  # at 0, 5, 10 and 15 s of 20

    def test_a_budget_that_allows_one_at_a_time_empties_the_node_one_by_one(self, world: World) -> None:
        node = self.quarantined(world)
        for rank in range(3):
            world.pod(f"rank-{rank}", "ip-n1", labels={"a": "b"})
        world.budget("one-at-a-time", {"a": "b"}, max_unavailable=1)
        assert "3 pods moved" in self.drain(world, node, KubeletClock(world)).said
        assert world.api.list(POD) == []
