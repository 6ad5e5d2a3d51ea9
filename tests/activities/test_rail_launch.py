"""A run over one rail: one rank a node on the GPU of that index; where the launcher cannot, nothing is started in its place."""

from __future__ import annotations

import json

import pytest
from temporalio.testing import ActivityEnvironment

from activities.burn_in import BurnInActivities, GroupTest
from activities.clients.fake_fleet import FakeFleet
from activities.clients.mpirun_launcher import group_command, rail_command
from activities.probing import Probe
from activities.settings_burn_in import BurnInSettings
from checks.model import Verdict


def group(fleet: FakeFleet, rail: int | None) -> GroupTest:
    return GroupTest(cluster="lab", run_id="burn/1", nodes=[fleet.node("node-1"), fleet.node("node-2")], rail=rail)


def test_one_rank_a_node_sees_only_the_gpu_of_the_rail(fleet: FakeFleet) -> None:
    nodes = group(fleet, 5).nodes
    command = rail_command(BurnInSettings(), 5, nodes, "burn/1")
    assert command[command.index("mpirun") :][:5] == ["mpirun", "-np", "2", "--host", "node-1:1,node-2:1"]
    spec = json.loads(command[command.index("mpirun") - 1])
    assert spec["environment"]["CUDA_VISIBLE_DEVICES"] == "5"
    whole = group_command(BurnInSettings(), nodes, "burn/1")
    assert "CUDA_VISIBLE_DEVICES" not in json.loads(whole[whole.index("mpirun") - 1])["environment"]


def test_a_rail_is_measured_and_not_judged(fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment) -> None:
    fleet.job.hold("train", "burn-in")
    fleet.slow_rails.add(5)
    activities = BurnInActivities(fleet, fleet.gate(probe), BurnInSettings(), fleet.clock)
    result = surroundings.run(activities.group_test, group(fleet, 5))
    assert (result.verdict, result.cause) == (Verdict.UNKNOWN, "measured")
    assert result.busbw_gbs == pytest.approx(21.15)
    assert fleet.rail_runs == [(5, ["node-1", "node-2"])]
    assert fleet.group_run_nodes == []


class AllRailsOnly:
    """A launcher without `start_over`."""

    def __init__(self, fleet: FakeFleet) -> None:
        self.start = fleet.start
        self.poll = fleet.poll
        self.kill = fleet.kill


def test_a_launcher_that_runs_no_single_rail_starts_nothing(
    fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment
) -> None:
    fleet.job.hold("train", "burn-in")
    activities = BurnInActivities(AllRailsOnly(fleet), fleet.gate(probe), BurnInSettings(), fleet.clock)
    with pytest.raises(Exception, match="runs no single rail"):
        surroundings.run(activities.group_test, group(fleet, 5))
    assert fleet.group_runs == {}
