"""Workflows stuck on their own code: found, paged once, set going after the mend, with nothing done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from activities.clients.fake_fleet import FakeFleet
from activities.clients.fake_machine import Cure, FakeFault
from activities.clients.temporal_gateway import TemporalGateway
from activities.errors import TransientError
from activities.names import cluster_id, incident_id
from activities.notify import Page
from tests.workers.fakes import FakePager
from tests.workers.test_cli import Shell
from tests.workers.test_cli import shell as shell  # a fixture
from workers.sections import WorkerSettings
from workers.wedged import OUR_TYPES, Wedged, carry_out, find_wedged, is_of, look_for_wedge, plan_for
from workers.wedged_watch import WedgeWatch
from workflows import incident_steps
from workflows.registry import WORKFLOWS

FAILED_ONCE = 2
SOUND_STEP = incident_steps.collect_evidence
DONE: Counter[str] = Counter()


@activity.defn
async def quarantine() -> None:
    DONE[activity.info().workflow_id or ""] += 1


@activity.defn
async def another() -> None:
    """What the changed code asks for instead."""


class Sound:
    """A workflow with one effect that then waits to be told to go on."""

    def __init__(self) -> None:
        self.told = False

    @workflow.run
    async def run(self) -> str:
        await workflow.execute_activity(quarantine, start_to_close_timeout=timedelta(seconds=5))
        await workflow.wait_condition(lambda: self.told)
        return self.end()

    def end(self) -> str:
        return "done"

    @workflow.signal
    def go_on(self) -> None:
        self.told = True


@workflow.defn(name="RemediateNode", sandboxed=False)
class SoundIncident(Sound):
    @workflow.run
    async def run(self) -> str:
        return await super().run()


@workflow.defn(name="RemediateNode", sandboxed=False)
class FaultyIncident(Sound):
    @workflow.run
    async def run(self) -> str:
        return await super().run()

    def end(self) -> str:
        raise RuntimeError("a plain bug")


@workflow.defn(name="RemediateNode", sandboxed=False)
class ChangedIncident(Sound):
    @workflow.run
    async def run(self) -> str:
        await workflow.execute_activity(another, start_to_close_timeout=timedelta(seconds=5))
        return await super().run()


class Scene:
    """One incident of a cluster of its own, on the session's server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cluster = f"c{uuid4().hex[:8]}"
        self.id = incident_id(self.cluster, "i-001")
        self.queue = self.cluster

    @asynccontextmanager
    async def worker(self, code: type) -> AsyncIterator[None]:
        async with Worker(self.client, task_queue=self.queue, workflows=[code], activities=[quarantine, another]):
            yield

    async def begun(self) -> WorkflowHandle[Any, Any]:
        """An incident whose effect is made, and whose worker is gone."""
        async with self.worker(SoundIncident):
            handle = await self.client.start_workflow("RemediateNode", id=self.id, task_queue=self.queue)
            await until(lambda: DONE[self.id] == 1)
            while (await handle.describe()).raw_description.pending_activities:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while (await handle.describe()).raw_description.HasField("pending_workflow_task"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return handle

    async def wedged_by(self, code: type) -> Wedged:
        """The incident once it is stuck on this code, and the worker with it is gone."""
        handle = await self.begun()
        async with self.worker(code):
            await handle.signal("go_on")
            while True:
                found = await look_for_wedge(self.client, self.id, FAILED_ONCE)
                if found is not None:
                    return found
                await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110, the other side has no event to wait for
        await asyncio.sleep(0.01)


@pytest.fixture
def scene(client: Client) -> Scene:
    return Scene(client)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_bug_in_workflow_code_is_found_with_its_words_and_goes_on_after_the_mend(scene: Scene) -> None:
    wedged = await scene.wedged_by(FaultyIncident)
    assert (wedged.workflow_id, wedged.node, wedged.cause) == (scene.id, "i-001", "WORKFLOW_WORKER_UNHANDLED_FAILURE")
    assert "a plain bug" in wedged.says
    plan = await plan_for(scene.client, wedged)
    assert (plan.again, plan.recovers) == ((), False)
    run_id = await carry_out(scene.client, plan, "hotspare unwedge by ann: mended")
    async with scene.worker(SoundIncident):
        assert await scene.client.get_workflow_handle(scene.id, run_id=run_id).result() == "done"
    assert DONE[scene.id] == 1
    history = await scene.client.get_workflow_handle(scene.id, run_id=run_id).fetch_history()
    assert "hotspare unwedge by ann: mended" in str(history.events)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_history_that_does_not_fit_the_code_goes_on_from_its_last_good_task(scene: Scene) -> None:
    wedged = await scene.wedged_by(ChangedIncident)
    assert wedged.cause == "NON_DETERMINISTIC_ERROR"
    assert "quarantine" in wedged.says
    await carry_out(scene.client, await plan_for(scene.client, wedged), "the old release is back")
    async with scene.worker(SoundIncident):
        assert await scene.client.get_workflow_handle(scene.id).result() == "done"
    assert DONE[scene.id] == 1


@pytest.mark.asyncio(loop_scope="session")
async def test_from_the_start_the_plan_names_what_is_ordered_once_more(scene: Scene) -> None:
    plan = await plan_for(scene.client, await scene.wedged_by(ChangedIncident), from_start=True)
    assert plan.again == ("quarantine",)
    assert "ordered once more, under their old tokens: quarantine" in plan.words()
    await carry_out(scene.client, plan, "no code fits it")
    async with scene.worker(ChangedIncident):
        assert await scene.client.get_workflow_handle(scene.id).result() == "done"


def test_every_workflow_is_looked_at_and_scheduled_ones_are_of_their_cluster() -> None:
    assert {str(one.__name__) for one in WORKFLOWS} == set(OUR_TYPES)
    ids = ["sweep/lab-2026-11-30T02:45:00Z", "reconcile/lab-2026-11-30T02:45:00Z", "incident/lab/i-1", "sweep/lab", "by-hand"]
    assert [one for one in ids if not is_of("lab", one)] == []
    assert not is_of("lab", "sweep/lab-b-2026-11-30T02:45:00Z")
    assert not is_of("lab", "incident/lab-b/i-1")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_workflow_that_merely_has_no_worker_is_not_stuck(scene: Scene) -> None:
    handle = await scene.begun()
    await handle.signal("go_on")
    assert await look_for_wedge(scene.client, scene.id, FAILED_ONCE) is None
    assert await look_for_wedge(scene.client, "incident/nobody/i-1", FAILED_ONCE) is None


@pytest.mark.asyncio(loop_scope="session")
async def test_the_keeper_of_the_books_begins_anew_where_its_history_does_not_fit(scene: Scene) -> None:
    stuck = Wedged(cluster_id("lab"), "run", "Cluster", 3, None, "NON_DETERMINISTIC_ERROR", "", other_code=True)
    plan = await plan_for(scene.client, stuck)
    assert plan.recovers
    assert "grants nothing until every holder has said what it holds" in plan.words()


@pytest.mark.asyncio(loop_scope="session")
async def test_people_are_told_of_a_stuck_workflow_once_with_the_cause_and_the_command(scene: Scene) -> None:
    await scene.wedged_by(FaultyIncident)
    memory, pager = FakeFleet().memory, FakePager()
    settings = WorkerSettings(wedged_attempts=FAILED_ONCE)
    await listed(scene)
    for _ in range(2):  # as two workers, or one that is restarted
        watch = WedgeWatch(scene.cluster, scene.client, pager, memory, settings, "http://ui.example/")
        for _ in range(2):
            assert [one.workflow_id for one in await watch.look()] == [scene.id]
    [page] = pager.pages
    assert page.node == "i-001"
    assert "a plain bug" in page.why[0]
    assert "hotspare unwedge i-001" in page.next_commands
    assert page.ui_link.startswith("http://ui.example/namespaces/default/workflows/incident%2F")
    others = WedgeWatch("another", scene.client, pager, memory, settings)
    assert await others.look() == []


@pytest.mark.asyncio(loop_scope="session")
async def test_a_page_that_nobody_took_is_sent_again_at_the_next_look(scene: Scene) -> None:
    class Away(FakePager):
        away = True

        def send(self, page: Page) -> None:
            if self.away:
                raise TransientError("the pager does not answer")
            super().send(page)

    await scene.wedged_by(FaultyIncident)
    await listed(scene)
    pager = Away()
    watch = WedgeWatch(scene.cluster, scene.client, pager, FakeFleet().memory, WorkerSettings(wedged_attempts=FAILED_ONCE))
    await watch.look()
    pager.away = False
    await watch.look()
    assert len(pager.pages) == 1


async def listed(scene: Scene) -> None:
    """Wait until visibility, which lags, shows the incident."""
    while not await find_wedged(scene.client, scene.cluster, FAILED_ONCE):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def stuck(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """A real incident that is stuck after its quarantine, because the next step has a bug."""

    async def broken(incident: object, step: object) -> None:
        raise RuntimeError("no evidence for you")

    healing = shell.healing
    await healing.stop_worker()
    monkeypatch.setattr(incident_steps, "collect_evidence", broken)
    await healing.start_worker()
    healing.fleet.inject("node-2", FakeFault(xid=79, cure=Cure.REBOOT))
    handle = await healing.report("node-2", xid=79)
    while await look_for_wedge(healing.client, handle.id, FAILED_ONCE) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return handle.id


async def test_unwedge_says_beforehand_what_it_will_do_and_sets_a_real_incident_going_after_the_mend(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await stuck(shell, monkeypatch)
    fleet = shell.healing.fleet
    status, out, _ = await shell.type("unwedge", "node-2", "--dry-run")
    assert status == 1
    assert "no evidence for you" in out
    assert "would go on from event" in out
    assert "nothing was done" in out
    status, out, _ = await shell.type("unwedge", "node-2")
    assert (status, "do not have the mend" in out) == (1, True)
    await shell.healing.stop_worker()
    monkeypatch.setattr(incident_steps, "collect_evidence", SOUND_STEP)
    typed = asyncio.ensure_future(shell.type("unwedge", "node-2", "--reason", "evidence is back"))
    await shell.healing.start_worker()
    status, out, _ = await typed
    assert (status, "goes on" in out or "is not stuck" in out) == (0, True)
    await shell.waits_for_person("node-2")
    assert fleet.count("set_tags", "node-2") == 1
    await TemporalGateway(shell.healing.client).signal(workflow_id, "report_fault", {"source": "watcher", "xid": 79})
    status, out, _ = await shell.type("unwedge")
    assert (status, "no workflow is stuck" in out) == (0, True)


async def test_unwedge_of_a_node_without_an_incident_and_of_an_unknown_one(shell: Shell) -> None:
    status, out, _ = await shell.type("unwedge", "node-1")
    assert (status, "node-1 is not stuck" in out) == (0, True)
    status, _, err = await shell.type("unwedge", "node-77")
    assert (status, "did you mean" in err) == (64, True)
    status, _, err = await shell.type("unwedge", "node-1", "--all")
    assert (status, "--all" in err) == (64, True)
