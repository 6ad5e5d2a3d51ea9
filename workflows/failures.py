"""Reading failures of activities and children: the words behind them, and cancellations told apart."""

from __future__ import annotations

import asyncio

from temporalio.exceptions import ApplicationError, is_cancelled_exception


def cause_of(error: BaseException) -> str:
    """Return the words of the failure behind an activity or child error. A cancellation is no failure: it is raised on."""
    if is_cancelled_exception(error):
        raise asyncio.CancelledError from error
    inner: BaseException | None = error
    while inner is not None and inner.__cause__ is not None:
        inner = inner.__cause__
    return str(inner or error)


def kind_of(error: BaseException) -> str:
    """Return the type name of the failure behind an activity error, such as "NotOurs"."""
    cause = error.__cause__
    return cause.type or "" if isinstance(cause, ApplicationError) else ""
