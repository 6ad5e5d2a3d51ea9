"""The ledger in the loop: banned GPUs do not join, a stop that ends on the same host failed, and all of it outlives workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.fake_memory import FakeMemory
from activities.clients.sqlite_memory import SqliteMemory
from activities.host_ledger import mark_gpu
from checks.model import Action
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import FreezeRequest


@pytest.fixture
async def two_spares(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four nodes with a job, and two spares."""
    async with healing(tmp_path, spares=2) as one:
        yield one


async def test_a_spare_with_a_banned_gpu_never_joins_and_is_taken_out_of_the_pool(two_spares: Healing) -> None:
    fleet = two_spares.fleet
    mark_gpu(fleet.memory, fleet.machines["spare-1"].serial_of(2), bad=True, by="ann", why="RMA 4711")
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    report = await (await two_spares.report("node-3", xid=64)).result()
    assert (report.outcome, report.fate) == ("resolved", "retired")
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-2", "node-4"]
    assert fleet.count("start", "spare-1") == 0
    looked_at = await two_spares.incident_of("spare-1").result()
    assert (looked_at.fault, looked_at.fate) == ("hardware", "retired")
    assert any("is known bad" in line and "RMA 4711" in line for line in looked_at.story)
    assert two_spares.tags("spare-1")[names.TAG_QUARANTINE]


async def test_a_node_that_is_given_up_has_its_gpu_banned_by_serial(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, gpu=5, cure=Cure.NEVER))
    await (await cluster.report("node-3", xid=64)).result()
    [gpu] = [gpu for gpu in fleet.memory.gpus() if gpu.known_bad is not None]
    assert gpu.serial == fleet.machines["node-3"].serial_of(5)
    assert gpu.known_bad is not None
    assert gpu.known_bad.by == names.incident_id(fleet.cluster, fleet.node("node-3").instance_id)
    assert gpu.home is not None
    assert gpu.home.name == "node-3"


async def test_a_stop_and_start_that_ends_on_the_same_host_is_a_rung_that_failed(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.machines["node-2"].stays_on_host = True
    await (await no_spares.report("node-2", xid=79)).result()  # a look while all is well: after XID 79 no GPU may be asked
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("escalated", "retired")
    assert any("POWER_CYCLE: did not help: it is on the same host" in line for line in report.story)
    assert fleet.count("stop", "node-2") == 1
    last = fleet.memory.recall(fleet.node("node-2").instance_id).attempts[-1]
    assert (last.rung, last.helped) == (Action.POWER_CYCLE, False)


async def test_a_ledger_that_was_lost_is_filled_again_by_a_sweep_and_tags_keep_the_bad_node_out(two_spares: Healing) -> None:
    fleet: Any = two_spares.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    await (await two_spares.report("node-3", xid=64)).result()
    fleet.memory = FakeMemory(fleet.points)
    await two_spares.restart_worker()
    assert fleet.memory.records() == []
    swept = await two_spares.client.execute_workflow(
        names.WORKFLOW_SWEEP, {}, id="after-the-loss", task_queue=names.QUEUE_WORKFLOWS
    )
    assert (swept["left_alone"], swept["reported"]) == (["node-3"], [])
    known = {record.name: record.gpu_serials for record in fleet.memory.records()}
    wanted = {name: [fleet.machines[name].serial_of(gpu) for gpu in range(8)] for name in ("node-1", "node-2", "node-4")}
    assert {name: known[name] for name in wanted} == wanted
    fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
    await (await two_spares.report("node-2", xid=64)).result()
    assert fleet.job.status("train").nodes == ["node-1", "spare-2", "spare-1", "node-4"]


async def lose_every_workflow(one: Healing) -> int:
    """Terminate and delete all that Temporal has, as if its database were new. Returns how many there were."""
    listed = [execution async for execution in one.client.list_workflows()]
    for execution in listed:
        if execution.status is WorkflowExecutionStatus.RUNNING:
            await one.client.get_workflow_handle(execution.id, run_id=execution.run_id).terminate("the database was lost")
        found = WorkflowExecution(workflow_id=execution.id, run_id=execution.run_id)
        request = DeleteWorkflowExecutionRequest(namespace=one.client.namespace, workflow_execution=found)
        await one.client.workflow_service.delete_workflow_execution(request)

    async def gone() -> bool:
        return not [execution async for execution in one.client.list_workflows()]

    await one.until(gone)
    return len(listed)


async def test_what_is_remembered_survives_the_loss_of_every_workflow(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=2) as one:
        fleet: Any = one.fleet
        fleet.memory = SqliteMemory(tmp_path / "memory.sqlite3")
        await one.restart_worker()
        keeper = one.client.get_workflow_handle(names.cluster_id(fleet.cluster))
        await keeper.execute_update("freeze", FreezeRequest(scope="node:none", who="ann", why="a rack is moved", minutes=60))
        fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        await (await one.report("node-3", xid=64)).result()
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        await (await one.report("node-2", xid=79)).result()
        rebooted = fleet.count("reboot", "node-2")

        assert await lose_every_workflow(one) >= 4
        await one.restart_worker()
        fleet.memory = SqliteMemory(tmp_path / "memory.sqlite3")
        await one.restart_worker()
        await one.gateway.ensure_cluster(fleet.cluster)
        await one.until(lambda: _recovered(one))

        assert [freeze.why for freeze in (await one.overview()).state.freezes] == ["a rack is moved"]
        assert {closed.outcome for closed in fleet.memory.incidents()} == {"resolved"}
        assert all(closed.decisions for closed in fleet.memory.incidents())
        assert [gpu.serial for gpu in fleet.memory.gpus() if gpu.known_bad] == [fleet.machines["node-3"].serial_of(3)]

        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.POWER_CYCLE))
        report = await (await one.report("node-2", xid=79)).result()
        assert fleet.count("reboot", "node-2") == rebooted
        assert any("the same fault came back" in line or "second XID 79" in line for line in report.story)

        still = await (await one.report("node-3", xid=64)).result()
        assert still.outcome == "still with a person"


async def _recovered(one: Healing) -> bool:
    return not (await one.overview()).recovering
