"""One run of one story: a fleet, a Temporal server, workers that can be killed, and time that passes only when all is quiet.

Nothing here waits for a time to pass. The server's clocks are turned when no workflow has anything left to do; only a stopped
call is waited for in real time, until the server gives it up, which the shortened time-outs make a matter of seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper

from activities import effects, names
from activities.clients.fake_fleet import FakeClock, FakeFleet, activities_of
from activities.clients.temporal_gateway import TemporalGateway
from activities.clock import beat
from activities.incidents import StartIncident
from activities.message import Message
from activities.node import Report
from tests.chaos.gateway import PointedGateway
from tests.chaos.points import WAITS_FOR_OTHERS, ChaosPoints, Disturbance, Kind, is_lost_letter, stands_still
from tests.chaos.stories import ChaosStory
from tests.chaos.workers import WorkerLife
from tests.workflows.healing import at_once
from tests.workflows.server import SharedServer
from workflows.cluster_messages import Overview
from workflows.decide import DecideActivities
from workflows.decisions.settings import ClusterSettings, Mode, PolicySettings
from workflows.messages import IncidentReport

ORDINARY_MARGIN_S = effects.ACT_MARGIN_S
_SHORT: list[float] = []
MARGIN_S = 0.5
"""Margin before the end of a shortened attempt in which it no longer acts."""

LONGEST_STEP_S = 1800.0
"""Longest turn of the clocks at once."""

AUDITS = 3
"""Turns of Cluster's clock until its letters are out: on a loaded machine a turn may not be taken in time."""

AUDITED_AFTER_S = 1300.0
"""Longer than a grant is booked on a holder that is gone: two audits of Cluster."""

LIMBO_S = 4 * 86_400.0
"""Skipped seconds after which a story that has not ended is in limbo: far above every deadline of ours together."""

STILL_S = 0.05
"""Seconds without a call after which it is worth to ask the server whether all is quiet. What it answers decides."""

PAUSE_S, LOOK_S = 0.02, 0.3
"""Between looks, from the first to the last of a row that saw nothing new. A look costs the server more than a step does."""

REAL_LIMIT_S = 240.0
"""The same in real seconds, against a hang of the harness."""

ASKS = ("asks a person", "unanswered", "page failed")
"""Phases of the last line of an incident that waits for a person."""


class Limbo(Exception):
    """The story has not ended, and nothing would end it."""


class ArenaClock(FakeClock):
    """FakeFleet's clock, but for waits that another workflow ends: their time passes as the arena turns its clocks."""

    def __init__(self, points: ChaosPoints) -> None:
        super().__init__(points)
        self.skipped_s = 0.0

    def now(self) -> float:
        return self.skipped_s if _waits_for_others() else super().now()

    def wait(self, seconds: float) -> None:
        if not _waits_for_others():
            return super().wait(seconds)
        time.sleep(STILL_S)
        return beat()


def _waits_for_others() -> bool:
    return activity.in_activity() and activity.info().activity_type in WAITS_FOR_OTHERS


