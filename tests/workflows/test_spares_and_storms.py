"""Spares that fail, nodes that fail together, one fault on many nodes: nothing lost, nothing twice, nobody disrupted in vain."""

from __future__ import annotations

import asyncio
from pathlib import Path

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from tests.workflows.healing import Healing, healing
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import StartBurnIn


async def test_a_spare_that_fails_its_own_test_never_joins_and_the_next_one_does(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        fleet.inject("spare-1", FakeFault(slow=0.5, slow_kind="intra", cure=Cure.NEVER))
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        assert report.outcome == "resolved"
        assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
        assert cluster.tags("spare-1")[names.TAG_ROLE] == "spare"


async def test_a_spare_that_fails_the_group_burn_in_is_taken_out_again_and_the_next_one_joins(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        fleet.inject("spare-1", FakeFault(slow=0.5, slow_kind="inter", cure=Cure.NEVER))
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-3", xid=64)).result()
        spare = await cluster.incident_of("spare-1").result()
        assert report.outcome == "resolved"
        assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
        assert len(fleet.job.resumes) == 1
        assert spare.fate == "retired"
        assert names.TAG_LEASE not in cluster.tags("spare-1")


async def test_two_nodes_of_one_job_are_one_recovery_and_one_resume(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2, limits=ClusterSettings(max_percent_out=50)) as cluster:
        fleet = cluster.fleet
        for name in ("node-1", "node-4"):
            fleet.inject(name, FakeFault(xid=64, cure=Cure.NEVER))
        handles = [await cluster.report(name, xid=64) for name in ("node-1", "node-4")]
        reports = await asyncio.gather(*(handle.result() for handle in handles))
        assert [report.outcome for report in reports] == ["resolved", "resolved"]
        assert sorted(fleet.job.status("train").nodes) == ["node-2", "node-3", "spare-1", "spare-2"]
        assert fleet.job.resumes[-1][1] == fleet.job.status("train").nodes


async def test_one_spare_for_two_nodes_goes_to_one_of_them(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=1, limits=ClusterSettings(max_percent_out=50)) as cluster:
        fleet = cluster.fleet
        for name in ("node-1", "node-4"):
            fleet.inject(name, FakeFault(xid=79, cure=Cure.REBOOT))
        handles = [await cluster.report(name, xid=79) for name in ("node-1", "node-4")]
        reports = await asyncio.gather(*(handle.result() for handle in handles))
        assert sorted(report.fate for report in reports) == ["back in service", "probation"]
        assert len(set(fleet.job.status("train").nodes)) == 4


async def test_one_fault_on_every_node_is_a_storm_and_reboots_none_of_them(tmp_path: Path) -> None:
    limits = ClusterSettings(max_nodes_out=0, storm_nodes=3, storm_percent=30)
    async with healing(tmp_path, nodes=8, spares=0, limits=limits) as cluster:
        fleet = cluster.fleet
        for number in range(1, 9):
            fleet.inject(f"node-{number}", FakeFault(xid=79, cure=Cure.REBOOT))
        handles = [await cluster.report(f"node-{number}", xid=79) for number in range(1, 9)]
        reports = [await handle.result() for handle in handles]
        assert {report.outcome for report in reports} == {"part of a storm"}
        assert fleet.count("reboot") == 0
        assert fleet.count("run.quarantine_write") == 0


async def test_observe_touches_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    async with healing(tmp_path, policy=PolicySettings(mode=Mode.OBSERVE)) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        report = await (await cluster.report("node-2", xid=79)).result()
        assert report.outcome == "observed"
        assert any("would quarantine node-2" in line for line in report.story)
        touched = [fleet.count(point) for point in ("reboot", "stop", "set_tags", "job.hold", "run.quarantine_write")]
        assert touched == [0, 0, 0, 0, 0]


async def test_a_quarantine_of_somebody_else_is_respected(cluster: Healing) -> None:
    fleet = cluster.fleet
    node = fleet.node("node-2")
    fleet.ec2.set_tags(node.instance_id, {names.TAG_QUARANTINE: "ops-ticket-7"})
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await cluster.report("node-2", xid=79)).result()
    assert report.outcome == "escalated"
    assert cluster.tags("node-2")[names.TAG_QUARANTINE] == "ops-ticket-7"
    assert fleet.count("reboot") == 0


async def test_a_burn_in_by_hand_names_the_slow_node_and_the_round_it_took(cluster: Healing) -> None:
    cluster.fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    cluster.fleet.job.hold("train", "burn-in by hand")
    start = StartBurnIn(nodes=["node-1", "node-2", "node-3", "node-4"])
    report = await cluster.client.execute_workflow(
        names.WORKFLOW_BURN_IN, start, id=names.burn_in_id("lab", "by-hand"), task_queue=names.QUEUE_WORKFLOWS
    )
    bad = [node["node_name"] for node in report["nodes"] if node["verdict"] == "CRITICAL"]
    assert (bad, report["rounds"]) == (["node-3"], 4)


async def test_a_sweep_reports_what_nobody_else_reported(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-4", FakeFault(xid=79, cure=Cure.REBOOT))
    swept = await no_spares.client.execute_workflow(
        names.WORKFLOW_SWEEP, {}, id="sweep-by-hand", task_queue=names.QUEUE_WORKFLOWS
    )
    assert (swept["reported"], swept["healthy"]) == (["node-4"], 3)
    assert (await no_spares.incident_of("node-4").result()).outcome == "resolved"
