"""Time-outs, retries and queues of every activity, in one named table; call sites hold no literals.

`schedule_to_start` says "no worker of this role": the limit within which a worker must pick the activity up.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from activities import names

NO_WORKER = timedelta(minutes=10)
HEARTBEAT = timedelta(seconds=10)  # a cancel reaches an activity with its next heartbeat, so within ten seconds

PATIENCE = timedelta(minutes=30)
"""How long something that must get through is tried before a person is asked. Hotspare default: short outages end."""

SILENCE = timedelta(seconds=30)
"""Longest silence of an attempt that disrupts. It looks for a boot id without a sign of life, 10 s each time, before it acts."""


class Options(TypedDict, total=False):
    """Keyword arguments of `workflow.execute_activity_method`."""

    task_queue: str
    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    schedule_to_start_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType


QUICK_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=20), maximum_attempts=8)
EFFECT_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5), maximum_attempts=30)
"""Enough short attempts to watch for the effect of a lost one until EC2 itself would have ended a reboot."""

PATIENT_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60))

LOOK_UP: Options = {
    "task_queue": names.QUEUE_AWS,
    "start_to_close_timeout": timedelta(seconds=30),
    "schedule_to_start_timeout": NO_WORKER,
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": PATIENT_RETRY,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}
"""Inventory and host memory: nothing goes on without them, so they are retried patiently."""

NOTE: Options = {
    "task_queue": names.QUEUE_AWS,
    "start_to_close_timeout": timedelta(seconds=10),
    "schedule_to_start_timeout": timedelta(seconds=10),
    "schedule_to_close_timeout": timedelta(seconds=20),
    "retry_policy": RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3),
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}
"""What host memory had better know, while a job waits: tried for a moment."""

EXAMINE: Options = {
    "task_queue": names.QUEUE_SSH,
    "start_to_close_timeout": timedelta(seconds=120),
    "schedule_to_start_timeout": NO_WORKER,
    "heartbeat_timeout": timedelta(seconds=90),
    "retry_policy": QUICK_RETRY,
}
"""A probe of one node."""

MARK: Options = {
    "task_queue": names.QUEUE_SSH,
    "start_to_close_timeout": timedelta(seconds=60),
    "schedule_to_start_timeout": NO_WORKER,
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": PATIENT_RETRY,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}
"""Quarantine marks: must get through, so retried for as long as it takes."""

EVIDENCE: Options = {
    "task_queue": names.QUEUE_SSH_SLOW,
    "start_to_close_timeout": timedelta(seconds=180),
    "schedule_to_start_timeout": timedelta(minutes=2),
    "heartbeat_timeout": timedelta(seconds=90),
    "retry_policy": RetryPolicy(maximum_attempts=2),
}
"""The evidence bundle is worth a short wait, never a long one."""

DISRUPT: Options = {
    "task_queue": names.QUEUE_AWS,
    "start_to_close_timeout": timedelta(seconds=60),
    "schedule_to_start_timeout": timedelta(seconds=60),  # a grant is good for one step within a minute
    "heartbeat_timeout": SILENCE,
    "retry_policy": EFFECT_RETRY,
    "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
}
"""Reboot and reset: short attempts, so that a stuck one ends before the next begins."""

RESET: Options = {**DISRUPT, "task_queue": names.QUEUE_SSH}
"""GPU reset, over the node's access."""

GIVE_UP: Options = {**DISRUPT, "task_queue": names.QUEUE_SSH}
"""The drain that has a node replaced, over the head node's access."""

WATCH_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60), maximum_attempts=35)
"""About half an hour of failures, as `PATIENCE`; a person hears then, not after the whole watch."""

DRAIN: Options = {
    **DISRUPT,
    "task_queue": names.QUEUE_K8S,
    "start_to_close_timeout": timedelta(hours=3),
    "schedule_to_start_timeout": NO_WORKER,
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": WATCH_RETRY,
}
"""Eviction of a node's pods, which has a deadline of its own (kubernetes.drain_deadline_s)."""

