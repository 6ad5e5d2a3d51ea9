"""The failures that cross the border of an activity, by type name.

    HotspareError                 base: says what happened, to what, and what to do next
    ├── FinalError                retrying cannot help
    │   ├── UnknownNode           no inventory entry has this alias
    │   ├── NotOurs               a quarantine, lease or tag belongs to somebody else
    │   ├── PreconditionFailed    the world is not as the caller was told; nothing was done
    │   ├── AccessRefused         the node answers but does not let us in, or is not who it should be; says nothing of its health
    │   ├── CapabilityMissing     this access or adapter cannot do that
    │   ├── NoCapacity            EC2 has no instance of this type to give now; waiting helps, trying at once does not
    │   ├── DeadlinePassed        the thing waited for did not happen in time
    │   └── BadInput              the caller's data is wrong
    └── TransientError            may work when tried again
        ├── NodeUnreachable       no answer over the node's access
        ├── ProviderBusy          throttled, 5xx, eventual consistency
        │   └── Throttled         refused before it was carried out: certainly not made
        ├── CommandFailed         a configured command on the head or launch host ended with an error
        └── TooLate               the attempt's own time is nearly up; it did not act

Clients map library errors to these. `as_application_error` turns them into what Temporal shows and retries by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError


class HotspareError(Exception):
    """Base of all errors that Hotspare raises on purpose."""


class FinalError(HotspareError):
    """Retrying cannot help."""


class UnknownNode(FinalError):
    """No inventory entry has this alias; the message names the nearest."""


class NotOurs(FinalError):
    """A quarantine, lease or tag belongs to somebody else; it was left alone."""


class PreconditionFailed(FinalError):
    """The world is not as the caller was told; nothing was done."""


class AccessRefused(FinalError):
    """The node's door is closed to us: unknown host key, no login, no such host name. The access is broken, not the node."""


class CapabilityMissing(FinalError):
    """This access, adapter or instance type cannot do that."""


class NoCapacity(FinalError):
    """EC2 has no instance of this type to give now, and has started or launched none. Minutes or hours of waiting may help."""


class DeadlinePassed(FinalError):
    """What was waited for did not happen in time."""


class BadInput(FinalError):
    """The caller's data is wrong; the message gives the place."""


class TransientError(HotspareError):
    """May work when tried again."""


class NodeUnreachable(TransientError):
    """No answer over the node's access."""


class ProviderBusy(TransientError):
    """The cloud provider throttled, failed or lags."""


class Throttled(ProviderBusy):
    """The provider refused the call before carrying it out, so the effect was certainly not made."""


class CommandFailed(TransientError):
    """A configured command ended with an error; the message has the last lines that it printed."""


class TooLate(TransientError):
    """The attempt's own time is nearly up, so it did not act: a timed-out attempt must never act late."""


@contextmanager
def as_application_error() -> Iterator[None]:
    """Turn our errors into Temporal's: the class name is the failure type, final ones are not retried."""
    try:
        yield
    except HotspareError as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=isinstance(error, FinalError)) from error
