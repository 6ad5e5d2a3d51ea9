"""One command on one SSH channel: start it, feed it, take what it prints, each bounded in time."""

from __future__ import annotations

import shlex
import time

import paramiko

from activities.clock import beat
from activities.errors import DeadlinePassed, NodeUnreachable

LOOK_S = 1.0
"""Longest wait in one read: a cancellation thrown into the thread gets through between reads only."""


def execute(channel: paramiko.Channel, name: str, command: list[str]) -> None:
    """Start a command; each of its words arrives as it is, whatever the node's shell."""
    channel.settimeout(LOOK_S)
    try:
        channel.exec_command(shlex.join(command))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NodeUnreachable(f"{name}: the connection broke before {command[0]} started: {error}") from error


def send(channel: paramiko.Channel, content: bytes, until: float, name: str) -> None:
    """Send a command's input piece by piece, within the deadline."""
    view = memoryview(content)
    while view:
        try:
            view = view[channel.send(bytes(view[:32768])) :]
        except TimeoutError as error:
            if time.monotonic() > until:
                raise DeadlinePassed(f"{name}: the node took only a part of {len(content)} bytes in time") from error
        except OSError as error:
            raise NodeUnreachable(f"{name}: the connection broke while a file was copied: {error}") from error
        beat()


def some(channel: paramiko.Channel, wait_s: float) -> bytes | None:
    """Return what the channel printed within `wait_s`, empty if nothing, None when it has ended."""
    channel.settimeout(wait_s)
    try:
        return channel.recv(65536) or None
    except TimeoutError:
        return b""


def ended(channel: paramiko.Channel) -> bool:
    """Whether the command has ended and all its output is here: the status may overtake the output, and output the status."""
    if channel.recv_ready() or channel.recv_stderr_ready():
        return False
    return (channel.eof_received and channel.exit_status_ready()) or channel.closed


def drain(channel: paramiko.Channel, out: bytearray, err: bytearray, limit: int) -> None:
    """Take what is there. A character is at most four bytes: more than that of the beginning is not kept."""
    while channel.recv_ready():
        out += channel.recv(65536)
        del out[: -4 * limit]
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(65536)
        del err[: -4 * limit]


def text(content: bytearray, limit: int) -> str:
    """The last characters of what came, readable."""
    return content.decode("utf-8", "replace")[-limit:]
