"""What burn-ins teach: clean ones become a measure, one that accused somebody does not, and a later one is judged by them."""

from __future__ import annotations

from typing import Any

from activities import names
from activities.bandwidth_records import BandwidthRecord, CleanRun
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import ProviderBusy
from tests.workflows.healing import Healing
from workflows.messages import StartBurnIn

NODES = ["node-1", "node-2", "node-3", "node-4"]


async def burn_in(cluster: Healing, key: str) -> dict[str, Any]:
    cluster.fleet.job.hold("train", "burn-in by hand")
    report: dict[str, Any] = await cluster.client.execute_workflow(
        names.WORKFLOW_BURN_IN, StartBurnIn(nodes=NODES), id=names.burn_in_id("lab", key), task_queue=names.QUEUE_WORKFLOWS
    )
    return report


def record(cluster: Healing) -> BandwidthRecord:
    (one,) = cluster.fleet.memory.bandwidths()
    return one


async def test_clean_runs_are_remembered_by_what_they_have_in_common(cluster: Healing) -> None:
    for key in ("one", "two"):
        assert (await burn_in(cluster, key))["verdict"] == "OK"
    assert record(cluster).key.startswith("lab p5.48xlarge x4 32 ranks 16G, NCCL 2.23.4")
    assert (record(cluster).values, record(cluster).seen) == ([470.0, 470.0], 2)


async def test_a_burn_in_that_accuses_somebody_teaches_nothing_though_the_rest_passed(cluster: Healing) -> None:
    cluster.fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    assert (await burn_in(cluster, "slow"))["cause"] == "bad_nodes"
    assert cluster.fleet.memory.bandwidths() == []


async def test_a_verdict_does_not_wait_for_a_store_that_is_away(cluster: Healing) -> None:
    for _ in range(3):
        cluster.fleet.fail_next("memory.save_bandwidth", ProviderBusy("away"))
    assert (await burn_in(cluster, "away"))["verdict"] == "OK"
    assert cluster.fleet.memory.bandwidths() == []


async def test_a_group_that_was_better_for_long_fails_above_the_shipped_floor_and_says_how_far_it_fell(cluster: Healing) -> None:
    fleet = cluster.fleet
    await burn_in(cluster, "first")
    before = record(cluster)
    runs = [CleanRun(run_id=f"r{number}", at=before.runs[0].at, busbw_gbs=560.0 + number) for number in range(12)]
    fleet.memory.save_bandwidth(before.model_copy(update={"runs": runs}))
    report = await burn_in(cluster, "later")
    assert report["cause"] == "undecided", "all are slow together, so nobody is accused"
    handle = cluster.client.get_workflow_handle(names.burn_in_id("lab", "later"))
    told = " ".join(line["text"] for line in await handle.query("story"))
    assert "470 GB/s, floor 509; 17% under the median of 12 clean runs" in told
    assert record(cluster).runs == runs
