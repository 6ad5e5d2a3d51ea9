"""What must end well on every orchestrator alike: the same scenarios on the command launcher, Kubernetes and Slurm."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from infra.lab.faults import Cure, Fault
from tests.clusters.world import ADAPTERS, Adapter, World, world
from workflows.messages import IncidentReport

pytestmark = pytest.mark.timeout(180)

SHORT_DRAIN = {"drain_deadline_s": 4.0}
"""So that a drain that is held up is told within seconds."""


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
async def on(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A lab on each adapter in turn, with Hotspare at work on it."""
    adapter: Adapter = request.param
    with mock.patch.dict(os.environ):  # what the lab sets is taken back
        async with world(tmp_path, adapter, policy={"boot_deadline_s": 8.0}, kubernetes=SHORT_DRAIN) as one:
            yield one


def story_of(*reports: IncidentReport) -> str:
    """What to read where a scenario ended badly."""
    return "\n".join(line for report in reports for line in report.story)


async def test_a_node_that_never_comes_back_is_replaced_and_stays_out(on: World) -> None:
    await on.spares("spare-1", "spare-2")
    await on.inject("node-2", Fault(xid=79, cure=Cure.NO_BOOT.value))
    report = await on.report("node-2")
    assert (report.outcome, report.fate) == ("resolved", "retired"), story_of(report)
    await on.trains_on(without=("node-2",))
    assert "node-2" in await on.stage.quarantined()
    assert on.reboots("node-2") == 1
    assert on.ours() == (0 if on.adapter.controlled else 1)


async def test_without_a_free_spare_the_node_is_repaired_where_it_is(on: World) -> None:
    await on.spares()
    await on.inject("node-2", Fault(xid=79, cure=Cure.REBOOT.value))
    if on.adapter.controlled:
        await on.told("node-2", "asks a person")  # nothing is idle that could prove it in a pair
        assert "node-2" in await on.stage.quarantined()
        await on.say("node-2", "approve", "its deep re-test passed", "RESTART_JOB")
    report = await on.report("node-2")
    assert (report.outcome, report.fate) == ("resolved", "back in service"), story_of(report)
    await on.trains_on(with_=("node-2",))
    assert on.reboots("node-2") == 1
    assert not await on.stage.quarantined()
    assert on.ours() == (0 if on.adapter.controlled else 1)


async def test_two_incidents_of_one_job_are_one_recovery(on: World) -> None:
    await on.spares("spare-1", "spare-2")
    await on.inject("node-3", Fault(xid=64, cure=Cure.NEVER.value))
    await on.inject("node-1", Fault(xid=94, cure=Cure.REBOOT.value))
    reports = [await on.report(name) for name in ("node-1", "node-3")]
    assert [report.outcome for report in reports] == ["resolved", "resolved"], story_of(*reports)
    await on.trains_on(with_=("node-1",), without=("node-3",))
    assert on.reboots("node-1") + on.reboots("node-3") == 0
    assert await on.stage.quarantined() == {"node-3"}
    assert on.ours() == (0 if on.adapter.controlled else 1)


async def test_a_node_that_somebody_else_keeps_out_of_service_is_left_to_them(on: World) -> None:
    await on.spares("spare-1", "spare-2")
    await on.keep_out("node-2")
    await on.inject("node-2", Fault(xid=79, cure=Cure.REBOOT.value))
    report = await on.report("node-2")
    assert report.outcome == "escalated", story_of(report)
    assert await on.kept_out("node-2")
    assert on.reboots("node-2") == 0
    assert "node-2" not in await on.stage.quarantined()
    assert any("node-2" in page["title"] or "node-2" in page["node"] for page in on.pages())


@pytest.mark.parametrize("on", [one for one in ADAPTERS if one.controlled], ids=lambda adapter: adapter.name, indirect=True)
async def test_a_drain_that_a_budget_holds_up_names_the_pod_and_waits_for_a_person(on: World) -> None:
    await on.spares("spare-1", "spare-2")
    await on.protect_pod("db-0", "node-2")
    await on.inject("node-2", Fault(xid=79, cure=Cure.REBOOT.value))
    assert "db-0" in await on.told("node-2", "stuck")
    await on.trains_on(without=("node-2",))
    assert on.reboots("node-2") == 0
    await on.unprotect_pods()
    await on.say("node-2", "hand_back", "the database has moved")
    report = await on.report("node-2")
    assert (report.outcome, report.fate) == ("resolved", "probation"), story_of(report)
    assert on.reboots("node-2") == 1
