"""A node on loopback: an asyncssh server in a thread of its own that runs real commands in a root folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import uuid
from pathlib import Path
from typing import Any

import asyncssh

from activities.inventory import Node

ALL_REDUCE = """#!/bin/sh
echo started >> "$HOME/starts"
echo '# nThread 1 nGpus 1'
while [ -e "$HOME/keep-running" ]; do sleep 0.05; done
echo '# Avg bus bandwidth    : 1'
"""

DMESG = """#!/bin/sh
[ "$1" = --follow ] || exec cat "$HOTSPARE_HOST_ROOT/kernel.log"
exec tail -n +1 -f "$HOTSPARE_HOST_ROOT/kernel.log"
"""


class LoopbackNode:
    """Starts and stops the server, and writes the client configuration that reaches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.home = self.root / "home"
        self.bin = self.root / "bin"
        self.kernel_log = self.root / "kernel.log"
        self.commands: list[str] = []
        self._boot_file = self.root / "proc/sys/kernel/random/boot_id"
        for made in (self.home, self.bin, self._boot_file.parent):
            made.mkdir(parents=True)
        self.kernel_log.write_text("[    0.000000] Linux version 6.1.0\n")
        self.script("all_reduce_perf", ALL_REDUCE)
        self.script("dmesg", DMESG)
        self.new_boot_id()
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.other_host_keys: list[asyncssh.SSHKey] = []
        self.host_certificate: asyncssh.SSHCertificate | None = None
        self._client_key = asyncssh.generate_private_key("ssh-ed25519")
        self._serving: set[asyncio.Task[Any]] = set()
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="loopback node")
        self._thread.start()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._server: asyncssh.SSHAcceptor | None = None
        self.write_configuration()

    @property
    def node(self) -> Node:
        """The inventory entry."""
        return Node(instance_id="i-0abc", name="node-1", ip="127.0.0.1", instance_type="p5.48xlarge", gpus=8)

    @property
    def host_key(self) -> str:
        """Type and base64 text of the public host key."""
        return public_words(self._host_key)

    @property
    def known_hosts(self) -> Path:
        """The client's file of known hosts."""
        return self.folder / "known_hosts"

    @property
    def configuration(self) -> Path:
        """The OpenSSH client configuration."""
        return self.folder / "ssh_config"

    def script(self, name: str, text: str) -> None:
        """Put a command into the node's own bin folder."""
        file = self.bin / name
        file.write_text(text)
        file.chmod(0o755)

    def new_boot_id(self) -> None:
        """As after a restart."""
        self._boot_file.write_text(f"{uuid.uuid4()}\n")

    @property
    def boot_id(self) -> str:
        return self._boot_file.read_text().strip()

    def write_configuration(self, *, known: bool = True, accepted: bool = True) -> None:
        """Write the client's configuration: with the host key known or not, with the right key or another."""
        key = self._client_key if accepted else asyncssh.generate_private_key("ssh-ed25519")
        key_file, known_file = self.folder / "id_ed25519", self.known_hosts
        key_file.write_bytes(key.export_private_key("openssh"))
        key_file.chmod(0o600)
        known_file.write_text(f"[127.0.0.1]:{self.port} {self.host_key}\n" if known else "")
        self.configuration.write_text(
            f"Host node-1\n  HostName 127.0.0.1\n  Port {self.port}\n\n"
            f"Host *\n  User somebody\n  IdentityFile {key_file}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known_file}\n"
        )

    def sign_host_key(self, authority: asyncssh.SSHKey, **terms: Any) -> None:
        """Give the node a certificate of an authority."""
        self.host_certificate = authority.generate_host_certificate(self._host_key, "node-1", **terms)

    def change_host_key(self) -> None:
        """As an instance that was replaced behind the same address."""
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")

    def up(self) -> None:
        """Listen."""
        self._wait(self._listen())

    def down(self) -> None:
        """Cut every connection, kill what runs, and refuse new connections."""
        self._wait(self._cut())

    def close(self) -> None:
        """Give everything back."""
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        public = self._client_key.export_public_key("openssh").decode()
        self._server = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Connections(self._connections),
            server_host_keys=[(self._host_key, self.host_certificate), *self.other_host_keys],
            authorized_client_keys=asyncssh.import_authorized_keys(public),
            process_factory=self._serve,
            encoding=None,
        )

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.abort()
            await self._server.wait_closed()
            self._server = None
        while pids := self._processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0)
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _processes(self) -> list[int]:
        """Every living process with this node's root in its environment, wherever it went."""
        mark = f"HOTSPARE_HOST_ROOT={self.root}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self.commands.append(process.command or "")
        environment = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "HOTSPARE_HOST_ROOT": str(self.root),
        }
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(
            process.command or "",
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.home,
            env=environment,
            start_new_session=True,
        )
        assert child.stdin
        assert child.stdout
        assert child.stderr
        feed = asyncio.ensure_future(_pump(process.stdin, child.stdin))
        await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
        process.exit(await child.wait())
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)


def public_words(key: asyncssh.SSHKey) -> str:
    """Type and base64 text of the public half of a key, as in a known_hosts file."""
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


async def _pump(source: Any, target: Any) -> None:
    """Carry bytes until the source ends or the target is gone."""
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    except (OSError, asyncssh.Error):
        return
    if isinstance(target, asyncio.StreamWriter):
        target.close()


class _Connections(asyncssh.SSHServer):
    """Keeps the set of open connections."""

    def __init__(self, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._all = connections
        self._mine: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._mine = conn
        self._all.add(conn)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """A node may be the jump host of another."""
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._mine is not None:
            self._all.discard(self._mine)
