"""Cancels, second faults, lost answers and strangers at the worst moments: nothing twice, nothing unproven, nothing orphaned."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowUpdateFailedError

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.ec2 import InstanceStatus
from activities.errors import ProviderBusy
from tests.workflows.healing import Healing, healing
from tests.workflows.test_trials import APPROVE_REBOOT, reset_to_the_start
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import Word


async def test_a_node_that_comes_in_while_the_others_burn_in_is_burned_in_before_the_resume(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=3, limits=ClusterSettings(max_nodes_out=3, max_percent_out=60)) as cluster:
        fleet = cluster.fleet
        fleet.inject("spare-2", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
        fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
        burning = fleet.hold("group.start")
        first = await cluster.report("node-2", xid=64)
        await burning.reached()
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        second = await cluster.report("node-3", xid=64)
        await cluster.told(second, "replaced")
        burning.release()
        await first.result()
        await second.result()
        trained_on = fleet.job.resumes[-1][1]
        assert sorted(trained_on) in [sorted(group) for group in fleet.group_run_nodes]
        assert "spare-2" not in trained_on


async def test_a_cancel_at_the_last_moment_is_obeyed_and_not_swallowed(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    last_look = fleet.hold("boot_id", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await last_look.reached()
    await handle.cancel()
    last_look.release()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED
    assert fleet.job.resumes == []
    assert not (await no_spares.overview()).state.grants


async def test_a_cancel_during_the_quarantine_leaves_a_quarantine_that_is_known(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    marking = fleet.hold("set_tags", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await marking.reached()
    await handle.cancel()
    marking.release()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    record = fleet.memory.recall(fleet.node("node-2").instance_id)
    assert no_spares.tags("node-2")[names.TAG_QUARANTINE] == handle.id
    assert record.fate == names.FATE_WITH_PERSON


async def test_a_lost_answer_to_the_removal_of_a_lease_undoes_nothing(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.points.lose_answer("remove_tags", ProviderBusy("connection reset by peer"), node="spare-1")
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    await (await cluster.report("node-3", xid=64)).result()
    replacing = cluster.client.get_workflow_handle(names.replace_id(fleet.cluster, fleet.node("node-3").instance_id))
    assert (await replacing.result())["ready"] is True
    assert cluster.tags("spare-1")[names.TAG_ROLE] == "worker"
    assert not (await cluster.overview()).state.grants


async def test_a_reset_of_the_job_s_recovery_during_its_burn_in_resumes_once(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=94))
    burning = fleet.hold("group.start")
    handle = await no_spares.report("node-2", xid=94)
    await burning.reached()
    await reset_to_the_start(no_spares, no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train")))
    burning.release()
    assert (await handle.result()).outcome == "resolved"
    assert len(fleet.job.resumes) == 1


async def test_a_fault_that_shows_while_the_job_proves_itself_is_acted_on(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    proving = fleet.hold("job.status")
    handle = await no_spares.report("node-2", xid=79)
    await proving.reached()
    fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
    await no_spares.report("node-2", xid=64, key="worse")
    proving.release()
    report = await handle.result()
    assert report.fate == "retired"
    assert names.TAG_QUARANTINE in no_spares.tags("node-2")


async def test_a_node_that_somebody_else_has_taken_is_not_rebooted(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    fleet.ec2.set_tags(fleet.node("node-2").instance_id, {names.TAG_QUARANTINE: "ops/ticket-17"})
    await handle.execute_update("approve", Word(by="ann"))
    await no_spares.told(handle, "stuck")
    assert fleet.count("reboot") == 0
    assert no_spares.tags("node-2")[names.TAG_QUARANTINE] == "ops/ticket-17"


async def test_observe_touches_nothing_though_an_earlier_run_left_its_quarantine(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await handle.terminate("to begin anew")
    job = no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train"))
    await job.terminate("to begin anew")
    fleet.job.start_again()
    holds = fleet.count("job.hold")
    await no_spares.restart_worker(PolicySettings(mode=Mode.OBSERVE))
    report = await (await no_spares.report("node-2", xid=79, key="again")).result()
    assert report.outcome == "observed"
    assert (fleet.count("job.hold"), fleet.count("reboot")) == (holds, 0)


async def test_a_spare_that_is_taken_by_others_at_the_last_moment_is_passed_over(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        testing = fleet.hold("start", "spare-1")
        handle = await cluster.report("node-3", xid=64)
        await testing.reached()
        fleet.ec2.set_tags(fleet.node("spare-1").instance_id, {names.TAG_QUARANTINE: "ops"})
        testing.release()
        assert (await handle.result()).outcome == "resolved"
        assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]


async def test_a_time_without_a_zone_and_a_freeze_without_an_end_wedge_nobody(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    closing = fleet.hold("job.status")
    handle = await no_spares.report("node-2", xid=79)
    await closing.reached()
    await handle.signal("report_fault", {"what": "from a script", "seen_at": "2026-01-01T00:00:00"})
    closing.release()
    assert (await handle.result()).outcome == "resolved"
    keeper = no_spares.client.get_workflow_handle(names.cluster_id(fleet.cluster))
    with pytest.raises(WorkflowUpdateFailedError):
        await keeper.execute_update("freeze", {"scope": "cluster", "minutes": 1e12, "who": "ann"})
    assert not (await no_spares.overview()).state.freezes


async def test_at_the_default_limits_a_burn_in_that_finds_a_second_node_does_not_wait_for_the_first(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-4", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
        fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
        report = await (await cluster.report("node-2", xid=64)).result()
        slow = await cluster.incident_of("node-4").result()
        assert (report.outcome, slow.outcome) == ("resolved", "resolved")
        assert sorted(fleet.job.status("train").nodes) == ["node-1", "node-3", "spare-1", "spare-2"]


@pytest.mark.parametrize("odd", ["node-2", {"nodes": ["node-2"]}, 7, None])
async def test_a_start_with_an_odd_input_ends_and_the_next_report_is_acted_on(no_spares: Healing, odd: object) -> None:
    fleet = no_spares.fleet
    workflow_id = no_spares.incident_of("node-2").id
    handle = await no_spares.client.start_workflow(
        names.WORKFLOW_REMEDIATE_NODE, odd, id=workflow_id, task_queue=names.QUEUE_WORKFLOWS
    )
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    assert (await (await no_spares.report("node-2", xid=79)).result()).outcome == "resolved"


async def test_a_node_that_only_we_cannot_reach_is_not_rebooted(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("spare-1", FakeFault(unreachable=True))
    well = InstanceStatus(state="running", system="ok", instance="ok")
    fleet.ec2.statuses[fleet.node("spare-1").instance_id] = well
    handle = await cluster.report("spare-1", what="the sweep cannot reach it")
    for look in range(1, 3):
        await cluster.until(lambda look=look: looked(cluster, look))  # type: ignore[misc]
        await cluster.env.fast_forward(handle, 30)
    await cluster.told(handle, "asks a person")
    assert (fleet.count("reboot"), fleet.count("run.quarantine_write")) == (0, 0)


async def looked(cluster: Healing, times: int) -> bool:
    """Whether EC2 was asked for its second opinion so often."""
    return cluster.fleet.count("status") >= times


async def test_a_replacement_cancelled_while_it_attaches_gives_the_spare_back(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    attaching = fleet.hold("set_tags", "spare-1")
    incident = await cluster.report("node-3", xid=64)
    await attaching.reached()
    replacing = cluster.client.get_workflow_handle(names.replace_id(fleet.cluster, fleet.node("node-3").instance_id))
    await replacing.cancel()
    attaching.release()
    with pytest.raises(WorkflowFailureError):
        await replacing.result()
    assert (await replacing.describe()).status is WorkflowExecutionStatus.CANCELED
    assert (await incident.result()).outcome == "escalated"
    assert cluster.tags("spare-1")[names.TAG_ROLE] == "spare"
    assert names.TAG_LEASE not in cluster.tags("spare-1")
    assert not (await cluster.overview()).state.grants


async def test_a_burn_in_that_somebody_cancels_proves_nothing_and_cancels_nobody_else(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=94))
    burning = fleet.hold("group.start")
    handle = await no_spares.report("node-2", xid=94)
    await burning.reached()

    async def cancelled() -> bool:
        found = [one async for one in no_spares.client.list_workflows("WorkflowType = 'BurnIn'")]
        for one in found:
            await no_spares.client.get_workflow_handle(one.id).cancel()
        return bool(found)

    await no_spares.until(cancelled)
    burning.release()
    job = no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train"))
    await no_spares.until(lambda: told_of_burn_in(no_spares))
    assert (await job.describe()).status is WorkflowExecutionStatus.RUNNING
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    assert fleet.job.resumes == []


async def told_of_burn_in(cluster: Healing) -> bool:
    """Whether the recovery has taken in how its burn-in ended."""
    story = await cluster.client.get_workflow_handle(names.job_id(cluster.fleet.cluster, "train")).query("story")
    return any(line["phase"] == "burn-in" for line in story)
