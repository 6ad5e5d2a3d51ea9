"""Where evidence bundles are kept: what is needed of a folder or a bucket. A bundle, once there, is never replaced."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol


@dataclass(frozen=True)
class StoredBundle:
    """A bundle that is kept: its address and its bytes."""

    uri: str
    content: bytes

    @property
    def sha256(self) -> str:
        """Digest of the whole bundle."""
        return sha256(self.content).hexdigest()


class EvidenceStore(Protocol):
    """Keeps bundles by name. Errors: AccessRefused, ProviderBusy, BadInput (no such place)."""

    def keep(self, name: str, content: bytes) -> StoredBundle:
        """Keep a bundle, whole or not at all. One that is there already under this name stays, and is the answer."""
        ...

    def find(self, name: str) -> StoredBundle | None:
        """Return the bundle of this name, or None."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Names of bundles that begin so, oldest first."""
        ...


ENDING = ".tar.gz"


def bundle_prefix(incident: str) -> str:
    """How the names of an incident's bundles begin: readable and safe as file name and key."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", incident).strip("_.")[-80:] + "-"


def bundle_name(incident: str, token: str) -> str:
    """File name of a bundle: one for each incident and token."""
    return f"{bundle_prefix(incident)}{sha256(token.encode()).hexdigest()[:12]}{ENDING}"
