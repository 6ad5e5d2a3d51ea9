"""`NodeAccess` over SSH with paramiko. Every read is bounded in time; every command line is quoted, nothing interpolated."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import selectors
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import paramiko

from activities.clients.host_key_trust import HostKeyTrust
from activities.clients.ssh_channel import LOOK_S, drain, ended, execute, send, some, text
from activities.clients.ssh_config import SshConfiguration, SshTarget
from activities.clients.ssh_connection import SshConnection
from activities.clock import beat
from activities.errors import AccessRefused, BadInput, CommandFailed, DeadlinePassed, NodeUnreachable
from activities.inventory import Node
from activities.node_access import CommandResult, DetachedRun, NodeAccess
from activities.settings_access import AccessSettings
from checks import detached_run
from checks.named_runs import folder_name

logger = logging.getLogger(__name__)

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

    def lead_to(self, configuration: SshConfiguration, target: SshTarget) -> None:
        """Use another configuration from the next connection on."""
        self._connection.lead_to(configuration, target)

    def run(self, command: list[str], deadline_s: float, output_limit: int | None = None) -> CommandResult:
        return self._run(command, deadline_s, output_limit or self._settings.output_limit)

    def start(self, run_id: str, command: list[str], deadline_s: float) -> None:
        answer = self._detached("start", run_id, str(deadline_s), *command)
        if answer.exit_status != 0:
            raise CommandFailed(f"{self._connection.name}: run {run_id} could not be started: {answer.stderr.strip()[-300:]}")

    def poll(self, run_id: str, output_limit: int | None = None) -> DetachedRun:
        limit = output_limit or self._settings.output_limit
        answer = self._detached("poll", run_id, str(limit), limit=limit)
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
            execute(channel, self._connection.name, [*self._sudo(), "sh", "-c", FOLLOW])
            rest = b""
            while True:
                chunk = some(channel, LOOK_S)
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

    def _detached(self, verb: str, run_id: str, *words: str, limit: int | None = None) -> CommandResult:
        folder = f"{self._settings.cache_dir}/runs/{folder_name(run_id)}"
        text = Path(detached_run.__file__).read_text()
        command = [self._settings.python, "-I", "-c", text, verb, folder, *words]
        return self._run(command, self._settings.command_deadline_s, 8 * (limit or self._settings.output_limit))

    def _run(self, command: list[str], deadline_s: float, output_limit: int = 65536, content: bytes = b"") -> CommandResult:
        """Run a command within the deadline. The node ends it too, should the connection break meanwhile."""
        until = time.monotonic() + deadline_s
        channel = self._connection.open_channel()
        try:
            limit_s = int(deadline_s) + NODE_GRACE_S
            execute(channel, self._connection.name, ["timeout", "-k", "5", str(limit_s), *command])
            if content:
                send(channel, content, until, self._connection.name)
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
            while not ended(channel):
                if (left := until - time.monotonic()) <= 0:
                    what = " ".join(Path(word).name for word in command[:2])
                    raise DeadlinePassed(f"{self._connection.name}: no end of {what} within {deadline_s:.0f} s")
                if channel.eof_received:
                    channel.status_event.wait(min(0.1, left))
                else:
                    selector.select(min(LOOK_S, left))
                drain(channel, out, err, limit)
                beat()
        drain(channel, out, err, limit)
        status = channel.recv_exit_status()
        if status == -1 and not channel.get_transport().is_active():
            raise NodeUnreachable(f"{self._connection.name}: the connection broke while {command[0]} ran")
        return CommandResult(exit_status=status, stdout=text(out, limit), stderr=text(err, limit))


class SshAccessTo:
    """`AccessTo` over SSH: one `SshAccess` per node, kept open between calls.

    `trust` knows the host keys of instances; without it, or where the settings say so, an unknown key stays an error.
    """

    def __init__(self, settings: AccessSettings, trust: HostKeyTrust | None = None) -> None:
        self._settings = settings
        self._trust = trust if settings.learn_host_keys else None
        self._configuration = SshConfiguration(settings.ssh_config)
        self._lock = threading.Lock()
        self._accesses: dict[tuple[str, str, str], tuple[Node, SshAccess]] = {}

    def __call__(self, node: Node) -> NodeAccess:
        key = (node.instance_id, node.host, node.ip)
        with self._lock:
            if self._configuration.has_changed():
                self._read_again()
            if key not in self._accesses:
                self._accesses[key] = (node, self._new_access(node))
            return self._accesses[key][1]

    def _new_access(self, node: Node) -> SshAccess:
        target = self._configuration.target_of(node)
        learn = partial(self._trust.keys_of, node.instance_id) if self._trust is not None else None
        connection = SshConnection(self._configuration, target, self._settings.connect_timeout_s, learn)
        return SshAccess(connection, self._settings)

    def _read_again(self) -> None:
        """Take up a configuration that was written while we run, as it is for each new instance in some clusters."""
        try:
            self._configuration = SshConfiguration(self._settings.ssh_config)
        except BadInput as error:
            logger.warning("the SSH configuration from before stays in use: %s", error)
            return
        for node, access in self._accesses.values():
            with contextlib.suppress(AccessRefused):  # said when the node is next asked for under another address
                access.lead_to(self._configuration, self._configuration.target_of(node))

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            accesses, self._accesses = list(self._accesses.values()), {}
        for _, access in accesses:
            access.close()