@dataclass
class Arena:
    """What a story plays in."""

    fleet: FakeFleet
    points: ChaosPoints
    env: TimeSkipper
    clock: ArenaClock
    folder: Path
    resume_first: bool = True
    short_attempts: bool = False
    skipped_s: float = 0.0
    _worker: WorkerLife | None = None
    _step_s: float = 1.0
    _progress: int = 0
    _asked_at: float = 0.0
    _last: tuple[int, int] = (0, 0)
    _reported: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        """The test's own line to the server, which is never cut."""
        return self.env.client

    async def new_worker(self, number: int) -> None:
        """Begin a worker with today's settings."""
        self.points.worker = number
        gateway = PointedGateway(TemporalGateway(self.client), self.points, number)
        policy = PolicySettings(mode=Mode.ACT, resume_first=self.resume_first)
        decide = DecideActivities(policy, at_once(ClusterSettings()), self.fleet.cluster, attributes=False)
        activities = [*self.fleet.activities(gateway, self.folder), *activities_of(decide)]
        target = self.client.service_client.config.target_host
        namespace = self.client.namespace
        self._worker = WorkerLife(number, target, namespace, activities, short_attempts=self.short_attempts)
        await self._worker.begin()

    async def end(self) -> None:
        """Stop the worker, and end what is still open: the next story has a fleet of its own."""
        if self._worker is not None:
            await self._worker.stop()
        for key in _open(await self.views()):
            with suppress(RPCError):
                await self.client.get_workflow_handle(key).terminate("the story is over")

    async def report(self, alias: str, **report: Any) -> None:
        """Report a fault as a machine does."""
        node = self.fleet.node(alias)
        start = StartIncident(node=alias, cluster=self.fleet.cluster, report=Report(source="watcher", **report))
        joined = await TemporalGateway(self.client).report_fault(start, node.instance_id)
        self._reported.append(joined.workflow_id)

    async def begin(self, workflow: str, workflow_id: str, start: Message) -> None:
        """Start a workflow as a person does."""
        await self.client.start_workflow(workflow, start, id=workflow_id, task_queue=names.QUEUE_WORKFLOWS)
        self._reported.append(workflow_id)

    def watch(self, workflow_id: str) -> None:
        """Count a workflow that others may start as one of this story, from its start on."""
        self._reported.append(workflow_id)

    @property
    def begun(self) -> str:
        """The workflow that the story began with."""
        return self._reported[0]

    async def overview(self) -> Overview:
        """Return the books of Cluster."""
        handle = self.client.get_workflow_handle(names.cluster_id(self.fleet.cluster))
        overview: Overview = await handle.query("overview", result_type=Overview)
        return overview

    async def ready(self) -> None:
        """Wait until Cluster has recovered."""
        await TemporalGateway(self.client).ensure_cluster(self.fleet.cluster)
        while (await self.overview()).recovering:  # noqa: ASYNC110  (the server has no event to wait for)
            await asyncio.sleep(0.01)

    async def play(self) -> None:
        """Go on until every workflow has ended or waits for a person. Raises Limbo when that never comes."""
        until = time.monotonic() + REAL_LIMIT_S
        pause_s = PAUSE_S
        while True:
            await self._serve_disturbance()
            if time.monotonic() > until:
                raise Limbo(f"no end after {REAL_LIMIT_S:.0f} s: {', '.join(_open(await self.views()))}")
            if time.monotonic() - self.points.last_call < STILL_S or self._stands_still():
                await asyncio.sleep(PAUSE_S)
                continue
            views = await self.views()
            if self._quiet(views):
                pause_s = PAUSE_S
                if await self._all_ended(views):
                    return
                await self._turn_clocks(views)
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, LOOK_S)
            if self.skipped_s > LIMBO_S:
                raise Limbo(f"after {self.skipped_s / 3600:.0f} h: {', '.join(_open(views))}")

    def _stands_still(self) -> bool:
        disturbance = self.points.disturbance
        return disturbance is not None and disturbance.stopped

    async def audited(self) -> None:
        """End an outage of letters, and let Cluster see what came of it: it looks for the holders of its grants by the clock."""
        assert self.points.disturbance is not None
        self.points.disturbance.ended = True
        await self.play()
        for _ in range(AUDITS):
            self._step_s = AUDITED_AFTER_S
            await self._turn(names.cluster_id(self.fleet.cluster))
            await self.play()
            if not (await self.overview()).state.outbox:
                return

    async def views(self) -> dict[str, WorkflowExecutionDescription]:
        """Describe every workflow of the story."""
        known = sorted(self.points.workflows | set(self._reported) | {names.cluster_id(self.fleet.cluster)})
        seen = {}
        while known:
            workflow_id = known.pop()
            with suppress(RPCError):
                seen[workflow_id] = await self.client.get_workflow_handle(workflow_id).describe()
                children = [one.workflow_id for one in seen[workflow_id].raw_description.pending_children]
                known += [child for child in children if child not in seen and child not in known]
        return seen

    async def _serve_disturbance(self) -> None:
        """Kill the worker at a call that asks for it; let a stopped call go once another attempt has begun."""
        disturbance = self.points.disturbance
        if disturbance is None or not disturbance.stopped:
            return
        if disturbance.kind is Kind.CANCELLED:
            await self._cancel()
            disturbance.go()
        elif disturbance.kind is not Kind.HANGS:
            assert self._worker is not None
            number = self._worker.number
            self.points.dead.add(number)
            self._worker.kill()
            disturbance.go()  # what is left of the dead ends, unheard
            await self.new_worker(number + 1)
        elif disturbance.taken_over:
            disturbance.go()
        elif time.monotonic() - self._asked_at > LOOK_S:
            self._asked_at = time.monotonic()
            if await self._given_up(disturbance):
                disturbance.go()

    async def _cancel(self) -> None:
        """Cancel the incident that the story began with, as a person does."""
        with suppress(RPCError):  # it may be about to end
            await self.client.get_workflow_handle(self._reported[0]).cancel(reason="ann: not now")

    async def _given_up(self, disturbance: Disturbance) -> bool:
        """Whether the server waits no longer for the stopped attempt. Local activities are not the server's."""
        victim = disturbance.victim
        assert victim is not None
        if disturbance.key.activity in ("post", "post_to_cluster"):
            return False
        try:
            seen = await self.client.get_workflow_handle(victim.workflow_id, run_id=victim.run_id).describe()
        except RPCError:
            return True
        pending = [one for one in seen.raw_description.pending_activities if one.activity_id == victim.activity_id]
        return not pending

    def _quiet(self, views: dict[str, WorkflowExecutionDescription]) -> bool:
        """Whether nothing is left to do but to wait, seen twice with nothing done in between."""
        busy = any(_busy(view) for view in views.values())
        now = (sum(view.history_length for view in views.values()), self.points.different)
        before, self._last = self._last, now
        return not busy and now == before

    async def _all_ended(self, views: dict[str, WorkflowExecutionDescription]) -> bool:
        running = [key for key in _open(views) if not key.startswith("cluster/")]
        return all([names.is_incident(key) and not _acts(views[key]) and await self.waits_for_person(key) for key in running])

    async def waits_for_person(self, incident: str) -> bool:
        """Whether an incident waits for a word."""
        handle = self.client.get_workflow_handle(incident)
        story = await handle.query("story")
        facts = await handle.query("facts")
        asks = bool(story) and story[-1]["phase"] in ASKS
        return asks and (facts is None or facts.get("asked_since") is not None)

    async def _turn_clocks(self, views: dict[str, WorkflowExecutionDescription]) -> None:
        """Turn the clock of every open workflow by the same time: more with each turn that brings nothing but the same again."""
        progress = self.points.different
        self._step_s = 1.0 if progress > self._progress else min(self._step_s * 4, LONGEST_STEP_S)
        self._progress = progress
        await asyncio.gather(*(self._turn(key) for key in _open(views) if not _awaits_others(views[key])))
        self.skipped_s += self._step_s
        self.clock.skipped_s = self.skipped_s

    async def _turn(self, workflow_id: str) -> None:
        with suppress(RPCError, RuntimeError, TimeoutError):  # it may end, or begin something, at this very moment
            await asyncio.wait_for(self.env.fast_forward(self.client.get_workflow_handle(workflow_id), self._step_s), 2)

    async def reports(self) -> dict[str, IncidentReport]:
        """Results of the incidents that have ended by themselves, by workflow id."""
        ended = {}
        for key, view in (await self.views()).items():
            if names.is_incident(key) and view.status is WorkflowExecutionStatus.COMPLETED:
                ended[key] = await self.client.get_workflow_handle(key, result_type=IncidentReport).result()
        return ended


