"""Run Command of AWS Systems Manager: what is sent to a node, what became of it, and whether the node's agent is heard of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from activities.message import Message

CARRIED = 24_000
"""Characters of standard output that the service itself carries. Source: SSM API Reference, GetCommandInvocation."""

SHORTEST_DELIVERY_S = 30
"""Shortest time, in seconds, that the service keeps a command for a node that is away. Source: SSM API Reference, SendCommand."""

WAITING = frozenset({"Pending", "Delayed"})
"""The command is not with the node yet. Sources of all states: SSM API Reference, GetCommandInvocation; Systems Manager User
Guide, "Understanding command statuses". They are written there with and without blanks; here without."""

NEVER_CAME = frozenset({"DeliveryTimedOut", "Undeliverable"})
"""It ended without ever having been with the node."""

STOPPED = frozenset({"Cancelled", "Cancelling", "Terminated", "ExecutionTimedOut"})
"""It was ended from outside, and what it did until then is not known."""

ENDED = frozenset({"Success", "Failed"})
"""It ran to its end."""


class Invocation(Message):
    """A command on its one node. `state` is the detailed status without blanks; output is there once it has ended."""

    state: str
    response_code: int = -1
    stdout: str = ""
    stderr: str = ""
    output_url: str = ""


class AgentSeen(Message):
    """What the service knows of a node's SSM Agent. `ping` is Online or ConnectionLost."""

    ping: str
    last_ping: datetime | None = None


class RunCommandClient(Protocol):
    """The calls that node access makes. Errors are ours; NodeUnreachable where the service has no agent to send to."""

    def send(self, document: str, instance_id: str, parameters: Mapping[str, str], deliver_s: int) -> str:
        """Send a document to one node and return the command's id. After `deliver_s` seconds undelivered it is not run."""
        ...

    def look(self, command_id: str, instance_id: str) -> Invocation | None:
        """Look at a command; None while the service does not know of it everywhere yet."""
        ...

    def cancel(self, command_id: str, instance_id: str) -> None:
        """Ask for the end of a command. There is no promise that it ends."""
        ...

    def agent(self, instance_id: str) -> AgentSeen | None:
        """Look at a node's agent; None where none has registered, or the instance is stopped."""
        ...

    def whole_output(self, invocation: Invocation) -> str:
        """Read all of standard output from the bucket. CapabilityMissing where no bucket takes it."""
        ...
