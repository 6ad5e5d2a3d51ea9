"""Reading failures of activities and children: the words behind them, and cancellations told apart."""

from __future__ import annotations

import asyncio

from temporalio.exceptions import ApplicationError, is_cancelled_exception


def cause_of(error: BaseException) -> str:
    """Return the words of the failure behind an activity or child error. Our own cancellation is no failure: it is raised on.

    A child that somebody else cancelled is a failure like any other: it does not cancel us.
    """
    if is_cancelled_exception(error):
        stop_if_cancelled()
    inner: BaseException | None = error
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    return str(inner or error)


def kind_of(error: BaseException) -> str:
    """Return the type name of the failure behind an activity error, such as "NotOurs"."""
    cause = error.__cause__
    return cause.type or "" if isinstance(cause, ApplicationError) else ""


def stop_if_cancelled() -> None:
    """A step that was waited for to its end hides the cancellation that came meanwhile: no further step is taken."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
