"""The payload codec: AES-256-GCM over each payload. What is not encrypted passes, so a person may start a workflow by hand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from activities.errors import AccessRefused
from workers.codec.keys import KeyRing

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
"""Metadata of an encrypted payload. Source: the names that Temporal's own encryption samples use."""

NONCE_BYTES = 12
"""A fresh random nonce for each payload. Source: NIST SP 800-38D: with 96 random bits at most 2**32 payloads for one key."""


class PayloadUnreadable(AccessRefused):
    """A payload cannot be decrypted here."""


class EncryptionCodec(PayloadCodec):
    """Encrypts with the newest key, decrypts with that which the payload names."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ring = KeyRing(file)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload, its metadata included."""
        return self.encrypt(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what is encrypted. Raises PayloadUnreadable."""
        return self.decrypt(payloads)

    def encrypt(self, payloads: Iterable[Payload]) -> list[Payload]:
        """As `encode`."""
        key_id, cipher = self._ring.newest
        return [
            Payload(
                metadata={"encoding": ENCODING, KEY_ID: key_id.encode()},
                data=(nonce := os.urandom(NONCE_BYTES)) + cipher.encrypt(nonce, payload.SerializeToString(), _bound(key_id)),
            )
            for payload in payloads
        ]

    def decrypt(self, payloads: Iterable[Payload]) -> list[Payload]:
        """As `decode`."""
        return [self._decrypt(payload) if payload.metadata.get("encoding") == ENCODING else payload for payload in payloads]

    def _decrypt(self, payload: Payload) -> Payload:
        key_id = payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")
        cipher = self._ring.cipher(key_id)
        if cipher is None:
            raise PayloadUnreadable(
                f"a payload is encrypted with key {key_id!r}, which is not in {self._file}: add it there again"
            )
        try:
            plain = cipher.decrypt(payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:], _bound(key_id))
        except (InvalidTag, ValueError) as error:
            raise PayloadUnreadable(
                f"a payload that names key {key_id!r} was not encrypted with it, or was changed: "
                f"has {self._file} another key of that id?"
            ) from error
        return Payload.FromString(plain)


def _bound(key_id: str) -> bytes:
    """What is authenticated with the payload, beside it."""
    return f"hotspare/1/{key_id}".encode()
