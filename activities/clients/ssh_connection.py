"""One SSH connection to one node, opened when needed and opened again when it broke. Host keys are always known or signed.

An unknown key of the node is learned from who knows better than the network, where somebody does; it is never asked of the node.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import paramiko

from activities.clients.host_keys import HostKey
from activities.clients.known_hosts import authorities, known_keys, remember
from activities.clients.ssh_config import SshConfiguration, SshTarget
from activities.clients.ssh_host_keys import (
    BelieveAuthorities,
    CertificatesFirst,
    RefuseUnknown,
    UnknownHostKey,
    accept_key,
    changed_key,
    impostor,
)
from activities.errors import AccessRefused, CommandFailed, HotspareError, NodeUnreachable

KEEPALIVE_S = 5
"""Seconds between keep-alive packets, so that a dead peer is noticed on a silent connection. Hotspare default."""

DEAD_PEER_MS = 15_000
"""Milliseconds without acknowledgement after which the kernel gives a connection up. Hotspare default: 3 keep-alives."""

LEARN_AGAIN_S = 60.0
"""Seconds between questions for a host key that could not be learned. Hotspare default: a console is shown minutes after a boot,
and a follower of the kernel log tries to connect every few seconds."""

LearnKeys = Callable[[], tuple[HostKey, ...]]
"""Gives the node's host keys from another source than the network to it. Raises HotspareError when it cannot."""

logger = logging.getLogger(__name__)

# What goes wrong on a connection reaches us as an exception; paramiko's own thread would print it once more with a traceback.
logging.getLogger("paramiko.transport").setLevel(logging.CRITICAL)


