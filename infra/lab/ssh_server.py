"""The SSH server of a lab node: real commands in the node's environment, file transfer, and moments to hold a command at."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from typing import Any

import asyncssh

from infra.lab.holds import Hold, Holds
from infra.lab.node_root import NodeRoot
from infra.lab.processes import NodeProcesses, kill_group

_CHUNK = 65536


@dataclass(frozen=True)
class SshCommand:
    """A command line that arrived at a node."""

    node: str
    line: str


class SshSide:
    """What the SSH servers of a lab share: the key that may log in, the holds, and the record of commands."""

    def __init__(self, authorized: asyncssh.SSHAuthorizedKeys) -> None:
        self.authorized = authorized
        self.commands: list[SshCommand] = []
        self.holds: Holds[SshCommand] = Holds(asyncio.get_running_loop())

    def hold(self, node: str, substring: str) -> Hold:
        """Hold the next command on `node` whose line contains `substring`."""
        return self.holds.add(f"{node}: {substring}", lambda command: command.node == node and substring in command.line)

    def count(self, node: str, substring: str) -> int:
        """How many commands containing `substring` have arrived at `node`."""
        return sum(command.node == node and substring in command.line for command in self.commands)


class NodeSshServer:
    """Serves one node on a loopback port that stays the same while the server is down."""

    def __init__(self, name: str, files: NodeRoot, processes: NodeProcesses, side: SshSide) -> None:
        self.hangs = False
        self._name = name
        self._files = files
        self._processes = processes
        self._side = side
        self._key = _host_key(files)
        self._listener: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        # A bound socket that never listens keeps the port ours while the node is down; connecting to it is refused.
        self._placeholder = _bound(0)
        self.port: int = self._placeholder.getsockname()[1]

    @property
    def public_key(self) -> str:
        """Public half of the host key, as in a known_hosts file."""
        return " ".join(self._key.export_public_key().decode().split()[:2])

    async def start(self) -> None:
        """Listen."""
        self._listener = await asyncssh.listen(
            sock=_bound(self.port),
            server_factory=lambda: _Login(self._connections),
            server_host_keys=[self._key],
            authorized_client_keys=self._side.authorized,
            process_factory=self._serve,
            sftp_factory=lambda channel: _HomeSftp(channel, str(self._files.home)),
            encoding=None,
            allow_scp=False,
            password_auth=False,
            kbdint_auth=False,
        )

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._listener is not None:
            self._listener.close()
            for connection in list(self._connections):
                connection.abort()
            await self._listener.wait_closed()
            self._listener = None

    def free_port(self) -> None:
        """Give the port back."""
        self._placeholder.close()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Carry out one exec request."""
        line = process.command or ""
        command = SshCommand(self._name, line)
        self._side.commands.append(command)
        if self.hangs:
            await process.channel.wait_closed()
            return
        hold = self._side.holds.take(command)
        if hold is not None and not await hold.stop_here():
            process.exit(255)
            return
        self._files.write_uptime()
        self._files.machine.count_on()
        pipe = asyncio.subprocess.PIPE
        child = await self._processes.start(["/bin/sh", "-c", line], stdin=pipe, stdout=pipe, stderr=pipe)
        await _join(process, child, to_its_end=hold is not None)


class _Login(asyncssh.SSHServer):
    """Keeps the set of connections, so that a node that goes down can cut them."""

    def __init__(self, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections
        self._mine: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._mine = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._mine is not None:
            self._connections.discard(self._mine)


class _HomeSftp(asyncssh.SFTPServer):
    """File transfer with relative paths under the node's home folder."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], home: str) -> None:
        super().__init__(channel)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        return os.path.normpath(os.path.join(self._home, path))


async def _join(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process, *, to_its_end: bool) -> None:
    """Carry bytes between a channel and a command until the command ends.

    A channel that closes ends the command, unless it is to run to its end whoever listens.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    tasks = [
        asyncio.ensure_future(_copy_out(child.stdout, process.stdout)),
        asyncio.ensure_future(_copy_out(child.stderr, process.stderr)),
        asyncio.ensure_future(child.wait()),
    ]
    copy_in = asyncio.ensure_future(_copy_in(process, child.stdin))
    closed = asyncio.ensure_future(process.channel.wait_closed())
    ended = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait({ended, closed}, return_when=asyncio.FIRST_COMPLETED)
    if ended.done() and child.returncode is not None:
        code = child.returncode
        process.exit(code if code >= 0 else 128 - code)
    elif not to_its_end:
        kill_group(child)
        await child.wait()
    for task in (*tasks, copy_in, closed, ended):
        task.cancel()
    await asyncio.gather(*tasks, copy_in, closed, ended, return_exceptions=True)
    if child.returncode is None:
        child.stdin.close()
        await asyncio.gather(child.stdout.read(), child.stderr.read(), child.wait())


async def _copy_out(source: asyncio.StreamReader, target: asyncssh.SSHWriter[bytes]) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()


async def _copy_in(process: asyncssh.SSHServerProcess[bytes], target: asyncio.StreamWriter) -> None:
    try:
        while data := await process.stdin.read(_CHUNK):
            target.write(data)
            await target.drain()
    except (OSError, asyncssh.Error, asyncssh.SignalReceived, asyncssh.BreakReceived):
        pass  # the command closed its input, or the client spoke of signals; the output still counts
    target.close()


def _bound(port: int) -> socket.socket:
    """Return a loopback socket bound to `port`, shared with other sockets of ours on the same port."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _host_key(files: NodeRoot) -> Any:
    """Make the node's host key; it lies on the node's disk and outlives boots."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = files.host_key_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_bytes(key.export_private_key())
    return key
