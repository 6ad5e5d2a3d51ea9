"""Jobs that a controller restarts: Hotspare never does, supplies proven nodes only, and takes over after the deadline alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.clients.fake_machine import Cure, FakeFault
from activities.errors import DeadlinePassed
from activities.jobs.protocol import JobState, RestartedBy
from activities.names import TAG_QUARANTINE, TAG_ROLE
from checks.model import Action
from tests.workflows.healing import Healing, healing
from workflows.cluster_messages import AskKind
from workflows.decisions.settings import ClusterSettings
from workflows.messages import Word


@pytest.fixture
async def controlled(tmp_path: Path) -> AsyncIterator[Healing]:
    """Four workers whose job a controller restarts, and two spares: one to stand in, one to pair it with."""
    async with healing(tmp_path, spares=2) as one:
        one.fleet.job.restarted_by = RestartedBy.CONTROLLER
        yield one


async def test_the_controller_restarts_the_job_on_a_proven_spare_and_hotspare_never_does(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    report = await (await controlled.report("node-3", xid=64)).result()
    assert (report.outcome, report.fate) == ("resolved", "retired")
    assert fleet.job.resumes == []
    assert fleet.count("job.hold") == 0
    assert fleet.job.controller_restarts == 1
    assert "spare-1" in fleet.job.nodes
    assert "node-3" not in fleet.job.nodes
    assert fleet.group_run_nodes[0] == ["spare-1", "spare-2"]
    assert fleet.count("reboot") == 0


async def test_a_node_that_is_repaired_in_place_is_paired_before_its_quarantine_is_lifted(controlled: Healing) -> None:
    fleet = controlled.fleet
    await controlled.restart_worker(controlled.policy.model_copy(update={"resume_first": False}))
    fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await controlled.report("node-2", xid=79)).result()
    assert (report.outcome, report.fate) == ("resolved", "back in service")
    assert fleet.count("reboot", "node-2") == 1
    assert fleet.group_run_nodes[0] == ["node-2", "spare-1", "spare-2"]
    assert fleet.job.controller_restarts == 1
    assert fleet.job.resumes == []
    assert TAG_QUARANTINE not in controlled.tags("node-2")


async def test_a_job_that_only_restarts_is_left_to_its_controller_and_watched(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.inject("node-1", FakeFault(xid=94))
    fleet.job.stop()
    report = await (await controlled.report("node-1", xid=94)).result()
    assert report.outcome == "resolved"
    assert fleet.job.controller_restarts == 1
    assert fleet.job.resumes == []
    assert TAG_QUARANTINE not in controlled.tags("node-1")


async def test_without_a_node_to_pair_with_a_person_answers_for_the_spare(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=1) as one:
        one.fleet.job.restarted_by = RestartedBy.CONTROLLER
        one.fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
        handle = await one.report("node-3", xid=64)
        await one.told(handle, "asks a person")
        assert one.fleet.job.supplied == []
        await handle.execute_update("approve", Word(by="dana", reason="it passed its deep test"))
        report = await handle.result()
        assert report.outcome == "resolved"
        assert "spare-1" in one.fleet.job.nodes


async def test_a_spare_that_fails_in_its_pair_is_never_supplied(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.inject("spare-1", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    handle = await controlled.report("node-3", xid=64)
    await controlled.told(handle, "asks a person")
    assert "spare-1" not in fleet.job.supplied
    assert fleet.job.resumes == []


async def test_a_controller_that_does_not_manage_is_taken_over_with_a_burn_in_and_one_resume(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.job.controller_works = False
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    fleet.job.stop()
    report = await (await controlled.report("node-3", xid=64)).result()
    assert report.outcome == "resolved"
    assert [nodes for _, nodes in fleet.job.resumes] == [["node-1", "node-2", "spare-1", "node-4"]]
    assert fleet.job.state is JobState.RUNNING
    assert fleet.group_run_nodes[-1] == ["node-1", "node-2", "spare-1", "node-4"]


async def test_a_controller_without_restarts_left_is_told_to_people_and_nothing_is_restarted(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.job.controller_works = False
    fleet.job.restarts_left, fleet.job.ended = 0, "failed: reached max number of restarts"
    fleet.job.warnings = ["JobSet train has no restart left: raise spec.failurePolicy.maxRestarts"]
    fleet.inject("node-3", FakeFault(xid=64, cure=Cure.NEVER))
    fleet.job.stop()
    report = await (await controlled.report("node-3", xid=64)).result()
    assert report.outcome == "escalated"
    assert fleet.job.resumes == []
    assert any("maxRestarts" in " ".join(page.why) for page in fleet.pages)


async def test_a_job_that_runs_on_is_moved_off_the_bad_node_only_when_the_spare_is_proven(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.inject("node-3", FakeFault(slow=0.4, slow_kind="inter", cure=Cure.NEVER))
    hold = fleet.points.hold("job.supply", "spare-1")
    handle = await controlled.report("node-3", burn_in_failed=True, what="slow in its group")
    await hold.reached()
    assert fleet.job.state is JobState.RUNNING
    assert fleet.job.left == []
    hold.release()
    assert (await handle.result()).outcome == "resolved"
    assert fleet.job.left == ["node-3"]


async def test_two_nodes_of_one_job_are_one_recovery(tmp_path: Path) -> None:
    async with healing(tmp_path, spares=3, limits=ClusterSettings(max_nodes_out=3, max_percent_out=50.0)) as one:
        fleet = one.fleet
        fleet.job.restarted_by = RestartedBy.CONTROLLER
        for name in ("node-2", "node-3"):
            fleet.inject(name, FakeFault(xid=64, cure=Cure.NEVER))
        handles = [await one.report(name, xid=64) for name in ("node-2", "node-3")]
        reports = [await handle.result() for handle in handles]
        assert {report.outcome for report in reports} == {"resolved"}
        assert fleet.job.resumes == []
        assert {"node-2", "node-3"}.isdisjoint(fleet.job.nodes)
        assert len(set(fleet.job.nodes)) == 4


async def test_the_repaired_node_joins_the_pool_after_a_swap(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
    report = await (await controlled.report("node-1", xid=79)).result()
    assert (report.outcome, report.fate) == ("resolved", "probation")
    assert controlled.tags("node-1")[TAG_ROLE] == "spare"
    assert fleet.count("reboot", "node-1") == 1
    rungs = [attempt.rung for attempt in fleet.memory.recall(fleet.node("node-1").instance_id).attempts]
    assert rungs == [Action.REBOOT_NODE]


async def test_pods_are_drained_before_the_reboot_and_never_before_the_quarantine(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.drains = True
    await controlled.restart_worker()
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
    hold = fleet.points.hold("reboot", "node-1")
    handle = await controlled.report("node-1", xid=79)
    await hold.reached()
    assert fleet.count("drain", "node-1") == 1
    assert controlled.tags("node-1")[TAG_QUARANTINE]
    hold.release()
    assert (await handle.result()).outcome == "resolved"
    assert fleet.count("drain") == 1


async def test_a_drain_that_a_budget_holds_up_asks_a_person_and_restarts_nothing(controlled: Healing) -> None:
    fleet = controlled.fleet
    fleet.drains = True
    await controlled.restart_worker()
    fleet.inject("node-1", FakeFault(xid=79, cure=Cure.REBOOT))
    fleet.fail_next("drain", DeadlinePassed("pod team/db-0 is held by the budget team/db"), node="node-1")
    handle = await controlled.report("node-1", xid=79)
    await controlled.told(handle, "stuck")
    assert fleet.count("reboot") == 0
    assert "team/db-0" in (await handle.query("facts"))["stuck"]
    kinds = [grant.kind for grant in (await controlled.overview()).state.grants]
    assert AskKind.REPAIR_SLOT not in kinds
    await handle.execute_update("hand_back", Word(by="dana", reason="moved the database"))
    assert (await handle.result()).outcome == "resolved"
    assert (fleet.count("drain"), fleet.count("reboot", "node-1")) == (1, 1)
