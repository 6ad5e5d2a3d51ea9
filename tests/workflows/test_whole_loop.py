"""The whole loop on a fleet in memory: from the report to a job that trains again and a node whose fate is settled."""

from __future__ import annotations

from activities.clients.fake_machine import Cure, FakeFault
from activities.names import TAG_FATE, TAG_LEASE, TAG_QUARANTINE, TAG_ROLE
from checks.model import Action
from tests.workflows.healing import Healing


async def test_xid_79_without_a_spare_is_rebooted_once_and_the_job_resumes_once(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert report.outcome == "resolved"
    assert report.fate == "back in service"
    assert fleet.count("reboot", "node-2") == 1
    assert len(fleet.job.resumes) == 1
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "node-3", "node-4"]
    assert TAG_QUARANTINE not in no_spares.tags("node-2")
    assert not (await no_spares.overview()).state.grants


async def test_xid_64_is_replaced_from_the_pool_and_never_rebooted(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    report = await (await cluster.report("node-3", xid=64)).result()
    assert (report.outcome, report.fate) == ("resolved", "retired")
    assert fleet.count("reboot") == 0
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-1", "node-4"]
    assert cluster.tags("node-3")[TAG_FATE] == "retired"
    assert cluster.tags("node-3")[TAG_QUARANTINE]


async def test_xid_79_with_a_spare_resumes_first_and_repairs_afterwards(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await cluster.report("node-1", xid=79)).result()
    phases = [line.split(" ", 2)[1].rstrip(":") for line in report.story]
    assert (report.outcome, report.fate) == ("resolved", "probation")
    assert phases.index("replaced") < phases.index("REBOOT_NODE")
    assert fleet.job.status("train").nodes[0] == "spare-1"
    assert cluster.tags("node-1")[TAG_ROLE] == "spare"
    assert TAG_QUARANTINE not in cluster.tags("node-1")
    await cluster.until(lambda: _no_lease(cluster, "spare-1"))


async def _no_lease(cluster: Healing, name: str) -> bool:
    books = await cluster.overview()
    return TAG_LEASE not in cluster.tags(name) and not books.state.grants


async def test_a_restart_whose_burn_in_finds_a_slow_node_replaces_that_node(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-4", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    fleet.inject("node-2", FakeFault(xid=94))
    restarted = await (await cluster.report("node-2", xid=94)).result()
    slow = await cluster.incident_of("node-4").result()
    assert restarted.outcome == "resolved"
    assert (slow.outcome, slow.fault, slow.fate) == ("resolved", "slow_node", "retired")
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "node-3", "spare-1"]
    assert len(fleet.job.resumes) == 1
    assert fleet.count("reboot") == 0


async def test_a_reboot_that_does_not_help_goes_one_rung_up(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert (fleet.count("reboot", "node-2"), fleet.count("stop", "node-2")) == (1, 1)
    rungs = [attempt.rung for attempt in fleet.memory.recall(fleet.node("node-2").instance_id).attempts]
    assert rungs == [Action.REBOOT_NODE, Action.POWER_CYCLE]


async def test_a_node_that_never_comes_back_is_given_up_and_the_job_stays_held_for_a_person(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("escalated", "retired")
    assert fleet.job.resumes == []
    assert any("stays held" in page.title for page in fleet.pages)
    assert any(page.title.endswith("retired") for page in fleet.pages)


async def test_a_healthy_node_is_looked_at_and_left_alone(cluster: Healing) -> None:
    report = await (await cluster.report("node-1", xid=79)).result()
    assert report.outcome == "nothing found"
    assert cluster.fleet.count("set_tags") == 0
    assert cluster.fleet.count("job.hold") == 0


async def test_one_report_costs_at_most_120_events_and_60_kilobytes(no_spares: Healing) -> None:
    no_spares.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await handle.result()
    history = await handle.fetch_history()
    size = sum(event.ByteSize() for event in history.events)
    print(f"\n{len(history.events)} events, {size} bytes")
    assert len(history.events) <= 120
    assert size <= 60_000
