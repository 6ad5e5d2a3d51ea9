"""Earlier clean runs as a measure: by what they are found, when they are not, and what a store that is away costs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.testing import ActivityEnvironment

from activities.bandwidth_records import BandwidthRecord, CleanRun, bandwidth_key
from activities.burn_in import BurnInActivities, GroupTest, GroupTestResult
from activities.clients.fake_fleet import FakeFleet
from activities.errors import ProviderBusy
from activities.learned_bandwidth import LearnedFloors, versions_of
from activities.probing import Probe
from activities.settings_burn_in import BurnInSettings, LearnedSettings
from checks.judges.nccl_software import Software
from checks.model import Verdict
from checks.parity import Configuration
from checks.parity.configuration import known, unreadable

KEY = "lab p5.48xlarge x4 32 ranks 16G, NCCL 2.23.4"


def node(**facts: str) -> Configuration:
    return Configuration("p5.48xlarge", {name: known(value) for name, value in facts.items()})


def group_test(fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment, run_id: str = "burn/1") -> GroupTestResult:
    fleet.job.hold("train", "burn-in")
    learned = LearnedFloors(fleet.memory, LearnedSettings())
    activities = BurnInActivities(fleet, fleet.gate(probe), BurnInSettings(), fleet.clock, learned)
    nodes = [fleet.node(f"node-{number}") for number in range(1, 5)]
    return surroundings.run(activities.group_test, GroupTest(cluster="lab", run_id=run_id, nodes=nodes))


def fill(fleet: FakeFleet, runs: int, busbw_gbs: float) -> None:
    now = datetime.now(UTC)
    clean = [CleanRun(run_id=f"r{number}", at=now, busbw_gbs=busbw_gbs) for number in range(runs)]
    fleet.memory.save_bandwidth(BandwidthRecord(key=KEY, runs=clean, seen=runs))


def test_ten_clean_runs_of_the_same_kind_raise_the_floor_and_nine_do_not(
    fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment
) -> None:
    fill(fleet, 9, 560.0)
    before = group_test(fleet, probe, surroundings)
    assert (before.verdict, before.kind, before.drift) == (Verdict.OK, KEY, "")
    record = fleet.memory.bandwidths([KEY])[0]
    fleet.memory.save_bandwidth(record.model_copy(update={"runs": [*record.runs, record.runs[0]]}))
    after = group_test(fleet, probe, surroundings, "burn/2")
    assert (after.verdict, after.cause, after.floor_gbs) == (Verdict.CRITICAL, "low_bandwidth", 504.0)
    assert after.drift == "16% under the median of 10 clean runs, 32.1 MAD"


def test_slow_clean_runs_do_not_lower_the_shipped_floor(
    fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment
) -> None:
    fill(fleet, 20, 300.0)
    result = group_test(fleet, probe, surroundings)
    assert (result.verdict, result.floor_gbs) == (Verdict.OK, 435.0)
    assert result.drift.startswith("57% over the median of 20 clean runs")


def test_a_store_that_is_away_leaves_the_shipped_floors_and_a_run_of_no_kind(
    fleet: FakeFleet, probe: Probe, surroundings: ActivityEnvironment
) -> None:
    fill(fleet, 20, 560.0)
    fleet.fail_next("memory.bandwidths", ProviderBusy("away"))
    result = group_test(fleet, probe, surroundings)
    assert (result.verdict, result.floor_gbs) == (Verdict.OK, 435.0)


@pytest.mark.parametrize(
    ("told", "nodes", "words"),
    [
        (Software("2.23.4"), [], "NCCL 2.23.4"),
        (Software("2.23.4", "1.16.2"), [node(driver="580.95", efa_installer="1.43")] * 2,
         "NCCL 2.23.4, OFI plug-in 1.16.2, EFA installer 1.43, driver 580.95"),
        (Software(), [node(nccl="2.27.7", ofi_plugin="1.16.2")] * 2, "NCCL 2.27.7, OFI plug-in 1.16.2"),
        (Software(), [], ""),
        (Software("2.23.4"), [node(driver="580.95"), node(driver="570.86")], ""),
        (Software("2.23.4"), [Configuration("p5", {"driver": unreadable("no answer")})] * 2, "NCCL 2.23.4"),
        (Software("2.23.4"), [node(driver="580.95"), Configuration("p5", {"driver": unreadable("no answer")})], ""),
        (Software("2.23.4"), [node(driver="580.95")], ""),
    ],
)  # fmt: skip
def test_runs_are_of_one_kind_by_the_software_that_the_output_or_the_nodes_tell(
    told: Software, nodes: list[Configuration], words: str
) -> None:
    assert versions_of(told, nodes, 2) == words


def test_each_thing_that_bandwidth_depends_on_makes_another_kind() -> None:
    kinds = {
        bandwidth_key(cluster, machine, nodes, 8 * nodes, size, software)
        for cluster in ("a", "b")
        for machine in ("p5.48xlarge", "p5en.48xlarge")
        for nodes in (2, 4)
        for size in (1 << 30, 1 << 34, 1000)
        for software in ("NCCL 2.23.4", "NCCL 2.27.7")
    }
    assert len(kinds) == 2 * 2 * 2 * 3 * 2
