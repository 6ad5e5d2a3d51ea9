"""Situations that once ended in limbo: circles, words that wedge, waits without an end, second paths, leaked leases."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy

from activities import names
from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import ProviderBusy
from tests.workflows.healing import Healing, healing
from tests.workflows.test_trials import APPROVE_REBOOT, reset_to_the_start
from workflows import options
from workflows.cluster_messages import AskKind
from workflows.decisions.settings import Mode, PolicySettings
from workflows.messages import StartReplacement, Word


async def asking(cluster: Healing, alias: str = "node-2") -> object:
    """An incident that waits for approval of its reboot."""
    cluster.policy = APPROVE_REBOOT
    await cluster.restart_worker()
    cluster.fleet.inject(alias, FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await cluster.report(alias, xid=79)
    await cluster.told(handle, "asks a person")
    return handle


async def test_a_node_that_is_slow_inside_after_its_reboot_goes_up_the_ladder_and_never_in_circles(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    fleet.inject("node-2", FakeFault(slow=0.4, slow_kind="intra", cure=Cure.NEVER))
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await no_spares.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("escalated", "retired")
    assert (fleet.count("reboot", "node-2"), fleet.count("stop", "node-2")) == (1, 1)
    assert fleet.job.resumes == []


async def test_a_word_about_no_step_is_refused_and_the_incident_goes_on(no_spares: Healing) -> None:
    handle = await asking(no_spares)
    for verb in ("approve", "skip"):
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update(verb, Word(by="ann", step="reboot"))  # type: ignore[attr-defined]
    await handle.execute_update("approve", Word(by="ann"))  # type: ignore[attr-defined]
    assert (await handle.result()).outcome == "resolved"  # type: ignore[attr-defined]


async def test_a_reset_after_the_swap_takes_no_second_path(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    resuming = fleet.hold("job.resume")
    handle = await cluster.report("node-3", xid=64)
    await resuming.reached()
    await reset_to_the_start(cluster, handle)
    resuming.release()
    report = await cluster.incident_of("node-3").result()
    assert report.fate == "retired"
    assert fleet.count("reboot") == 0
    assert fleet.job.status("train").nodes == ["node-1", "node-2", "spare-1", "node-4"]


async def test_a_refused_attach_leaves_no_lease_behind(cluster: Healing) -> None:
    fleet = cluster.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    testing = fleet.hold("start", "spare-1")
    handle = await cluster.report("node-3", xid=64)
    await testing.reached()
    fleet.ec2.set_tags(fleet.node("spare-1").instance_id, {names.TAG_LEASE: "somebody-else"})
    testing.release()
    report = await handle.result()
    assert report.outcome == "escalated"
    assert cluster.tags("spare-1")[names.TAG_LEASE] == "somebody-else"
    assert AskKind.SPARE not in {grant.kind for grant in (await cluster.overview()).state.grants}


async def test_an_alert_that_resolves_has_a_waiting_node_looked_at_again(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    handle = await asking(no_spares)
    fleet.machine("node-2").reboot()
    fleet.machine("node-2").looks_until_up = 0
    await no_spares.report("node-2", xid=79, resolved=True, key="resolved")
    report = await handle.result()  # type: ignore[attr-defined]
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert fleet.count("reboot", "node-2") == 0


async def test_a_cancelled_job_recovery_tells_its_incidents_and_a_person(no_spares: Healing) -> None:
    fleet = no_spares.fleet
    handle = await asking(no_spares)
    job = no_spares.client.get_workflow_handle(names.job_id(fleet.cluster, "train"))
    await job.cancel()

    async def ended() -> bool:
        return (await job.describe()).status is WorkflowExecutionStatus.CANCELED

    await no_spares.until(ended)
    assert any(page.incident == job.id for page in fleet.pages)
    await handle.execute_update("approve", Word(by="ann"))  # type: ignore[attr-defined]
    report = await handle.result()  # type: ignore[attr-defined]
    assert (report.outcome, fleet.job.resumes) == ("escalated", [])


async def test_quarantine_that_cannot_be_written_waits_for_a_person_and_is_tried_again(
    no_spares: Healing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(options.MARK, "retry_policy", RetryPolicy(maximum_attempts=1))
    fleet = no_spares.fleet
    fleet.fail_next("set_tags", ProviderBusy("RequestLimitExceeded"), times=10_000)
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await no_spares.report("node-2", xid=79)
    await no_spares.told(handle, "stuck")
    await no_spares.told(handle, "asks a person")

    async def told_how_to_hand_back() -> bool:
        return bool(fleet.pages) and "hotspare hand-back node-2" in fleet.pages[-1].next_commands

    await no_spares.until(told_how_to_hand_back)
    assert fleet.count("reboot") == 0
    fleet.points.forgive("set_tags")
    await handle.execute_update("hand_back", Word(by="ann", reason="EC2 answers again"))
    assert (await handle.result()).outcome == "resolved"


async def test_a_running_job_is_not_stopped_under_a_freeze(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=PolicySettings(mode=Mode.ACT)) as cluster:
        fleet = cluster.fleet
        keeper = cluster.client.get_workflow_handle(names.cluster_id(fleet.cluster))
        await keeper.execute_update("freeze", {"scope": "job:train", "minutes": 60, "who": "ann", "why": "the last epoch"})
        fleet.inject("node-2", FakeFault(xid=94))
        fleet.job.start_again()
        handle = await cluster.report("node-2", xid=94)
        await cluster.told(handle, "waiting")
        assert fleet.count("job.hold") == 0
        await keeper.execute_update("thaw", {"scope": "job:train", "who": "ann"})
        assert (await handle.result()).outcome == "resolved"


async def test_a_replacement_by_hand_ends_when_the_spare_is_a_node_like_any_other(cluster: Healing) -> None:
    fleet = cluster.fleet
    node = fleet.node("node-3")
    done = await cluster.client.execute_workflow(
        names.WORKFLOW_REPLACE_NODE,
        StartReplacement(node="node-3"),
        id=names.replace_id(fleet.cluster, node.instance_id),
        task_queue=names.QUEUE_WORKFLOWS,
    )
    assert done["ready"] is True
    assert names.TAG_LEASE not in cluster.tags("spare-1")
    assert not (await cluster.overview()).state.grants


async def test_a_soft_reboot_that_helps_saves_the_reboot_by_ec2(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=0, policy=PolicySettings(mode=Mode.ACT, soft_reboot=True)) as cluster:
        fleet = cluster.fleet
        fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
        report = await (await cluster.report("node-2", xid=79)).result()
        assert (report.outcome, report.fate) == ("resolved", "back in service")
        assert (fleet.count("run.reboot", "node-2"), fleet.count("reboot")) == (1, 0)
