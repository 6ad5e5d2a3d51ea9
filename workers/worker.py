"""The worker process: serves the task queues of the chosen roles until it is told to stop, then lets running work end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from enum import StrEnum
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from activities import names
from workers.attributes import missing_attributes
from workers.sections import WorkerSettings
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.registry import WORKFLOWS

logger = logging.getLogger(__name__)

STICKY_TIMEOUT = timedelta(seconds=2)
"""How long a workflow waits for the worker that has it in memory. Measured: after a SIGKILL the next step came after 2.1 s
with this value, after 10.1 s with the SDK's default."""

HEARTBEAT_THROTTLE = timedelta(seconds=5)
"""Longest time that heartbeats, and so cancellations, are held back. Source: PostHog's workers; the SDK's default is 60 s."""


class Role(StrEnum):
    """What a worker process serves."""

    CONTROL = "control"
    AWS = "aws"
    K8S = "k8s"
    SSH = "ssh"
    NOTIFY = "notify"


QUEUES: dict[Role, tuple[str, ...]] = {
    Role.CONTROL: (names.QUEUE_WORKFLOWS,),
    Role.AWS: (names.QUEUE_AWS,),
    Role.K8S: (names.QUEUE_K8S,),
    Role.SSH: (names.QUEUE_SSH, names.QUEUE_SSH_SLOW),
    Role.NOTIFY: (names.QUEUE_NOTIFY,),
}


async def serve(
    settings: Settings,
    client: Client,
    stop: asyncio.Event,
    roles: Sequence[Role] = tuple(Role),
    ready: Callable[[list[str]], None] = lambda queues: None,
) -> None:
    """Serve the roles until `stop` is set; `ready` is called with the task queues. Raises what a worker cannot go on after."""
    missing = await missing_attributes(client)
    if missing:
        logger.warning(
            "search attributes are off: %s; healing works without them, `hotspare init` registers them", "; ".join(missing)
        )
    wiring = Wiring(settings, client)
    async with AsyncExitStack() as stack:
        stack.callback(wiring.close)
        workers = build_workers(settings, client, wiring, roles, attributes=not missing, stack=stack)
        ready([worker.task_queue for worker in workers])
        await run_until(stop, [worker.run for worker in workers], [worker.shutdown for worker in workers])


def build_workers(
    settings: Settings, client: Client, wiring: Wiring, roles: Sequence[Role], *, attributes: bool, stack: AsyncExitStack
) -> list[Worker]:
    """Build one worker for each queue of the roles; the thread pools end with `stack`."""
    activities = wiring.activities(attributes=attributes)
    workers = []
    for queue in (queue for role in roles for queue in QUEUES[role]):
        threads = threads_of(settings.worker, queue)
        pool = ThreadPoolExecutor(threads, thread_name_prefix=queue)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        workers.append(
            Worker(
                client,
                task_queue=queue,
                workflows=WORKFLOWS if queue == names.QUEUE_WORKFLOWS else [],
                activities=activities[queue],
                activity_executor=pool,
                max_concurrent_activities=threads,
                max_concurrent_local_activities=threads,
                sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
                graceful_shutdown_timeout=timedelta(seconds=settings.worker.shutdown_grace_s),
            )
        )
    return workers


def threads_of(settings: WorkerSettings, queue: str) -> int:
    """How many activities of a queue may run at once in this process."""
    return {
        names.QUEUE_WORKFLOWS: settings.control_threads,
        names.QUEUE_AWS: settings.aws_threads,
        names.QUEUE_K8S: settings.k8s_threads,
        names.QUEUE_SSH: settings.ssh_threads,
        names.QUEUE_SSH_SLOW: settings.ssh_slow_threads,
        names.QUEUE_NOTIFY: settings.notify_threads,
    }[queue]


async def run_until(stop: asyncio.Event, runs: Sequence[Callable[[], Any]], shutdowns: Sequence[Callable[[], Any]]) -> None:
    """Run all until `stop` is set or one of them ends, then shut all down. Raises the first failure."""
    tasks = [asyncio.ensure_future(run()) for run in runs]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await asyncio.gather(*(shutdown() for shutdown in shutdowns), return_exceptions=True)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome
