"""What users of other systems complain about, where it takes a whole incident to show that it does not: see docs/user-pain.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import ProviderBusy
from tests.workflows.healing import Healing
from workflows import options
from workflows.cluster_messages import FreezeRequest, ThawRequest


async def test_a_healed_node_bears_no_mark_and_is_in_its_job_again(no_spares: Healing) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/458, https://github.com/NVIDIA/NVSentinel/issues/363,
    https://github.com/NVIDIA/NVSentinel/issues/1854
    """
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    ours = [tag for tag in no_spares.tags("node-2") if tag in (names.TAG_QUARANTINE, names.TAG_LEASE, names.TAG_FATE)]
    assert ours == []
    assert not fleet.quarantined_at_head("node-2")
    assert "node-2" in fleet.job.nodes
    assert not (await no_spares.overview()).state.grants


async def test_a_node_that_recovered_while_it_waited_behind_a_guard_is_not_rebooted(no_spares: Healing) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/450, https://github.com/planetlabs/draino/issues/116,
    https://github.com/planetlabs/draino/issues/50
    """
    fleet = no_spares.fleet
    keeper = no_spares.client.get_workflow_handle(names.cluster_id(fleet.cluster))
    await keeper.execute_update("freeze", FreezeRequest(who="ann", why="demo", minutes=60))
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "waiting")
    fleet.machine("node-2").reboot()  # a person was quicker
    await keeper.execute_update("thaw", ThawRequest(who="ann"))
    report = await handle.result()
    assert (report.outcome, fleet.count("reboot"), fleet.count("stop")) == ("resolved", 0, 0)
    assert names.TAG_QUARANTINE not in no_spares.tags("node-2")
    assert len(fleet.job.resumes) == 1


async def test_an_old_event_that_is_told_again_reboots_nothing(no_spares: Healing) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1280"""
    fleet = no_spares.fleet
    yesterday = datetime.now(UTC) - timedelta(days=2)
    report = await (await no_spares.report("node-2", xid=79, what="replayed", seen_at=yesterday)).result()
    assert report.outcome == "nothing found"
    touched = [fleet.count(point) for point in ("reboot", "stop", "run.quarantine_write", "job.hold")]
    assert touched == [0, 0, 0, 0]


async def test_what_is_reported_during_an_incident_reaches_that_incident(no_spares: Healing) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1536"""
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    booting = fleet.hold("reboot", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await booting.reached()
    again = await no_spares.report("node-2", xid=95, what="told while it reboots")
    assert again.id == handle.id
    booting.release()
    report = await handle.result()
    assert report.outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
    assert any("told while it reboots" in line or "XID 95" in line for line in report.story)


async def test_a_cloud_that_is_busy_for_a_while_fails_no_repair_and_reboots_once(no_spares: Healing) -> None:
    """https://github.com/NVIDIA/NVSentinel/issues/1805, https://github.com/NVIDIA/NVSentinel/issues/1809"""
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    fleet.fail_next("reboot", ProviderBusy("RequestLimitExceeded"), times=1, node="node-2")
    handle = await no_spares.report("node-2", xid=79)

    async def was_refused() -> bool:
        return fleet.count("reboot!", "node-2") == 1

    await no_spares.until(was_refused)
    await no_spares.env.fast_forward(handle, 30.0)
    report = await handle.result()
    assert (report.outcome, fleet.count("reboot", "node-2")) == ("resolved", 1)


async def test_who_has_waited_long_keeps_its_place_when_it_asks_anew(no_spares: Healing) -> None:
    """https://github.com/kubernetes-sigs/karpenter/issues/2134"""
    keeper = no_spares.client.get_workflow_handle(names.cluster_id(no_spares.fleet.cluster))
    await keeper.execute_update("freeze", FreezeRequest(who="ann", why="demo", minutes=60))
    no_spares.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "waiting")
    [first] = (await no_spares.overview()).state.queue

    async def asked_anew() -> bool:
        return [one.request_id for one in (await no_spares.overview()).state.queue] not in ([], [first.request_id])

    await no_spares.env.fast_forward(handle, options.CLUSTER_QUEUE.total_seconds() + 1)
    await no_spares.until(asked_anew)
    [anew] = (await no_spares.overview()).state.queue
    assert first.asked_at is not None
    assert anew.asked_at is not None
    assert anew.asked_at - first.asked_at < timedelta(minutes=1)
    await keeper.execute_update("thaw", ThawRequest(who="ann"))
    assert (await handle.result()).outcome == "resolved"
