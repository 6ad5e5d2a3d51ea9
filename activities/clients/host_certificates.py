"""Host certificates of OpenSSH: whether an authority that we know has signed a host's key, for this host and this time.

paramiko negotiates certificates and reads the key out of one; whom to believe is for the caller to judge, so it is judged here.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass

import paramiko

from activities.clients.host_keys import HostKey

SUFFIX = "-cert-v01@openssh.com"
HOST = 2
"""Type of a host certificate; 1 is a user's. Source: OpenSSH, PROTOCOL.certkeys."""

_KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-sha2-nistp256": 2, "ecdsa-sha2-nistp384": 2, "ecdsa-sha2-nistp521": 2}
"""Fields of the public key itself, after the nonce."""

WEAK_SIGNATURES = ("ssh-rsa", "ssh-dss")
"""Signatures over SHA-1, which OpenSSH has refused for certificates since 8.2."""


class NotReadable(ValueError):
    """The bytes are no certificate."""


class _Fields:
    """Reads fields of the SSH protocol one after the other, to the byte: paramiko's reader fills what is missing with zeros."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._at = 0

    @property
    def read(self) -> bytes:
        """What has been read so far."""
        return self._packed[: self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def string(self) -> bytes:
        return self._take(self.number(4))

    def text(self) -> str:
        return self.string().decode()

    def end(self) -> None:
        if self._at != len(self._packed):
            raise NotReadable("more than a certificate")

    def _take(self, size: int) -> bytes:
        found = self._packed[self._at : self._at + size]
        if len(found) < size:
            raise NotReadable("not a whole certificate")
        self._at += size
        return found


@dataclass(frozen=True)
class Certificate:
    """What a certificate says, and who signed it. Times are seconds since the epoch; `signed` is what the signature is over."""

    key: HostKey
    of_a_host: bool
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: bytes
    authority: HostKey
    signed: bytes
    signature: bytes


def read_certificate(blob: bytes) -> Certificate:
    """Read a certificate as it travels. Raises NotReadable."""
    fields = _Fields(blob)
    try:
        kind = fields.text().removesuffix(SUFFIX)
        fields.string()  # a nonce
        public = [fields.string() for _ in range(_KEY_FIELDS[kind])]
        fields.number(8)  # a serial number
        of_a_host = fields.number(4) == HOST
        key_id, principals = fields.text(), _texts(fields.string())
        after, before = fields.number(8), fields.number(8)
        critical = fields.string()
        fields.string()  # extensions: hosts have none
        fields.string()  # reserved
        authority = fields.string()
        signed = fields.read
        signature = fields.string()
        fields.end()
        authority_kind = _Fields(authority).text()
    except (KeyError, ValueError) as error:
        raise NotReadable(f"not a host certificate that we know: {error}") from error
    return Certificate(
        key=_key(kind, public),
        of_a_host=of_a_host,
        key_id=key_id,
        principals=principals,
        valid_after=after,
        valid_before=before,
        critical=critical,
        authority=HostKey(authority_kind, base64.b64encode(authority).decode()),
        signed=signed,
        signature=signature,
    )


def why_refused(certificate: Certificate, host: str, authorities: Sequence[HostKey], now: float | None = None) -> str:
    """Return why a certificate does not prove that its key is the host's, empty when it does.

    Stricter than OpenSSH in one thing: one that names no host at all would let every host stand in for every other.
    """
    now = time.time() if now is None else now
    if certificate.authority not in authorities:
        return f"it is signed by {certificate.authority}, which is no authority for this host"
    if not certificate.of_a_host:
        return "it is the certificate of a user, not of a host"
    if not certificate.principals:
        return "it names no host; sign it with: ssh-keygen -h -n HOST"
    if host.lower() not in [name.lower() for name in certificate.principals]:
        return f"it is for {', '.join(certificate.principals)}, not for {host}"
    if not certificate.valid_after <= now < certificate.valid_before:
        return "it is not valid now; sign it anew, or set the clocks right"
    if certificate.critical:
        return "it has critical options, and hosts have none that we know"
    return "" if _signature_holds(certificate) else "its signature is not that of the authority, or over SHA-1"


def _signature_holds(certificate: Certificate) -> bool:
    try:
        fields = _Fields(certificate.signature)
        if fields.text() in WEAK_SIGNATURES:
            return False
        fields.string()
        fields.end()
        authority = paramiko.PKey.from_type_string(certificate.authority.kind, base64.b64decode(certificate.authority.blob))
        return bool(authority.verify_ssh_sig(certificate.signed, paramiko.Message(certificate.signature)))
    except Exception:  # a key or a signature that cannot be read, for whatever reason, proves nothing
        return False


def _texts(packed: bytes) -> tuple[str, ...]:
    fields, found = _Fields(packed), []
    while len(fields.read) < len(packed):
        found.append(fields.text())
    return tuple(found)


def _key(kind: str, public: Sequence[bytes]) -> HostKey:
    """The plain key in a certificate, as a known_hosts file would have it."""
    whole = paramiko.Message()
    whole.add_string(kind)
    for field in public:
        whole.add_string(field)
    return HostKey(kind, base64.b64encode(whole.asbytes()).decode())
