"""The key file of the payload codec: one key a line, `ID BASE64`, the last encrypts, all decrypt. Its owner alone can read it."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from activities.errors import BadInput

KEY_BYTES = 32
"""AES-256."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class KeyRing:
    """The keys of a file. Asked for a key that is not among them, it looks once more: one may have been added."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._keys = read_keys(file)

    @property
    def newest(self) -> tuple[str, AESGCM]:
        """Id and cipher of the key that encrypts. It stays the same while the process runs, so that others learn a new one."""
        key_id = list(self._keys)[-1]
        return key_id, self._keys[key_id]

    def cipher(self, key_id: str) -> AESGCM | None:
        """Return the cipher of a key, None if the file has no such key."""
        if key_id not in self._keys and key_id in (fresh := read_keys(self._file)):
            # In front, so that the last one still encrypts.
            self._keys = {key_id: fresh[key_id], **self._keys}
        return self._keys.get(key_id)


def read_keys(file: Path) -> dict[str, AESGCM]:
    """Read the keys, oldest first. Raises BadInput, which shows no part of a key, when there are none or others can read them."""
    keys: dict[str, AESGCM] = {}
    for number, line in enumerate(_private_text(file).splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        place = f"{file}: line {number}"
        if len(words) != 2 or not _ID.fullmatch(words[0]):
            raise BadInput(f"{place}: not `ID KEY`; `hotspare codec-key` adds a line")
        if words[0] in keys:
            raise BadInput(f"{place}: key {words[0]} stands there twice")
        keys[words[0]] = AESGCM(_decoded(words[1], f"{place}: key {words[0]}"))
    if not keys:
        raise BadInput(f"{file}: has no key; `hotspare codec-key` adds one")
    return keys


def add_key(file: Path) -> str:
    """Add a new random key as the last line of the file, which is made if it is not there, and return the key's id."""
    key_id = f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(3)}"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadInput(f"{file}: no key can be written there: {error.strerror}") from error
    with os.fdopen(out, "w", encoding="ascii") as keys:
        _refuse_open(file, os.fstat(out))
        keys.write(f"{key_id} {base64.b64encode(AESGCM.generate_key(KEY_BYTES * 8)).decode()}\n")
    return key_id


def _private_text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as text:
            _refuse_open(file, os.fstat(text.fileno()))
            return text.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadInput(
            f"{file}: the keys of the payload codec cannot be read: {why}; `hotspare codec-key` makes the file"
        ) from error


def _refuse_open(file: Path, seen: os.stat_result) -> None:
    if stat.S_IMODE(seen.st_mode) & 0o077:
        raise BadInput(f"{file}: other users can read or write the keys; type: chmod 600 {file}")
    if seen.st_uid not in (0, os.geteuid()):
        raise BadInput(f"{file}: belongs to another user, who could change the keys; type: chown $USER {file}")


def _decoded(text: str, place: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadInput(f"{place}: not {KEY_BYTES} bytes in base64; `hotspare codec-key` adds one that is")
    return key
