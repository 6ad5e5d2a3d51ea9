"""Judges the host key that a server offers to paramiko: which are accepted, and what is said about the others."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence

import paramiko

from activities.clients.host_certificates import SUFFIX, NotReadable, read_certificate, why_refused
from activities.clients.host_keys import HostKey
from activities.clients.known_hosts import is_revoked, removal
from activities.clients.ssh_config import SshTarget
from activities.errors import AccessRefused


class UnknownHostKey(AccessRefused):
    """Nobody has said yet that `key` is the host's. The message says how to add it."""

    def __init__(self, target: SshTarget, key: HostKey, why_not_learned: str = "") -> None:
        self.key = key
        super().__init__(
            f"{target.alias}: the host key of {target.host} port {target.port} is not known ({key}){why_not_learned}. "
            f"Learn it from the instance's console: hotspare trust {target.alias}; or compare the fingerprint yourself "
            f"(aws ec2 get-console-output), then add the key: "
            f"ssh-keyscan -p {target.port} {target.host} >> {target.known_hosts[0]}"
        )


class RefuseUnknown(paramiko.MissingHostKeyPolicy):
    """Refuses a host whose key is not known, and says how to add it."""

    def __init__(self, target: SshTarget) -> None:
        self._target = target

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise UnknownHostKey(self._target, _as_host_key(key))


class CertificatesFirst(paramiko.Transport):
    """Asks a server for a certificate of its key before a plain key; paramiko would take the plain key where there are both."""

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The kinds of host keys, best first."""
        kinds = super().preferred_keys
        return tuple(sorted(kinds, key=lambda kind: SUFFIX not in kind))


class BelieveAuthorities(RefuseUnknown):
    """Accepts a host by a certificate of an authority, or by a known key where it shows no certificate."""

    def __init__(self, target: SshTarget, trusted: Sequence[HostKey], known: Sequence[HostKey]) -> None:
        super().__init__(target)
        self._trusted = trusted
        self._known = known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        plain = _as_host_key(key)
        if key.public_blob is not None:
            self._judge(key.public_blob.key_blob)
        elif plain not in self._known:
            for other in self._known:
                if other.kind == plain.kind:
                    raise paramiko.BadHostKeyException(hostname, key, _as_pkey(other))
            raise UnknownHostKey(self._target, plain)

    def _judge(self, blob: bytes) -> None:
        target = self._target
        try:
            shown = read_certificate(blob)
            why = why_refused(shown, target.host, self._trusted)
        except NotReadable as error:
            raise AccessRefused(f"{target.alias}: the host certificate of {target.host} cannot be read: {error}") from error
        if is_revoked(target.known_hosts, shown.key):
            why = f"its key {shown.key} is revoked"
        if why:
            raise AccessRefused(
                f"{target.alias}: the host certificate {shown.key_id!r} of {target.host} port {target.port} is refused: {why}. "
                f"The authorities are the @cert-authority lines of {' and '.join(target.known_hosts)}"
            )


def accept_key(client: paramiko.SSHClient, target: SshTarget, key: HostKey) -> None:
    """Let a client accept a key of a host: the first of its type, as paramiko has it."""
    with contextlib.suppress(Exception):  # a key that cannot be read, for whatever reason, is accepted from nobody
        known = _as_pkey(key)
        if (others := client.get_host_keys().lookup(target.known_as)) is None or key.kind not in others:
            client.get_host_keys().add(target.known_as, key.kind, known)


def _as_pkey(key: HostKey) -> paramiko.PKey:
    return paramiko.PKey.from_type_string(key.kind, base64.b64decode(key.blob))


def _as_host_key(key: paramiko.PKey) -> HostKey:
    return HostKey(key.get_name(), key.get_base64())


def impostor(target: SshTarget, offered: paramiko.PKey, learned: tuple[HostKey, ...]) -> AccessRefused:
    """The error for what answers at a node's address without the node's keys."""
    return AccessRefused(
        f"{target.alias}: what answers at {target.host} port {target.port} is not this instance: it offers the host key "
        f"{_as_host_key(offered)}, the instance's console shows {', '.join(map(str, learned))}. Nothing was trusted; set the "
        f"address of {target.alias} right in the OpenSSH configuration, or find out who answers there"
    )


def changed_key(target: SshTarget) -> AccessRefused:
    """The error for a host that offers another key than the known one."""
    return AccessRefused(
        f"{target.alias}: the host key of {target.host} port {target.port} has changed; if the instance was replaced, remove the "
        f"old one: {removal(target.known_hosts, target.known_as)}, then learn the new one: hotspare trust {target.alias}"
    )
