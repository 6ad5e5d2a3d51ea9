"""A node that is set up otherwise than its peers does not join and is told to people; nothing is ever done to it for that."""

from __future__ import annotations

from pathlib import Path

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.settings import ParitySettings
from tests.workflows.healing import Healing, healing
from workflows.sweep import SweepReport

OLDER = "580.65.06"


async def swept(cluster: Healing, run: str = "sweep-by-hand") -> SweepReport:
    report: SweepReport = await cluster.client.execute_workflow(
        names.WORKFLOW_SWEEP, {}, id=run, task_queue=names.QUEUE_WORKFLOWS, result_type=SweepReport
    )
    return report


def disruptions(cluster: Healing, name: str) -> list[int]:
    return [cluster.fleet.count(point, name) for point in ("reboot", "stop", "run.quarantine_write")]


async def test_a_spare_with_another_driver_never_joins_and_the_page_says_why(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=1) as cluster:
        fleet = cluster.fleet
        fleet.machine("spare-1").driver = OLDER
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        await cluster.report("node-3", xid=64)
        await cluster.until(lambda: _paged(cluster, f"driver {OLDER} here, 580.95.05 on all 3 of its peers"))
        assert "spare-1" not in fleet.job.nodes
        assert fleet.count("start", "spare-1") == 0  # not even a load test
        assert names.TAG_REPLACES not in cluster.tags("spare-1")
        assert (await cluster.incident_of("spare-1").result()).outcome == "nothing found"
        assert disruptions(cluster, "spare-1") == [0, 0, 0]


async def test_the_next_spare_that_is_set_up_like_the_job_joins_instead(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        fleet.machine("spare-1").kernel = "6.5.0-1020-aws"
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        assert report.outcome == "resolved"
        assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
        assert disruptions(cluster, "spare-1") == [0, 0, 0]


async def test_a_pinned_set_of_values_keeps_a_spare_out_even_where_the_job_agrees_with_it(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=1) as cluster:
        fleet = cluster.fleet
        fleet.parity_settings = ParitySettings(golden={"p5.48xlarge": {"driver": "590.*"}})
        await cluster.restart_worker()
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        await cluster.report("node-3", xid=64)
        await cluster.until(lambda: _paged(cluster, "driver 580.95.05 here, 590.* is pinned in the settings"))
        assert "spare-1" not in fleet.job.nodes


async def test_what_may_differ_by_the_settings_keeps_nobody_out(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=1) as cluster:
        fleet = cluster.fleet
        fleet.parity_settings = ParitySettings(ignored=["kernel"])
        await cluster.restart_worker()
        fleet.machine("spare-1").kernel = "6.5.0-1020-aws"
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        assert (await (await cluster.report("node-3", xid=64)).result()).outcome == "resolved"
        assert "spare-1" in fleet.job.nodes


async def test_a_sweep_tells_once_who_differs_and_does_nothing_to_it(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.machine("node-2").driver = OLDER
    first, second = await swept(no_spares, "sweep-1"), await swept(no_spares, "sweep-2")
    words = f"Fabric Manager {OLDER} here, 580.95.05 on all 3 of its peers"
    assert first.differing == second.differing
    assert len(first.differing) == 1
    assert first.differing[0].startswith("node-2: driver")
    assert words in first.differing[0]
    assert (first.healthy, first.reported) == (4, [])
    assert [page.title for page in fleet.pages] == ["configuration of 1 node is not as it should be"]
    assert any(words in line for line in fleet.pages[0].why)
    assert disruptions(no_spares, "node-2") == [0, 0, 0]


async def test_a_fabric_manager_unlike_its_driver_is_told_and_never_repaired(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    for number in range(1, 5):
        fleet.machine(f"node-{number}").fabric_manager = "570.172.08"
    report = await swept(no_spares)
    assert [line.count("570.172.08") for line in report.differing] == [1, 1, 1, 1]
    assert report.reported == []
    assert [disruptions(no_spares, f"node-{number}") for number in range(1, 5)] == [[0, 0, 0]] * 4


async def test_of_two_halves_the_sweep_accuses_nobody_and_says_so(no_spares: Healing) -> None:
    for name in ("node-1", "node-2"):
        no_spares.fleet.machine(name).kernel = "6.5.0-1020-aws"
    report = await swept(no_spares)
    assert report.differing == []
    assert report.undecided == [
        "p5.48xlarge: kernel: 6.5.0-1020-aws on 2, 6.8.0-1029-aws on 2; no value has a majority, so nobody is accused"
    ]
    assert no_spares.fleet.pages == []


async def test_a_node_that_only_its_configuration_keeps_from_passing_goes_to_a_person_and_not_up_the_ladder(
    no_spares: Healing,
) -> None:
    fleet = no_spares.fleet
    fleet.machine("node-2").fabric_manager = "570.172.08"
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    await no_spares.report("node-2", xid=79)
    await no_spares.until(lambda: _paged(no_spares, "Fabric Manager 570.172.08 here"))
    assert (fleet.count("reboot", "node-2"), fleet.count("stop", "node-2")) == (1, 0)


async def test_a_healed_node_that_was_set_up_otherwise_all_along_goes_back_and_it_is_said(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.machine("node-2").kernel = "6.5.0-1020-aws"
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, "node-2" in fleet.job.nodes) == ("resolved", True)
    assert any("configuration: kernel 6.5.0-1020-aws here, 6.8.0-1029-aws on all 3 of its peers" in line for line in report.story)


async def _paged(cluster: Healing, words: str) -> bool:
    return any(words in line for page in cluster.fleet.pages for line in page.why)
