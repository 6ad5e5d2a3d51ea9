"""A warning of the Temporal SDK that comes by chance must not end a worker of the tests, where every warning is an error."""

from __future__ import annotations

from temporalio.bridge.proto.activity_task import Cancel
from temporalio.worker._activity import _ActivityWorker


def test_a_cancel_that_comes_after_the_end_of_its_activity_does_not_end_the_worker() -> None:
    worker = object.__new__(_ActivityWorker)
    worker._running_activities = {}
    worker._handle_cancel_activity_task(b"ended a moment ago", Cancel())
