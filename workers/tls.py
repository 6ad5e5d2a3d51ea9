"""TLS of the HTTP doors: certificate and key from files, read again when they were renewed."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from activities.errors import BadInput

logger = logging.getLogger(__name__)

OLDEST = ssl.TLSVersion.TLSv1_2


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with what it was signed by, and its key."""

    certificate: Path
    key: Path


class RenewedContext:
    """`context` is what the server listens with; each connection gets what the files hold when it begins."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises BadInput, naming the files, when they cannot be used."""
        self._files = files
        self._read_at = self._age()
        try:
            self.context = self._current = self._read()
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"{files.certificate}, {files.key}: no certificate and its key can be read there: {error}") from error
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        age = self._age()
        if age != self._read_at:
            try:
                self._current = self._read()
                self._read_at = age
            except (OSError, ssl.SSLError) as error:
                logger.warning("%s: cannot be used, the old certificate stays: %s", self._files.certificate, error)
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = OLDEST
        context.load_cert_chain(self._files.certificate, self._files.key)
        return context

    def _age(self) -> tuple[int, int]:
        try:
            return self._files.certificate.stat().st_mtime_ns, self._files.key.stat().st_mtime_ns
        except OSError:
            return 0, 0
