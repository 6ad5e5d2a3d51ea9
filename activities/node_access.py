"""How a node is reached: one protocol for SSH, agent and Run Command.

What an access cannot do is refused (CapabilityMissing), never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from activities.inventory import Node
from activities.message import Message

LOST = -1
"""Exit status of a detached run that ended without one."""


class CommandResult(Message):
    """Outcome of a command that ended. Output is cut to `NodeAccess.output_limit` characters, keeping the end."""

    exit_status: int
    stdout: str
    stderr: str


class DetachedRun(Message):
    """State of a command that was started detached. `exit_status` is None while it runs; `known` is False if no such run exists.

    `LOST` as exit status: it ended without leaving one, because the node restarted or something killed it.
    """

    run_id: str
    known: bool
    exit_status: int | None = None
    output: str = ""


class NodeAccess(Protocol):
    """One way to reach one node. Every method is bounded in time and raises NodeUnreachable when there is no answer.

    AccessRefused means that the way itself is broken (host key, login, host name): it says nothing of the node's health.
    """

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        """Run a command to its end; raises DeadlinePassed (and ends it) when it takes longer.

        `output_limit` replaces the access's own limit, in characters, for answers that must not be cut.
        """
        ...

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        """Start a command detached. Starting a known `run_id` again does nothing. The node kills it after `deadline_s`."""
        ...

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        """Look at a detached run. `output_limit` replaces the access's own limit, in characters, where the access can do that."""
        ...

    def kill(self, run_id: str) -> None:
        """End a detached run and its children. Unknown or ended runs are no error."""
        ...

    def put(self, file: Path, digest: str) -> str:
        """Copy a file once per content digest into the node's cache folder and return its path there."""
        ...

    def follow_kernel_log(self) -> Iterator[str]:
        """Yield kernel log lines as `dmesg` prints them ("[  12.345678] text"): this boot's so far, then new ones for ever.

        Yields an empty string at least every second while nothing is printed, so that the caller can stop.
        """
        ...

    def boot_id(self, deadline_s: float) -> str:
        """Return the kernel's boot id."""
        ...

    def capabilities(self) -> frozenset[str]:
        """Return what this access can do: words of "run", "start", "put", "follow"."""
        ...

    def close(self) -> None:
        """Close connections. The object may be used again."""
        ...


AccessTo = Callable[[Node], NodeAccess]
"""Gives the access to a node, by the node's inventory entry."""
