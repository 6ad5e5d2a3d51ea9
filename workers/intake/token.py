"""A token that who asks must show, read from a file so that it is on no command line and can be rotated."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path

from activities.errors import BadInput, TransientError

logger = logging.getLogger(__name__)


class TokenUnreadable(TransientError):
    """The token file cannot be read just now."""


class TokenFile:
    """Compares tokens with the file's present content, in constant time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def check_usable(self) -> None:
        """Raise BadInput, with the line to type, unless the file holds a token; warn when others can read it."""
        try:
            token = self._read()
            open_to_others = self._file.stat().st_mode & 0o077
        except (TokenUnreadable, OSError) as error:
            raise BadInput(f"{error}; `hotspare init` writes one") from error
        if len(token) < 16:
            raise BadInput(f"{self._file}: the token is shorter than 16 characters; delete the file and run `hotspare init`")
        if open_to_others:
            logger.warning("%s can be read by other users; type: chmod 600 %s", self._file, self._file)

    def matches(self, shown: str) -> bool:
        """Whether `shown` is the token. Raises TokenUnreadable when there is none to compare with."""
        token = self._read()
        if not token:
            raise TokenUnreadable(f"{self._file}: is empty")
        return hmac.compare_digest(shown.encode(), token.encode())

    def signs(self, signed: bytes, signature: str) -> bool:
        """Whether `signature` is the HMAC-SHA256 of `signed` under the token, in hexadecimal. Raises as `matches`."""
        token = self._read()
        if not token:
            raise TokenUnreadable(f"{self._file}: is empty")
        right = hmac.new(token.encode(), signed, hashlib.sha256).hexdigest()
        return hmac.compare_digest(signature.lower().encode(), right.encode())

    def _read(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenUnreadable(f"{self._file}: the token cannot be read ({error})") from error


def write_token(file: Path) -> bool:
    """Write a new random token with mode 0600 unless the file is there; return whether it was written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(secrets.token_urlsafe(32) + "\n")
    return True