def _open(views: dict[str, WorkflowExecutionDescription]) -> list[str]:
    return sorted(key for key, view in views.items() if view.status is WorkflowExecutionStatus.RUNNING)


def _busy(view: WorkflowExecutionDescription) -> bool:
    if view.status is not WorkflowExecutionStatus.RUNNING:
        return False
    raw = view.raw_description
    if raw.HasField("pending_workflow_task") or any(not child.run_id for child in raw.pending_children):
        return True
    info = raw.workflow_extended_info
    skips = info.HasField("time_skipping_info")
    now = info.time_skipping_info.current_time.ToDatetime(UTC) if skips else datetime.now(UTC)
    return any(
        not _is_wait(one)
        and (one.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED or one.scheduled_time.ToDatetime(UTC) <= now)
        for one in raw.pending_activities
    )


@asynccontextmanager
async def ground() -> AsyncIterator[TimeSkipper]:
    """A Temporal server on which one story after the other may be played."""
    server = SharedServer()
    try:
        yield await server.namespace()
    finally:
        server.stop()


@asynccontextmanager
async def arena(
    env: TimeSkipper, folder: Path, *, story: ChaosStory, cluster: str = "lab", disturbance: Disturbance | None = None
) -> AsyncIterator[Arena]:
    """Bring up a story's fleet and a worker on a server; leave nothing running there."""
    points = ChaosPoints(lambda workflow_id: label_of(fleet, workflow_id), lambda node: name_of(fleet, node))
    fleet = FakeFleet(nodes=4, spares=story.spares, cluster=cluster, points=points)
    story.set_up(fleet)
    clock = ArenaClock(points)
    fleet.clock = clock
    short = stands_still(disturbance) or is_lost_letter(disturbance)
    one = Arena(fleet, points, env, clock, folder, resume_first=story.resume_first, short_attempts=short)
    with _margin_for(disturbance):
        try:
            await one.new_worker(1)
            await one.ready()
            points.steps.clear()
            points.disturbance = disturbance
            yield one
        finally:
            if disturbance is not None:
                disturbance.go()
            await one.end()


