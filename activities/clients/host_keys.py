"""SSH host keys as data: what one is, and how cloud-init prints them on an instance's console. Reads text only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
END = "-----END SSH HOST KEY KEYS-----"
"""Lines around the keys. Source: cloud-init, module keys-to-console."""

_KEY = re.compile(r"(?<!\S)(?P<kind>ssh-[a-z0-9]+|ecdsa-sha2-[a-z0-9]+)\s+(?P<blob>AAAA[A-Za-z0-9+/]+={0,2})(?!\S)")


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type and its base64 text, the two words that a known_hosts line has after the host's name."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint as OpenSSH shows it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


def keys_on_console(text: str) -> tuple[HostKey, ...]:
    """Return the host keys of the newest complete block on a console, none when there is no such block.

    Other programs write to the console too, in front of a line, between lines and into the middle of one: what is not a whole key
    is left out. An incomplete block is one that is being printed, or whose begin the console no longer has.
    """
    block: list[HostKey] | None = None
    newest: list[HostKey] = []
    for line in text.splitlines():
        if BEGIN in line:
            block = []
        elif END in line and block is not None:
            newest, block = block or newest, None
        elif block is not None and (key := _key_in(line)):
            block.append(key)
    return tuple(dict.fromkeys(newest))


def _key_in(line: str) -> HostKey | None:
    found = _KEY.search(line)
    return HostKey(found["kind"], found["blob"]) if found and _is_whole(found["kind"], found["blob"]) else None


def _is_whole(kind: str, blob: str) -> bool:
    """Whether a key is complete: fields with their length in front, the first of which says the type again (RFC 4253, 6.6)."""
    try:
        rest = base64.b64decode(blob, validate=True)
    except binascii.Error:
        return False
    fields = []
    while rest:
        size = int.from_bytes(rest[:4], "big")
        if len(rest) < 4 + size:
            return False
        fields.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return len(fields) > 1 and fields[0] == kind.encode()
