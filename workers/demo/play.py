"""Plays the stories one after the other and judges each; the demonstration succeeds only when all end as they must."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

from workers.demo.ending import Ending, JobView, judge
from workers.demo.following import Follower, Told
from workers.demo.job_watch import JobWatch
from workers.demo.screen import Screen
from workers.demo.stage import Stage, set_stage
from workers.demo.stories import Setting, Story
from workers.demo.summary import summary

LOOK_S = 0.3
"""Between looks at the workflows and the job."""

STORY_LIMIT_S = 240.0
"""Most that a story may take before it counts as failed; each takes about a minute, and longer on a busy machine."""

CONTROLLED_LIMIT_S = 300.0
"""The same where a controller restarts the job: a Job waits 10 s, 20 s, 40 s after failures of a rank (Kubernetes, "Pod backoff
failure policy")."""


async def play(stories: tuple[Story, ...], folder: Path, screen: Screen, setting: Setting | None = None) -> bool:
    """Play the stories. Returns whether each ended as it must."""
    started = time.monotonic()
    results: list[tuple[Story, bool, float]] = []
    async with set_stage(folder, screen, setting) as stage:
        screen.opening(stories, stage.desk.settings.temporal.ui_url, (setting or Setting()).protocols)
        for number, story in enumerate(stories, start=1):
            screen.begin(number, len(stories), story)
            began = time.monotonic()
            kept = await play_one(story, stage, screen)
            results.append((story, kept, time.monotonic() - began))
            if not kept:
                ended = "" if stage.worker.alive else "hotspare run has ended by itself. "
                screen.failed(
                    f"{ended}XID {story.key} ended other than it must; no further story is played.", stage.worker.tail()
                )
                break
        screen.closing(results, time.monotonic() - started)
    return len(results) == len(stories) and all(kept for _, kept, _ in results)


async def play_one(story: Story, stage: Stage, screen: Screen) -> bool:
    """Play one story. Returns whether it ended as it must."""
    await stage.prepare(story)
    before = stage.job()
    job = await stage.job_name()
    reboots = stage.calls("RebootInstances")
    since = datetime.now(UTC)
    began = time.monotonic()
    follower = Follower(stage.desk.client, stage.desk.settings.name, stage.nodes, job, since)
    for line in await stage.inject(story.fault):
        screen.injected(story.fault.node, line)
    watch = JobWatch(before)
    with screen.live():
        told = await _follow(story, stage, screen, follower, watch, since)
    ending = Ending(
        job_before=before,
        job_after=stage.job(),
        reports=follower.reports,
        still_open=follower.open,
        reboots=_more(reboots, stage.calls("RebootInstances")),
        quarantined=await stage.quarantined(),
        stopped_at=watch.stopped_at,
        resumed_from=watch.resumed_from,
        stopped_s=watch.stopped_s,
        again_s=watch.again_s,
    )
    checks = judge(ending, story.expected, controlled=story.controlled)
    screen.end(story, checks, summary(story, ending, told, since), time.monotonic() - began)
    return all(check.kept for check in checks)


async def _follow(story: Story, stage: Stage, screen: Screen, follower: Follower, watch: JobWatch, since: datetime) -> list[Told]:
    """Show what happens until nothing is open and the job trains again, or the limit is reached, or the worker is gone."""
    began = time.monotonic()
    everything: list[Told] = []
    limit_s = CONTROLLED_LIMIT_S if story.controlled else STORY_LIMIT_S
    while (elapsed := time.monotonic() - began) < limit_s and stage.worker.alive:
        new = await follower.look()
        everything += new
        for told in new:
            screen.told(told, since)
        job = stage.job()
        watch.see(job, elapsed)
        screen.job(job, elapsed)
        if story.fault.node in follower.reports and not follower.open and _is_over(story, watch, job):
            break
        await asyncio.sleep(LOOK_S)
    return everything


def _is_over(story: Story, watch: JobWatch, job: JobView) -> bool:
    """Whether the job will change no more: it trains again or, where only Hotspare would start it, it has stopped for good."""
    return watch.trains_again(job) or (job.state != "RUNNING" and not story.controlled)


def _more(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in after.items()}
