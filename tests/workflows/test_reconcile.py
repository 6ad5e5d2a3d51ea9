"""Nothing is left behind: what dead incidents and replacements left is found, adopted, returned, or told in one page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio.client import Schedule, ScheduleActionExecutionStartWorkflow, ScheduleActionStartWorkflow, ScheduleSpec

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import NodeUnreachable
from activities.quarantine import QUARANTINE_DIR, Mark
from tests.workflows.healing import Healing
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import IncidentReport, StartReconcile
from workflows.reconcile import ReconcileReport


async def reconcile(cluster: Healing) -> ReconcileReport:
    """Run it once, as the schedule does."""
    report: ReconcileReport = await cluster.client.execute_workflow(
        names.WORKFLOW_RECONCILE,
        StartReconcile(cluster=cluster.fleet.cluster),
        id=f"reconcile/{cluster.fleet.cluster}",
        task_queue=names.QUEUE_WORKFLOWS,
        result_type=ReconcileReport,
    )
    return report


async def adopted(cluster: Healing, alias: str) -> IncidentReport:
    """The incident that has taken a node up, at its end."""
    report = await cluster.incident_of(alias).result()
    assert any("reconcile" in line for line in report.story)
    return report


def quarantine_at_head(cluster: Healing, alias: str, owner: str) -> None:
    mark = Mark(owner=owner, reason="XID 79", since=datetime.now(UTC))
    cluster.fleet.machines["head"].files[f"{QUARANTINE_DIR}/{alias}"] = mark.model_dump_json()


def tag(cluster: Healing, alias: str, key: str, value: str) -> None:
    cluster.fleet.ec2.tags[cluster.fleet.node(alias).instance_id][key] = value


async def test_where_nothing_is_left_behind_it_costs_one_look(cluster: Healing) -> None:
    assert await reconcile(cluster) == ReconcileReport()
    handle = cluster.client.get_workflow_handle("reconcile/lab")
    activities = [
        event async for event in handle.fetch_history_events() if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert len(activities) == 1
    assert cluster.fleet.pages == []


async def test_a_quarantine_of_a_terminated_incident_is_re_tested_and_returned(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    testing = fleet.hold("start", "node-2")
    handle = await no_spares.report("node-2", xid=79)
    await testing.reached()
    await handle.terminate("by mistake")
    testing.release()
    assert len((await reconcile(no_spares)).settled) == 1
    report = await adopted(no_spares, "node-2")
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert names.TAG_QUARANTINE not in no_spares.tags("node-2")
    assert fleet.count("reboot", "node-2") == 1
    assert await reconcile(no_spares) == ReconcileReport()


async def test_a_half_lifted_quarantine_is_completed_first_and_lifted_after_a_test(cluster: Healing) -> None:
    quarantine_at_head(cluster, "spare-1", cluster.incident_of("spare-1").id)
    [said] = (await reconcile(cluster)).settled
    assert "its tag is gone" in said
    report = await adopted(cluster, "spare-1")
    assert report.fate == "back in service"
    assert cluster.fleet.count("start", "spare-1") == 1
    assert names.TAG_QUARANTINE not in cluster.tags("spare-1")
    assert not cluster.fleet.quarantined_at_head("spare-1")


async def test_a_retired_node_stays_retired_and_its_lost_file_is_written_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.NEVER))
    await (await no_spares.report("node-2", xid=79)).result()
    runs = fleet.count("start", "node-2")
    assert await reconcile(no_spares) == ReconcileReport()
    del fleet.machines["head"].files[f"{QUARANTINE_DIR}/node-2"]
    assert len((await reconcile(no_spares)).settled) == 1
    assert fleet.quarantined_at_head("node-2")
    assert fleet.count("start", "node-2") == runs


async def test_an_open_incident_is_left_to_itself(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    rebooting = fleet.hold("reboot")
    handle = await no_spares.report("node-2", xid=79)
    await rebooting.reached()
    assert await reconcile(no_spares) == ReconcileReport()
    rebooting.release()
    assert (await handle.result()).outcome == "resolved"


async def test_a_spare_of_a_terminated_replacement_goes_back_into_the_pool(cluster: Healing) -> None:
    fleet = cluster.fleet
    replacing = names.replace_id(fleet.cluster, fleet.node("node-3").instance_id)
    for key, value in ((names.TAG_LEASE, replacing), (names.TAG_REPLACES, "i-3"), (names.TAG_ROLE, "worker")):
        tag(cluster, "spare-1", key, value)
    fleet.job.supplied.append("spare-1")
    assert len((await reconcile(cluster)).settled) == 1
    assert fleet.job.supplied == []
    await adopted(cluster, "spare-1")
    tags = cluster.tags("spare-1")
    assert tags[names.TAG_ROLE] == "spare"
    assert not {names.TAG_LEASE, names.TAG_REPLACES} & set(tags)


async def test_a_spare_that_the_job_runs_on_is_a_node_like_any_other(cluster: Healing) -> None:
    fleet = cluster.fleet
    replacing = names.replace_id(fleet.cluster, fleet.node("node-3").instance_id)
    tag(cluster, "node-4", names.TAG_LEASE, replacing)
    assert len((await reconcile(cluster)).settled) == 1
    assert names.TAG_LEASE not in cluster.tags("node-4")
    assert (cluster.tags("node-4")[names.TAG_ROLE], fleet.count("job.hold")) == ("worker", 0)


async def test_healers_that_nobody_released_are_released_after_a_look(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.join_group("gpus", "spare-1", "node-1")
    fleet.auto_scaling.enter_standby("gpus", fleet.node("spare-1").instance_id)
    tag(cluster, "spare-1", names.TAG_STOOD_BACK, f"{cluster.incident_of('spare-1').id} Auto Scaling group")
    assert len((await reconcile(cluster)).settled) == 1
    assert (await adopted(cluster, "spare-1")).outcome == "nothing found"
    assert fleet.count("exit_standby") == 1
    assert names.TAG_STOOD_BACK not in cluster.tags("spare-1")


async def test_what_is_for_people_is_one_page_and_nothing_of_others_is_touched(cluster: Healing) -> None:
    fleet = cluster.fleet
    tag(cluster, "node-1", names.TAG_QUARANTINE, "incident/lab/i-99")
    tag(cluster, "node-2", names.TAG_QUARANTINE, "ops/ticket-17")
    quarantine_at_head(cluster, "node-9", "incident/lab/i-9")
    fleet.machines["spare-1"].state = "pending"
    fleet.ec2.launched[fleet.node("spare-1").instance_id] = datetime.now(UTC) - timedelta(hours=2)
    report = await reconcile(cluster)
    assert (len(report.left_to_people), report.settled) == (3, [])
    [page] = fleet.pages
    assert any("sudo rm /etc/hotspare/quarantined.d/node-9" in command for command in page.next_commands)
    assert (fleet.count("set_tags"), fleet.count("remove_tags")) == (0, 0)
    assert fleet.quarantined_at_head("node-9")


async def test_in_observe_mode_it_is_said_what_would_be_done(cluster: Healing) -> None:
    await cluster.restart_worker(PolicySettings(mode=Mode.OBSERVE))
    quarantine_at_head(cluster, "spare-1", cluster.incident_of("spare-1").id)
    [said] = (await reconcile(cluster)).left_to_people
    assert "would complete the quarantine" in said
    assert cluster.fleet.count("set_tags") == 0


async def test_a_head_node_that_does_not_answer_hides_only_its_own_files(cluster: Healing) -> None:
    fleet = cluster.fleet
    tag(cluster, "spare-1", names.TAG_REPLACES, "i-3")
    fleet.fail_next("run.quarantine_list", NodeUnreachable("head: no answer"), times=2)
    report = await reconcile(cluster)
    assert (report.marks_unread, len(report.settled)) == ("head: no answer", 1)
    assert names.TAG_REPLACES not in cluster.tags("spare-1")


async def test_a_lease_that_somebody_else_takes_meanwhile_is_left_and_told(cluster: Healing) -> None:
    fleet = cluster.fleet
    tag(cluster, "spare-1", names.TAG_LEASE, names.replace_id(fleet.cluster, fleet.node("node-3").instance_id))
    marking = fleet.hold("set_tags", "spare-1")
    tag(cluster, "spare-1", names.TAG_ROLE, "worker")
    running = asyncio.ensure_future(reconcile(cluster))
    await marking.reached()
    tag(cluster, "spare-1", names.TAG_LEASE, "somebody-else")
    marking.release()
    report = await running
    assert (report.settled, len(report.failed), len(fleet.pages)) == ([], 1, 1)
    assert cluster.tags("spare-1")[names.TAG_LEASE] == "somebody-else"


async def test_a_scheduled_run_tells_people_only_what_they_do_not_know(cluster: Healing) -> None:
    fleet = cluster.fleet
    tag(cluster, "node-1", names.TAG_QUARANTINE, "incident/lab/i-99")
    action = ScheduleActionStartWorkflow(
        names.WORKFLOW_RECONCILE, StartReconcile(), id="reconcile/scheduled", task_queue=names.QUEUE_WORKFLOWS
    )
    schedule = await cluster.client.create_schedule("reconcile", Schedule(action=action, spec=ScheduleSpec()))

    async def runs() -> int:
        return len((await schedule.describe()).info.recent_actions)

    async def run_again() -> None:
        before = await runs()
        await schedule.trigger()
        await cluster.until(lambda: more_than(before))
        last = (await schedule.describe()).info.recent_actions[-1].action
        assert isinstance(last, ScheduleActionExecutionStartWorkflow)
        await cluster.client.get_workflow_handle(last.workflow_id).result()

    async def more_than(before: int) -> bool:
        return await runs() > before

    await run_again()
    await run_again()
    assert len(fleet.pages) == 1
    tag(cluster, "node-2", names.TAG_QUARANTINE, "incident/lab/i-98")
    await run_again()
    assert len(fleet.pages) == 2
    await schedule.delete()
