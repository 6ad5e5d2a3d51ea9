"""Creates or updates the Schedules: of sweeps, and of the look for what was left behind."""

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

from activities.names import (
    QUEUE_WORKFLOWS,
    WORKFLOW_RECONCILE,
    WORKFLOW_SWEEP,
    reconcile_schedule_id,
    sweep_schedule_id,
)
from workers.settings import Settings
from workflows.messages import StartReconcile, StartSweep

CATCH_UP = timedelta(minutes=5)
"""Runs missed while the server was away are made up only this far back; the SDK's default is a year."""


async def schedule_sweep(client: Client, settings: Settings) -> str:
    """Schedule sweeps as the settings want them and say what was done. A paused schedule stays paused."""
    action = ScheduleActionStartWorkflow(
        WORKFLOW_SWEEP,
        StartSweep(cluster=settings.name),
        id=f"sweep/{settings.name}",
        task_queue=QUEUE_WORKFLOWS,
        static_summary=f"look at every node of {settings.name}",
    )
    return await _schedule(client, sweep_schedule_id(settings.name), action, settings.sweep.interval_s)


async def schedule_reconcile(client: Client, settings: Settings) -> str:
    """Schedule the look for what was left behind, likewise."""
    action = ScheduleActionStartWorkflow(
        WORKFLOW_RECONCILE,
        StartReconcile(cluster=settings.name),
        id=f"reconcile/{settings.name}",
        task_queue=QUEUE_WORKFLOWS,
        static_summary=f"what was left behind in {settings.name}",
    )
    return await _schedule(client, reconcile_schedule_id(settings.name), action, settings.sweep.reconcile_interval_s)


async def _schedule(client: Client, name: str, action: ScheduleActionStartWorkflow, interval_s: float) -> str:
    wanted = Schedule(
        action=action,
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=interval_s))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )
    every = f"every {interval_s:g} s"
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
