"""The three stories of the demonstration in the lab end well though a part dies while a call is held.

The worker gets SIGKILL, the Temporal server is stopped and begun again on its database file, or a node's SSH connections are cut.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.service import RPCError

from activities import names
from infra.lab.holds import Hold
from infra.lab.lab import Lab
from infra.lab.options import LabOptions
from workers.demo.ending import Ending, judge
from workers.demo.following import Follower
from workers.demo.job_watch import JobWatch
from workers.demo.screen import Screen
from workers.demo.stage import NODES, SPARES, Stage, at_work
from workers.demo.stories import STORIES, Story
from workers.demo.worker_process import WorkerProcess

LOOK_S = 0.2

STORY_LIMIT_S = 240.0
"""Against a hang; a story takes well under a minute on an idle machine."""


@dataclass(frozen=True)
class Moment:
    """A call of a story that is held: how it is held, and the node whose SSH server serves it, if one does."""

    hold: Callable[[Stage], Hold]
    ssh_node: str = ""


def _call(operation: str, node: str) -> Moment:
    return Moment(lambda stage: stage.lab.endpoint.hold(operation, instance_id=stage.lab.nodes[node].instance_id))


def _command(node: str, words: str) -> Moment:
    return Moment(lambda stage: stage.lab.ssh.hold(node, words), node)


EFFECT = {"79": _call("RebootInstances", "node-2"), "64": _call("CreateTags", "spare-1"), "94": _command("head", "mpirun")}
"""What is held when the worker is killed, or the server restarted."""

OVER_SSH = {
    "79": _command("node-2", "all_reduce_perf"),
    "64": _command("spare-1", "all_reduce_perf"),
    "94": _command("head", "trainctl resume"),
}
"""What is held when the connection that carries it is cut."""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Hotspare at work on a lab whose Temporal server keeps its state in a file."""
    options = LabOptions(folder=tmp_path / "lab", nodes=NODES, spares=SPARES, temporal_keeps_state=True)
    async with Lab(options) as lab, at_work(lab, Screen()) as ready:
        yield ready


class Play:
    """One story on the stage, disturbed at one call, followed to its end and judged as the demonstration judges it."""

    def __init__(self, stage: Stage, story: Story, moment: Moment) -> None:
        self.stage, self.story = stage, story
        self._moment = moment

    async def begin(self) -> Hold:
        """Break the node, and return the held call once it has arrived."""
        await self.stage.prepare(self.story)
        self._before, self._reboots = self.stage.job(), self.stage.calls("RebootInstances")
        cluster, client = self.stage.desk.settings.name, self.stage.desk.client
        self._follower = Follower(client, cluster, self.stage.nodes, self._before.name, datetime.now(UTC))
        self._watch = JobWatch(self._before)
        hold = self._moment.hold(self.stage)
        await self.stage.inject(self.story.fault)
        await self._until(hold.reached())
        return hold

    async def second_attempt(self) -> None:
        """Wait until the server has given an interrupted activity to another worker."""

        async def seen() -> None:
            while not await self._tried_again():  # noqa: ASYNC110  (the server has no event to wait for)
                await asyncio.sleep(LOOK_S)

        await self._until(seen())

    async def end(self) -> list[str]:
        """Follow the story to its end; returns the promises that were broken."""

        async def ended() -> None:
            while not (self.story.fault.node in self._follower.reports and not self._follower.open and self._trains()):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)

        with suppress(TimeoutError):
            await self._until(ended())
        after = self.stage.calls("RebootInstances")
        ending = Ending(
            job_before=self._before,
            job_after=self.stage.job(),
            reports=self._follower.reports,
            still_open=self._follower.open,
            reboots={name: count - self._reboots.get(name, 0) for name, count in after.items()},
            quarantined=await self.stage.quarantined(),
            stopped_at=self._watch.stopped_at,
            resumed_from=self._watch.resumed_from,
        )
        return [f"{check.promise}: {check.seen}" for check in judge(ending, self.story.expected) if not check.kept]

    async def left_behind(self) -> list[str]:
        """Leases that nobody holds, and what Cluster still books."""
        desk = self.stage.desk
        views = await asyncio.to_thread(desk.wiring.ec2.describe_cluster, desk.settings.name)
        return [f"{view.instance_id} is leased to {lease}" for view in views if (lease := view.tags.get(names.TAG_LEASE))]

    def _trains(self) -> bool:
        return self._watch.trains_again(self.stage.job())

    async def _tried_again(self) -> bool:
        client, cluster = self.stage.desk.client, self.stage.desk.settings.name
        known = [names.job_id(cluster, self._before.name)]
        known += [name(cluster, key) for key in self.stage.nodes for name in (names.incident_id, names.replace_id)]
        while known:
            with suppress(RPCError):
                seen = (await client.get_workflow_handle(known.pop()).describe()).raw_description
                known += [child.workflow_id for child in seen.pending_children]
                if any(pending.attempt > 1 for pending in seen.pending_activities):
                    return True
        return False

    async def _until(self, done: object) -> None:
        """Wait for something, looking at the job and at the workflows meanwhile."""
        waiting = asyncio.ensure_future(done)  # type: ignore[call-overload]
        began = time.monotonic()
        while not waiting.done():
            if time.monotonic() - began > STORY_LIMIT_S:
                waiting.cancel()
                raise TimeoutError(f"XID {self.story.key}: not within {STORY_LIMIT_S:.0f} s")
            self._watch.see(self.stage.job(), time.monotonic() - began)
            with suppress(RPCError):  # the server may be away
                await self._follower.look()
            await asyncio.wait([waiting], timeout=LOOK_S)
        await waiting


every_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: f"xid-{story.key}")
patient = pytest.mark.timeout(900)


@every_story
@patient
async def test_a_worker_that_is_killed_at_an_effect_changes_no_end_of_a_story(stage: Stage, story: Story, tmp_path: Path) -> None:
    play = Play(stage, story, EFFECT[story.key])
    hold = await play.begin()
    await stage.worker.kill()
    async with AsyncExitStack() as second:
        await second.enter_async_context(WorkerProcess(tmp_path / "second.log"))
        await play.second_attempt()
        hold.release()
        assert await play.end() == []
        assert await play.left_behind() == []


@every_story
@patient
async def test_a_temporal_server_that_restarts_at_an_effect_changes_no_end_of_a_story(stage: Stage, story: Story) -> None:
    assert stage.lab.temporal is not None
    play = Play(stage, story, EFFECT[story.key])
    hold = await play.begin()
    await stage.lab.temporal.stop()
    hold.release()
    await stage.lab.temporal.start()
    assert await play.end() == []
    assert await play.left_behind() == []


@every_story
@patient
async def test_ssh_that_is_cut_in_the_middle_of_a_command_changes_no_end_of_a_story(stage: Stage, story: Story) -> None:
    moment = OVER_SSH[story.key]
    play = Play(stage, story, moment)
    hold = await play.begin()
    server = stage.lab.nodes[moment.ssh_node].server
    await server.stop()
    hold.release()
    await server.start()
    assert await play.end() == []
    assert await play.left_behind() == []