class SshConnection:
    """A connection that several threads may use at once; each command has its own channel."""

    def __init__(
        self, configuration: SshConfiguration, target: SshTarget, connect_timeout_s: float, learn: LearnKeys | None = None
    ) -> None:
        self._configuration = configuration
        self._target = target
        self._timeout_s = connect_timeout_s
        self._learn = learn
        self._learn_not_before = 0.0
        self._refused = ""
        self._lock = threading.Lock()
        self._clients: list[paramiko.SSHClient] = []

    @property
    def name(self) -> str:
        """What an operator would type after `ssh`."""
        return self._target.alias

    def lead_to(self, configuration: SshConfiguration, target: SshTarget) -> None:
        """Use another configuration from the next connection on; the present one lasts as long as it holds."""
        if target != self._target:
            self._learn_not_before = 0.0
        # Without the lock, which is held while a connection is made: nobody is to wait for that here.
        self._configuration, self._target = configuration, target

    def open_channel(self) -> paramiko.Channel:
        """Return a new session channel; a connection that turns out to be dead is opened again once."""
        for last in (False, True):
            transport = self._transport()
            try:
                return transport.open_session(timeout=self._timeout_s)
            except paramiko.ChannelException as error:
                raise CommandFailed(f"{self.name}: the SSH server takes no more sessions now: {error}") from error
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.close()
                if last:
                    raise NodeUnreachable(f"{self.name}: the SSH connection is open, but does not answer: {error}") from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connection and those to jump hosts."""
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            transport = self._clients[0].get_transport() if self._clients else None
            if transport is not None and transport.is_active():
                return transport
            for client in self._clients:
                client.close()
            self._clients = []
            self._clients = self._connect(self._target, hops=())
            transport = self._clients[0].get_transport()
            if transport is None:
                raise NodeUnreachable(f"{self.name}: the SSH connection broke while it was opened")
            transport.set_keepalive(KEEPALIVE_S)
            return transport

    def _connect(self, target: SshTarget, hops: tuple[str, ...]) -> list[paramiko.SSHClient]:
        """Connect to a target, through its jump hosts first. Returns its client, then those of the jumps."""
        if target.alias in hops:
            raise AccessRefused(f"{self.name}: ProxyJump goes round in a circle: {' -> '.join((*hops, target.alias))}")
        jumps: list[paramiko.SSHClient] = []
        if target.jumps:
            jump = self._configuration.target(target.jumps[-1])
            jumps = self._connect(jump, (*hops, target.alias))
        try:
            return [self._enter(target, jumps) if not hops else self._login(target, self._socket(target, jumps)), *jumps]
        except BaseException:
            for client in jumps:
                client.close()
            raise

    def _enter(self, target: SshTarget, jumps: list[paramiko.SSHClient]) -> paramiko.SSHClient:
        """Log in to the node itself. An unknown host key is learned, and who offered it has to prove itself by that."""
        try:
            return self._login(target, self._socket(target, jumps))
        except UnknownHostKey as unknown:
            if self._learn is None:
                raise
            if time.monotonic() < self._learn_not_before:
                raise AccessRefused(self._refused) from unknown
            try:
                return self._prove(target, jumps, unknown.key, self._learned(target, unknown.key))
            except AccessRefused as refused:
                self._refused, self._learn_not_before = str(refused), time.monotonic() + LEARN_AGAIN_S
                raise

    def _learned(self, target: SshTarget, offered: HostKey) -> tuple[HostKey, ...]:
        assert self._learn is not None
        try:
            return self._learn()
        except HotspareError as error:
            raise UnknownHostKey(target, offered, f"; it could not be learned over AWS: {error}") from error

    def _prove(
        self, target: SshTarget, jumps: list[paramiko.SSHClient], offered: HostKey, learned: tuple[HostKey, ...]
    ) -> paramiko.SSHClient:
        """Log in to a host that has one of the learned keys, and remember these."""
        if offered not in learned:
            # A host has several keys. Asked for one of a type that is known, the right host shows it.
            self._login(target, self._socket(target, jumps), learned).close()
        try:
            remember(target.known_hosts, target.known_as, learned)
        except OSError as error:
            logger.warning("%s: its host key is learned again next time: %s", self.name, error)
        return self._login(target, self._socket(target, jumps), learned)

    def _socket(
        self, target: SshTarget, jumps: list[paramiko.SSHClient]
    ) -> socket.socket | paramiko.Channel | paramiko.ProxyCommand:
        if target.proxy_command:
            return paramiko.ProxyCommand(target.proxy_command)
        try:
            if jumps and (through := jumps[0].get_transport()) is not None:
                return through.open_channel("direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=self._timeout_s)
            plain = socket.create_connection((target.host, target.port), self._timeout_s)
        except socket.gaierror as error:
            raise AccessRefused(f"{self.name}: the host name {target.host} is not known here: {error}") from error
        except (OSError, paramiko.SSHException) as error:
            raise NodeUnreachable(f"{self.name}: no connection to {target.host} port {target.port}: {error}") from error
        with contextlib.suppress(OSError, AttributeError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
        return plain

    def _login(
        self,
        target: SshTarget,
        through: socket.socket | paramiko.Channel | paramiko.ProxyCommand,
        learned: tuple[HostKey, ...] = (),
    ) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        known = known_keys(target.known_hosts, target.known_as)
        trusted = () if learned else authorities(target.known_hosts, (target.known_as, target.host))
        if trusted:
            client.set_missing_host_key_policy(BelieveAuthorities(target, trusted, known))
        else:
            for key in learned or known:
                accept_key(client, target, key)
            client.set_missing_host_key_policy(RefuseUnknown(target))
        try:
            client.connect(
                target.host,
                target.port,
                target.user,
                key_filename=list(target.identity_files) or None,  # type: ignore[arg-type]  # a list is allowed, the stubs do not know
                sock=through,
                timeout=self._timeout_s,
                banner_timeout=self._timeout_s,
                auth_timeout=self._timeout_s,
                allow_agent=not target.identities_only,
                look_for_keys=not target.identity_files,
                transport_factory=CertificatesFirst if trusted else None,  # type: ignore[arg-type]  # stubs of an older release
            )
        except BaseException as error:
            client.close()
            through.close()
            if learned and isinstance(error, paramiko.BadHostKeyException):
                raise impostor(target, error.key, learned) from error
            _explain(target, error)
        return client


def _explain(target: SshTarget, error: BaseException) -> NoReturn:
    """Turn what paramiko raises at login into our errors: who is refused is not unreachable."""
    place = f"{target.host} port {target.port}"
    if isinstance(error, paramiko.BadHostKeyException):
        raise changed_key(target) from error
    if isinstance(error, paramiko.AuthenticationException):
        raise AccessRefused(
            f"{target.alias}: {target.user}@{place} does not accept our key ({error}); look: ssh -v {target.alias} true"
        ) from error
    if isinstance(error, (paramiko.SSHException, EOFError, OSError)):
        raise NodeUnreachable(f"{target.alias}: no SSH login at {place}: {str(error) or type(error).__name__}") from error
    raise error