POWER_CYCLE: Options = {
    **DISRUPT,
    "start_to_close_timeout": timedelta(minutes=15),
}
"""Stop, wait until stopped, start."""

STAND_BACK: Options = {
    **DISRUPT,
    "start_to_close_timeout": timedelta(minutes=4),
    "schedule_to_start_timeout": NO_WORKER,
    "schedule_to_close_timeout": timedelta(minutes=10),
    "retry_policy": PATIENT_RETRY,
}
"""Other healers are told and watched until they stand back, or are back; each attempt observes what an earlier one did."""

WATCH: Options = {
    "task_queue": names.QUEUE_SSH_SLOW,
    "start_to_close_timeout": timedelta(hours=3),
    "schedule_to_start_timeout": NO_WORKER,
    "schedule_to_close_timeout": timedelta(hours=6),
    "heartbeat_timeout": HEARTBEAT,
    "retry_policy": WATCH_RETRY,
}
"""Waiting for something outside: boot, test run, job progress. Resumed by another worker when this one dies."""


def watch(deadline_s: float) -> Options:
    """Return `WATCH` for something that ends by itself within `deadline_s`: past it and ten minutes more, a person is asked."""
    return {**WATCH, "schedule_to_close_timeout": timedelta(seconds=deadline_s) + NO_WORKER}


def until_gone(deadline_s: float) -> Options:
    """Return the options of waiting for an instance to be terminated, which EC2 is asked for."""
    return {**watch(deadline_s), "task_queue": names.QUEUE_AWS}


GROUP_RUN: Options = {**WATCH, "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED}
"""A burn-in run: a cancelled one has killed its processes before the workflow goes on."""

SWEEP_LOOK: Options = {**EXAMINE, "task_queue": names.QUEUE_SSH_SLOW}
"""A probe by the sweep, below incidents."""

JOB: Options = {
    "task_queue": names.QUEUE_SSH,
    "start_to_close_timeout": timedelta(minutes=5),
    "schedule_to_start_timeout": NO_WORKER,
    "retry_policy": QUICK_RETRY,
}
"""Commands of the job adapter."""

MESSENGER: Options = {
    "task_queue": names.QUEUE_WORKFLOWS,
    "start_to_close_timeout": timedelta(seconds=20),
    "schedule_to_start_timeout": NO_WORKER,
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": PATIENT_RETRY,
}
"""Starting and joining workflows."""


CLEAR_SPARE: Options = {**WATCH, "schedule_to_close_timeout": PATIENCE, "retry_policy": QUICK_RETRY}
"""Preemptible work leaves a spare: a job waits for that spare, so failures are few."""


class LocalOptions(TypedDict, total=False):
    """Keyword arguments of `workflow.execute_local_activity_method`."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    retry_policy: RetryPolicy


LETTER_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=60), maximum_attempts=35)
"""`PATIENCE` in attempts: the SDK goes on retrying a local activity past its schedule-to-close time-out (measured, 1.35)."""

LETTER: LocalOptions = {
    "start_to_close_timeout": timedelta(seconds=10),
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": LETTER_RETRY,
}
"""A signal to another workflow, through the server that this workflow runs on."""

PAGE: Options = {
    "task_queue": names.QUEUE_NOTIFY,
    "start_to_close_timeout": timedelta(seconds=60),
    "schedule_to_start_timeout": NO_WORKER,
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=2), maximum_interval=timedelta(seconds=60), maximum_attempts=20
    ),
}
"""Pages are retried, but a dead pager never stops healing."""

DECIDE: LocalOptions = {
    "start_to_close_timeout": timedelta(seconds=10),
    "retry_policy": RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=2),
}
"""Decisions are pure and take milliseconds. One that fails twice fails for a reason in our own code: see `decide.decided`."""

DECIDE_TIMEOUT = timedelta(seconds=10)
"""The same for what asks for no decision."""

CLUSTER_ANSWER = timedelta(seconds=30)
"""How long an ask of Cluster may stay without any answer before it is asked again. Three times this is longer than a recovery."""

CLUSTER_QUEUE = timedelta(minutes=30)
"""How long to stand in Cluster's queue before a person is told and the ask is made anew."""
