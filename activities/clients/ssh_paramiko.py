"""`NodeAccess` over SSH with paramiko. Every read is bounded in time; every command line is quoted, nothing interpolated."""

from __future__ import annotations

import hashlib
import json
import re
import selectors
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko

from activities.clients import detached_run
from activities.clients.ssh_config import SshConfiguration
from activities.clients.ssh_connection import SshConnection
from activities.clock import beat
from activities.errors import CommandFailed, DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from activities.node_access import CommandResult, DetachedRun, NodeAccess
from activities.settings import AccessSettings

LOOK_S = 1.0
"""Longest wait in one read: a cancellation thrown into the thread gets through between reads only."""

NODE_GRACE_S = 2
"""Seconds that the node lets a command run past its deadline, in case nobody is left here to end it."""

BOOT_ID = 'cat "${HOTSPARE_HOST_ROOT:-}/proc/sys/kernel/random/boot_id"'
FOLLOW = "if dmesg > /dev/null 2>&1; then exec dmesg --follow; else exec journalctl -k -b -f -n all -o short-monotonic; fi"
HAVE = '[ -f "$HOME/$1" ] && printf %s "$HOME/$1"'
RECEIVE = """f="$HOME/$1"; t="$f.$$"; umask 077; mkdir -p "${f%/*}" && cat > "$t" &&
[ "$(sha256sum < "$t" | cut -c1-64)" = "$2" ] && mv "$t" "$f" && printf %s "$f" && exit 0; rm -f "$t"; exit 1"""
"""Shell for the node; arguments come as $1, $2, never as part of the text."""


class SshAccess:
    """Access to one node. One connection, opened when first used, shared by all threads."""

    def __init__(self, connection: SshConnection, settings: AccessSettings) -> None:
        self._connection = connection
        self._settings = settings

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        return self._run(command, deadline_s, output_limit or self._settings.output_limit)

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        answer = self._detached("start", run_id, str(deadline_s), *command)
        if answer.exit_status != 0:
            raise CommandFailed(f"{self._connection.name}: run {run_id} could not be started: {answer.stderr.strip()[-300:]}")

    def poll(self, run_id: str) -> DetachedRun:
        answer = self._detached("poll", run_id, str(self._settings.output_limit))
        try:
            state = json.loads(answer.stdout)
            return DetachedRun(run_id=run_id, **state)
        except ValueError as error:
            said = (answer.stderr or answer.stdout).strip()[-300:]
            raise CommandFailed(f"{self._connection.name}: run {run_id} could not be looked at: {said}") from error

    def kill(self, run_id: str) -> None:
        self._detached("kill", run_id)

    def put(self, file: Path, digest: str) -> str:
        place = f"{self._settings.cache_dir}/files/{digest}/{file.name}"
        have = self._run(["sh", "-c", HAVE, "sh", place], self._settings.command_deadline_s)
        if have.exit_status == 0:
            return have.stdout
        content = file.read_bytes()
        words = ["sh", "-c", RECEIVE, "sh", place, hashlib.sha256(content).hexdigest()]
        answer = self._run(words, self._settings.command_deadline_s, content=content)
        if answer.exit_status != 0:
            raise CommandFailed(
                f"{self._connection.name}: {file.name} could not be copied to ~/{place}: {answer.stderr.strip()[-300:]}"
            )
        return answer.stdout

    def follow_kernel_log(self) -> Iterator[str]:
        channel = self._connection.open_channel()
        try:
            _execute(channel, self._connection.name, [*self._sudo(), "sh", "-c", FOLLOW])
            rest = b""
            while True:
                chunk = _some(channel, LOOK_S)
                if chunk is None:
                    raise NodeUnreachable(
                        f"{self._connection.name}: the kernel log ended: the node restarts, or the connection broke"
                    )
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines) if lines else iter([""])
        finally:
            channel.close()

    def boot_id(self, deadline_s: float) -> str:
        answer = self._run(["sh", "-c", BOOT_ID], deadline_s)
        if answer.exit_status != 0 or not answer.stdout.strip():
            raise CommandFailed(f"{self._connection.name}: no boot id: {answer.stderr.strip()[-300:]}")
        return answer.stdout.strip()

    def capabilities(self) -> frozenset[str]:
        return frozenset({"run", "start", "put", "follow"})

    def close(self) -> None:
        self._connection.close()

    def _sudo(self) -> list[str]:
        return ["sudo", "-n"] if self._settings.sudo else []

    def _detached(self, verb: str, run_id: str, *words: str) -> CommandResult:
        folder = f"{self._settings.cache_dir}/runs/{_folder_name(run_id)}"
        text = Path(detached_run.__file__).read_text()
        command = [self._settings.python, "-I", "-c", text, verb, folder, *words]
        return self._run(command, self._settings.command_deadline_s, 8 * self._settings.output_limit)

    def _run(self, command: list[str], deadline_s: float, output_limit: int = 65536, content: bytes = b"") -> CommandResult:
        """Run a command within the deadline. The node ends it too, should the connection break meanwhile."""
        until = time.monotonic() + deadline_s
        channel = self._connection.open_channel()
        try:
            limit_s = int(deadline_s) + NODE_GRACE_S
            _execute(channel, self._connection.name, ["timeout", "-k", "5", str(limit_s), *command])
            if content:
                _send(channel, content, until, self._connection.name)
            channel.shutdown_write()
            return self._gather(channel, command, until, deadline_s, output_limit)
        finally:
            channel.close()

    def _gather(
        self, channel: paramiko.Channel, command: list[str], until: float, deadline_s: float, limit: int
    ) -> CommandResult:
        out, err = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            while not _ended(channel):
                if (left := until - time.monotonic()) <= 0:
                    what = " ".join(Path(word).name for word in command[:2])
                    raise DeadlinePassed(f"{self._connection.name}: no end of {what} within {deadline_s:.0f} s")
                if channel.eof_received:
                    channel.status_event.wait(min(0.1, left))
                else:
                    selector.select(min(LOOK_S, left))
                _drain(channel, out, err, limit)
                beat()
        _drain(channel, out, err, limit)
        status = channel.recv_exit_status()
        if status == -1 and not channel.get_transport().is_active():
            raise NodeUnreachable(f"{self._connection.name}: the connection broke while {command[0]} ran")
        return CommandResult(exit_status=status, stdout=_text(out, limit), stderr=_text(err, limit))


