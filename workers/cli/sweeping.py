"""Creates or updates the Schedule that starts sweeps."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from activities.names import QUEUE_WORKFLOWS, WORKFLOW_SWEEP, sweep_schedule_id
from workers.settings import Settings
from workflows.messages import StartSweep

CATCH_UP = timedelta(minutes=5)
"""Sweeps missed while the server was away are made up only this far back; the SDK's default is a year."""


async def schedule_sweep(client: Client, settings: Settings) -> str:
    """Make the schedule as the settings want it and say what was done. A paused schedule stays paused."""
    name = sweep_schedule_id(settings.name)
    wanted = _wanted(settings)
    every = f"every {settings.sweep.interval_s:g} s"
    try:
        await client.create_schedule(name, wanted)
        return f"scheduled {every}"
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(name).update(lambda seen: _updated(seen, wanted))
        return f"scheduled before, now {every}"


def _updated(seen: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate:
    return ScheduleUpdate(
        Schedule(action=wanted.action, spec=wanted.spec, policy=wanted.policy, state=seen.description.schedule.state)
    )


def _wanted(settings: Settings) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            WORKFLOW_SWEEP,
            StartSweep(cluster=settings.name),
            id=f"sweep/{settings.name}",
            task_queue=QUEUE_WORKFLOWS,
            static_summary=f"look at every node of {settings.name}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=settings.sweep.interval_s))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )
