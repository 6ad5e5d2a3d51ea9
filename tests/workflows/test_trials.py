"""What broke in trials of other designs, each with a test: resets, late attempts, changed settings, lost and late messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import ProviderBusy
from checks.model import Action
from tests.workflows.healing import Healing
from workflows.cluster_messages import Ask, AskKind
from workflows.decisions.settings import DEFAULT_LADDERS, Mode, PolicySettings
from workflows.messages import Word

APPROVE_REBOOT = PolicySettings(mode=Mode.ACT, mode_by_rung={Action.REBOOT_NODE: Mode.APPROVE})


async def reset_to_the_start(cluster: Healing, handle: WorkflowHandle[Any, Any]) -> None:
    """What a click on "Reset" in the Temporal UI does: begin again from the first workflow task."""
    description = await handle.describe()
    await cluster.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=cluster.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=description.run_id),
            reason="a person clicked",
            workflow_task_finish_event_id=4,
            request_id="reset-1",
        )
    )


async def test_a_reset_from_the_ui_does_not_reboot_a_second_time(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    after_the_reboot = fleet.hold("start", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await after_the_reboot.reached()
    assert fleet.count("reboot", "node-2") == 1
    await reset_to_the_start(no_spares, handle)
    after_the_reboot.release()
    report = await no_spares.incident_of("node-2").result()
    assert report.outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
    assert len(fleet.job.resumes) == 1


async def test_a_lost_answer_to_the_reboot_call_does_not_reboot_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    fleet.points.lose_answer("reboot", ProviderBusy("connection reset by peer"))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert report.outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1


async def test_settings_changed_in_mid_incident_neither_break_it_nor_reboot_twice(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    turned = {**DEFAULT_LADDERS, "gpu_lost": [Action.POWER_CYCLE, Action.REBOOT_NODE]}
    await no_spares.restart_worker(PolicySettings(mode=Mode.ACT, ladders=turned))
    await handle.execute_update("approve", Word(by="ann"))
    report = await handle.result()
    assert report.outcome == "resolved"
    assert (fleet.count("stop", "node-2"), fleet.count("reboot", "node-2")) == (1, 0)


async def test_a_report_made_while_no_worker_runs_is_acted_on_later(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    await no_spares.stop_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79, what="seen while nobody worked")
    await no_spares.start_worker()
    report = await handle.result()
    assert report.outcome == "resolved"
    assert any("seen while nobody worked" in line for line in report.story)


async def test_reports_that_arrive_while_an_incident_closes_are_acted_on(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    closing = fleet.hold("memory.incident")
    handle = await no_spares.report("node-2", what="a first look finds nothing")
    await closing.reached()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    for number in range(20):
        await no_spares.report("node-2", xid=79, key=f"late-{number}")
    closing.release()
    report = await handle.result()
    assert report.outcome == "resolved"
    assert fleet.count("reboot", "node-2") == 1
    assert [line for line in report.story if "reported again" in line]


async def test_a_grant_that_nobody_asked_for_goes_back_at_once(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    late = Ask(request_id="of-an-earlier-incident", asker=handle.id, kind=AskKind.REPAIR_SLOT, instance_id="i-other")
    await no_spares.gateway.signal_cluster(fleet.cluster, "ask", late.model_dump(mode="json"))

    async def only_the_quarantine_is_booked() -> bool:
        books = await no_spares.overview()
        history = await handle.fetch_history()
        answered = sum("of-an-earlier-incident" in str(event) for event in history.events)
        return bool(answered) and [grant.kind for grant in books.state.grants] == [AskKind.NODE_OUT]

    await no_spares.until(only_the_quarantine_is_booked)
    await handle.execute_update("approve", Word(by="ann"))
    assert (await handle.result()).outcome == "resolved"


async def test_one_hundred_reports_under_three_names_make_one_incident(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    node = fleet.node("node-2")
    aliases = [node.instance_id, node.name, node.ip]
    await asyncio.gather(*(no_spares.report(aliases[number % 3], xid=79, key="the same fault") for number in range(100)))
    report = await no_spares.incident_of("node-2").result()
    assert report.outcome == "resolved"

    async def runs() -> int:
        return len([one async for one in no_spares.client.list_workflows("WorkflowType = 'RemediateNode'")])

    await no_spares.until(lambda: seen(runs))
    assert await runs() == 1
    assert fleet.count("reboot", "node-2") == 1


async def test_cluster_terminated_in_mid_incident_comes_back_with_the_same_grants(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    before = (await no_spares.overview()).state.grants
    await no_spares.client.get_workflow_handle(names.cluster_id(fleet.cluster)).terminate("by mistake")
    await no_spares.gateway.ensure_cluster(fleet.cluster)

    async def recovered() -> bool:
        return not (await no_spares.overview()).recovering

    await no_spares.until(recovered)
    assert (await no_spares.overview()).state.grants == before
    await handle.execute_update("approve", Word(by="ann"))
    assert (await handle.result()).outcome == "resolved"
    assert not (await no_spares.overview()).state.grants


async def test_cancel_leaves_the_node_quarantined_the_job_told_and_nothing_held(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await handle.cancel()

    async def ended() -> bool:
        return (await handle.describe()).status is WorkflowExecutionStatus.CANCELED

    await no_spares.until(ended)
    assert no_spares.tags("node-2")[names.TAG_QUARANTINE] == handle.id
    assert fleet.count("reboot") == 0
    assert not (await no_spares.overview()).state.grants
    job = no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train"))
    assert (await job.result())["resumed"] is False
    assert fleet.job.resumes == []


async def test_a_report_by_hand_re_tests_a_node_that_was_left_to_a_person_and_returns_it(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=64, cure=Cure.NEVER))
    assert (await (await no_spares.report("node-2", xid=64)).result()).fate == "retired"
    by_machine = await (await no_spares.report("node-2", what="sweep")).result()
    assert by_machine.outcome == "still with a person"
    fleet.machine("node-2").faults.clear()
    fleet.machine("node-2").host += 1  # the GPU that could not be mended is banned: it is another that serves now
    fleet.machine("node-2").reboot()
    fleet.machine("node-2").looks_until_up = 0
    start = {"node": "node-2", "cluster": fleet.cluster}
    handle = await no_spares.client.start_workflow(
        names.WORKFLOW_REMEDIATE_NODE, start, id=no_spares.incident_of("node-2").id, task_queue=names.QUEUE_WORKFLOWS
    )
    await handle.result()
    assert names.TAG_QUARANTINE not in no_spares.tags("node-2")


async def test_take_over_stops_everything_and_hand_back_goes_on_after_a_new_look(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await handle.execute_update("take_over", Word(by="ann", reason="I look myself"))
    await no_spares.told(handle, "take over")
    fleet.machine("node-2").reboot()
    fleet.machine("node-2").looks_until_up = 0
    await handle.execute_update("hand_back", Word(by="ann", reason="rebooted by hand"))
    report = await handle.result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert fleet.count("reboot", "node-2") == 0


async def test_a_freeze_stops_the_next_disruption_and_a_thaw_lets_it_go_on(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    keeper = no_spares.client.get_workflow_handle(names.cluster_id(fleet.cluster))
    await keeper.execute_update("freeze", {"scope": "cluster", "minutes": 60, "who": "ann", "why": "demo for the board"})
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "waiting")
    assert names.TAG_QUARANTINE not in no_spares.tags("node-2")
    await keeper.execute_update("thaw", {"scope": "cluster", "who": "ann"})
    assert (await handle.result()).outcome == "resolved"


@pytest.mark.parametrize("unknown", ["node-22", "10.9.9.9:9400"])
async def test_a_start_by_hand_of_an_unknown_node_is_refused_with_the_nearest_names(no_spares: Healing, unknown: str) -> None:
    handle = await no_spares.client.start_workflow(
        names.WORKFLOW_REMEDIATE_NODE, {"node": unknown}, id=f"by-hand-{unknown}", task_queue=names.QUEUE_WORKFLOWS
    )
    with pytest.raises(Exception, match="Workflow execution failed") as failure:
        await handle.result()
    assert unknown in str(failure.value.__cause__)


async def test_a_start_by_hand_under_another_id_hands_over_to_the_node_s_own_incident(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.client.start_workflow(
        names.WORKFLOW_REMEDIATE_NODE, {"node": fleet.node("node-2").ip}, id="my-own-id", task_queue=names.QUEUE_WORKFLOWS
    )
    assert (await handle.result())["outcome"] == "handed over"
    assert (await no_spares.incident_of("node-2").result()).outcome == "resolved"


async def test_a_question_is_paged_once_until_its_time_is_up_and_then_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await no_spares.report("node-2", what="and somebody else sees it too")
    await no_spares.until(lambda: said(handle, "somebody else"))
    await no_spares.until(lambda: paged(no_spares, 1))
    await no_spares.env.fast_forward(handle, APPROVE_REBOOT.approval_page_again_s + 1)
    await no_spares.told(handle, "unanswered")
    await no_spares.until(lambda: paged(no_spares, 2))
    assert fleet.count("reboot") == 0


async def seen(runs: Callable[[], Awaitable[int]]) -> bool:
    """Whether visibility, which lags, shows anything yet."""
    return await runs() > 0


async def said(handle: WorkflowHandle[Any, Any], text: str) -> bool:
    """Whether the story has these words."""
    return any(text in line["text"] for line in await handle.query("story"))


async def paged(cluster: Healing, times: int) -> bool:
    """Whether so many pages went out."""
    return len(cluster.fleet.pages) == times


async def test_what_a_terminated_incident_held_is_free_again_once_it_is_seen_to_be_gone(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    no_spares.policy = APPROVE_REBOOT
    await no_spares.restart_worker()
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "asks a person")
    await handle.terminate("by mistake")
    keeper = no_spares.client.get_workflow_handle(names.cluster_id(fleet.cluster))
    assert (await no_spares.overview()).state.grants
    await no_spares.env.fast_forward(keeper, 1300)

    async def nothing_is_held() -> bool:
        return not (await no_spares.overview()).state.grants

    await no_spares.until(nothing_is_held)