class SshAccessTo:
    """`AccessTo` over SSH: one `SshAccess` per node, kept open between calls."""

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._configuration = SshConfiguration(settings.ssh_config)
        self._lock = threading.Lock()
        self._accesses: dict[tuple[str, str, str], SshAccess] = {}

    def __call__(self, node: Node) -> NodeAccess:
        key = (node.instance_id, node.host, node.ip)
        with self._lock:
            if key not in self._accesses:
                target = self._configuration.target_of(node)
                connection = SshConnection(self._configuration, target, self._settings.connect_timeout_s)
                self._accesses[key] = SshAccess(connection, self._settings)
            return self._accesses[key]

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            accesses, self._accesses = list(self._accesses.values()), {}
        for access in accesses:
            access.close()


def _execute(channel: paramiko.Channel, name: str, command: list[str]) -> None:
    channel.settimeout(LOOK_S)
    try:
        channel.exec_command(shlex.join(command))
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise NodeUnreachable(f"{name}: the connection broke before {command[0]} started: {error}") from error


def _send(channel: paramiko.Channel, content: bytes, until: float, name: str) -> None:
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


def _some(channel: paramiko.Channel, wait_s: float) -> bytes | None:
    """Return what the channel printed within `wait_s`, empty if nothing, None when it has ended."""
    channel.settimeout(wait_s)
    try:
        return channel.recv(65536) or None
    except TimeoutError:
        return b""


def _ended(channel: paramiko.Channel) -> bool:
    """Whether the command has ended and all its output is here: the status may overtake the output, and output the status."""
    if channel.recv_ready() or channel.recv_stderr_ready():
        return False
    return (channel.eof_received and channel.exit_status_ready()) or channel.closed


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray, limit: int) -> None:
    """Take what is there. A character is at most four bytes: more than that of the beginning is not kept."""
    while channel.recv_ready():
        out += channel.recv(65536)
        del out[: -4 * limit]
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(65536)
        del err[: -4 * limit]


def _text(content: bytearray, limit: int) -> str:
    return content.decode("utf-8", "replace")[-limit:]


def _folder_name(run_id: str) -> str:
    """A run id as a folder name: safe, readable, and different for different ids."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", run_id).strip("._")[-60:]
    return f"{readable}-{hashlib.sha256(run_id.encode()).hexdigest()[:10]}"
