"""Shortens the time-outs of attempts where a call will stand still: the server does not skip time that an attempt may need.

Only how long a lost attempt is waited for changes; what is tried again, how often and until when stays as the runbooks say.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

ATTEMPT = timedelta(seconds=3)
SILENCE = timedelta(seconds=2)
LETTER = timedelta(seconds=1)
"""Long enough for a loaded machine: attempts on FakeFleet take milliseconds."""

FEW = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_attempts=4)
"""How often a letter is tried: the time of local activities cannot be skipped."""

LETTERS = ("post", "post_to_cluster")


class ShortAttempts(Interceptor):
    """Given to a worker."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> ActivityHandle[object]:
        if input.heartbeat_timeout is not None:
            input.heartbeat_timeout = SILENCE
        else:
            input.start_to_close_timeout = ATTEMPT
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> ActivityHandle[object]:
        if input.activity in LETTERS:
            input.start_to_close_timeout = LETTER
            input.retry_policy = FEW
        return super().start_local_activity(input)