def _is_wait(pending: PendingActivityInfo) -> bool:
    started = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return started and pending.activity_type.name in WAITS_FOR_OTHERS


def _acts(view: WorkflowExecutionDescription) -> bool:
    """Whether a step is under way: one that nobody answered about may be tried once more. A page goes out beside the work."""
    return any(one.activity_type.name != "page" for one in view.raw_description.pending_activities)


def _awaits_others(view: WorkflowExecutionDescription) -> bool:
    """Whether the server would not turn this workflow's clock, because it waits in an activity."""
    return any(_is_wait(one) for one in view.raw_description.pending_activities)


@contextmanager
def _margin_for(disturbance: Disturbance | None) -> Iterator[None]:
    """An attempt with a shorter time acts until nearer to its end. Stories play side by side: the last one out puts it back."""
    if not stands_still(disturbance):
        yield
        return
    _SHORT.append(MARGIN_S)
    effects.ACT_MARGIN_S = MARGIN_S
    try:
        yield
    finally:
        _SHORT.pop()
        if not _SHORT:
            effects.ACT_MARGIN_S = ORDINARY_MARGIN_S


def name_of(fleet: FakeFleet, node: str) -> str:
    """The name that people use for a node, a job or a workflow."""
    for entry in fleet.entries:
        if node in (entry.instance_id, entry.name):
            return entry.name
    return label_of(fleet, node) if "/" in node else node


def label_of(fleet: FakeFleet, workflow_id: str) -> str:
    """The name of a workflow in a table: its kind and its node."""
    kind, _, rest = workflow_id.partition("/")
    key = rest.removeprefix(f"{fleet.cluster}/")
    if kind in ("incident", "replace", "qualify"):
        return f"{kind} {name_of(fleet, key)}"
    return kind if kind in ("cluster", "burn-in") else f"{kind} {key}"
