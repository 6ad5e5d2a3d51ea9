"""What is remembered of how nodes are set up, who is compared with whom, and when a person is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.clients.fake_fleet import FakeFleet
from activities.errors import CommandFailed, NodeUnreachable, ProviderBusy
from activities.host_memory import SeenConfiguration
from activities.inventory import Node
from activities.node_messages import Seen
from activities.parity import CompareFleet, DifferencesTold, FleetParity, ParityActivities
from activities.probing import Probe, ProbeWish
from activities.settings import ParitySettings
from checks.model import Verdict
from checks.parity import Configuration
from checks.parity.configuration import known

OLDER = "580.65.06"


class Desk:
    """A fleet, and the comparison over it."""

    def __init__(self, fleet: FakeFleet, probe: Probe, **settings: Any) -> None:
        self.fleet, self.probe = fleet, probe
        self.now = datetime.now(UTC)
        self.parity = FleetParity(
            fleet.memory, fleet.inventory, fleet.job, fleet.access_to, probe, ParitySettings(**settings), lambda: self.now
        )
        self.activities = ParityActivities(self.parity, fleet.inventory, fleet.memory)

    def look(self, *names: str) -> None:
        for name in names:
            node = self.fleet.node(name)
            self.parity.note(node, self.probe.run(self.fleet.access_to(node), node, ProbeWish()).configuration)

    def node(self, name: str) -> Node:
        return self.fleet.node(name)


@pytest.fixture
def desk(fleet: FakeFleet, probe: Probe) -> Desk:
    return Desk(fleet, probe)


def join(desk: Desk, surroundings: ActivityEnvironment, job: str = "train") -> tuple[tuple[str, ...], str]:
    desk.look("spare-1")
    verdict = surroundings.run(desk.parity.join, desk.node("spare-1"), job, desk.node("node-3").instance_id)
    return verdict.differences, verdict.said


def test_a_spare_like_the_jobs_nodes_may_join(desk: Desk, surroundings: ActivityEnvironment) -> None:
    differences, said = join(desk, surroundings)
    assert differences == ()
    assert "compared with 3 other nodes of train" in said


def test_the_node_that_goes_has_no_say_on_who_comes(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.fleet.machine("node-3").kernel = "as the spare"
    desk.fleet.machine("spare-1").kernel = "as the spare"
    assert join(desk, surroundings)[0] == ("kernel as the spare here, 6.8.0-1029-aws on all 3 of its peers",)


def test_what_the_sweep_saw_lately_is_used_and_no_peer_is_probed_again(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.look("node-1", "node-2", "node-4")
    before = desk.fleet.count("run.probe", "node-1")
    join(desk, surroundings)
    assert desk.fleet.count("run.probe", "node-1") == before


def test_what_was_seen_too_long_ago_is_read_anew(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.look("node-1", "node-2", "node-4")
    for name in ("node-1", "node-2", "node-4", "spare-1"):
        desk.fleet.machine(name).driver = OLDER
    desk.now += timedelta(hours=1)
    assert join(desk, surroundings)[0] == ()


def test_peers_that_do_not_answer_leave_the_others_to_compare_with(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.fleet.machine("spare-1").driver = OLDER
    for name in ("node-1", "node-2"):
        desk.fleet.fail_next("run.probe", NodeUnreachable("silent"), times=9, node=name)
    assert join(desk, surroundings)[0] == (
        f"driver {OLDER} here, 580.95.05 on its one peer",
        f"Fabric Manager {OLDER} here, 580.95.05 on its one peer",
    )


def test_with_no_peer_known_nothing_is_accused_and_that_is_said(desk: Desk, surroundings: ActivityEnvironment) -> None:
    for number in range(1, 5):
        desk.fleet.fail_next("run.probe", NodeUnreachable("silent"), times=9, node=f"node-{number}")
    differences, said = join(desk, surroundings)
    assert differences == ()
    assert "not compared" in said


def test_a_job_that_cannot_tell_its_nodes_leaves_the_pool_to_compare_with(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.fleet.fail_next("job.status", CommandFailed("the head is away"))
    desk.fleet.machine("spare-1").kernel = "6.1"
    assert join(desk, surroundings)[0] == ("kernel 6.1 here, 6.8.0-1029-aws on all 3 of its peers",)


def test_without_a_job_the_workers_of_the_pool_are_the_peers(desk: Desk, surroundings: ActivityEnvironment) -> None:
    assert "compared with 3 other nodes of its pool" in join(desk, surroundings, job="")[1]


def test_quarantined_nodes_are_nobodys_peers(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.fleet.ec2.set_tags(desk.node("node-1").instance_id, {"hotspare:quarantine": "ops"})
    assert "compared with 2 other nodes" in join(desk, surroundings)[1]


def test_a_store_that_fails_spoils_no_look(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: SeenConfiguration) -> None:
        raise ProviderBusy("disk full")

    monkeypatch.setattr(desk.fleet.memory, "save_configuration", full)
    desk.look("node-1")
    assert desk.parity.compare([desk.node("node-1")]) == {}


def test_what_an_unknown_release_remembered_counts_as_not_seen(desk: Desk) -> None:
    node = desk.node("node-1")
    foreign = SeenConfiguration(instance_id=node.instance_id, taken_at=desk.now, document={"schema": 9})
    desk.fleet.memory.save_configuration(foreign)
    assert desk.parity.compare([node]) == {}


def test_the_image_is_compared_though_no_node_can_tell_it(desk: Desk) -> None:
    nodes = [desk.node(f"node-{number}").model_copy(update={"image": "ami-1"}) for number in (1, 2, 3)]
    nodes[1] = nodes[1].model_copy(update={"image": "ami-2"})
    for node in nodes:
        desk.parity.note(node, Configuration("p5.48xlarge", {"kernel": known("6.8")}))
    found = desk.parity.compare(nodes)
    assert [one.words for one in found["node-2"].differences] == ["image ami-2 here, ami-1 on all 2 of its peers"]
    assert found["node-1"].differences == ()


def test_a_pool_is_compared_with_itself(desk: Desk) -> None:
    names = ["node-1", "node-2", "node-3", "node-4"]
    desk.fleet.machine("node-4").kernel = "6.1"
    desk.look(*names)
    nodes = [desk.node(name) for name in names]
    assert desk.parity.compare(nodes)["node-4"].differences != ()
    nodes[3] = nodes[3].model_copy(update={"pool": "research"})
    assert desk.parity.compare(nodes)["node-4"].differences == ()


def test_the_same_differences_are_told_once_a_day_and_new_ones_at_once(desk: Desk, surroundings: ActivityEnvironment) -> None:
    names = ["node-1", "node-2", "node-3", "node-4"]
    asked = CompareFleet(cluster="lab", instance_ids=[desk.node(name).instance_id for name in names])
    desk.fleet.machine("node-2").kernel = "6.1"
    desk.look(*names)
    first = surroundings.run(desk.activities.compare_fleet, asked)
    assert (first.count, first.told) == (1, False)
    surroundings.run(desk.activities.differences_told, DifferencesTold(token=first.token))
    assert surroundings.run(desk.activities.compare_fleet, asked).told
    desk.fleet.machine("node-2").kernel = "6.2"
    desk.look("node-2")
    assert not surroundings.run(desk.activities.compare_fleet, asked).told


def test_nodes_that_were_not_looked_at_are_not_in_the_comparison(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.fleet.machine("node-4").kernel = "6.1"
    desk.look("node-1", "node-2", "node-3", "node-4")
    well = [desk.node(f"node-{number}").instance_id for number in (1, 2, 3)]
    assert surroundings.run(desk.activities.compare_fleet, CompareFleet(cluster="lab", instance_ids=well)).count == 0


def test_what_is_wrong_with_a_node_by_itself_is_told_with_the_differences(desk: Desk, surroundings: ActivityEnvironment) -> None:
    desk.look("node-1", "node-2")
    nodes = [desk.node("node-1"), desk.node("node-2")]

    def asked(milliseconds: int) -> CompareFleet:
        seen = [
            Seen(check="clock", verdict=Verdict.WARN, summary=f"the clock is {milliseconds} ms off"),
            Seen(check="parity", verdict=Verdict.WARN, summary="configuration: said by the comparison"),
            Seen(check="ecc_uncorrected", verdict=Verdict.WARN, summary="no matter of configuration"),
        ]
        ids = [node.instance_id for node in nodes]
        return CompareFleet(cluster="lab", instance_ids=ids, found={nodes[1].instance_id: seen})

    report = surroundings.run(desk.activities.compare_fleet, asked(120))
    assert [(one.node_name, one.differences) for one in report.differing] == [("node-2", ["the clock is 120 ms off"])]
    assert report.token == surroundings.run(desk.activities.compare_fleet, asked(130)).token
