"""The evidence bundle as a file: one tar.gz with a manifest that says of every part what became of it, and the digest of each."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from activities.clock import beat
from activities.errors import BadInput
from activities.evidence_parts import Part, PartState

MANIFEST = "manifest.json"
SCHEMA = 1

OVERHEAD_BYTES = 4096
"""Room for the manifest and the archive's own blocks, beside 600 bytes a part. Hotspare default, measured with 25 parts."""

PART_OVERHEAD_BYTES = 600

READ_LIMIT_BYTES = 400_000_000
"""Bytes that are unpacked of a bundle before it counts as broken. Hotspare default: many times the largest that is written."""


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds: its manifest and its texts by name. `broken` names parts whose digest is not the manifest's."""

    manifest: Mapping[str, Any]
    texts: Mapping[str, str]
    broken: Sequence[str] = field(default_factory=tuple)

    @property
    def parts(self) -> list[Mapping[str, Any]]:
        """The manifest's entry of each part."""
        parts: list[Mapping[str, Any]] = self.manifest["parts"]
        return parts

    @property
    def items(self) -> list[str]:
        """Names of the parts that are there, by name."""
        return sorted(name for name in self.texts if name != MANIFEST)

    @property
    def missing(self) -> list[str]:
        """One line for each part that is not there or not whole, with the reason."""
        return [f"{part['name']}: {part['why']}" for part in self.parts if part["state"] != PartState.TAKEN]


def pack(about: Mapping[str, Any], parts: Sequence[Part], limit_bytes: int, at: int) -> bytes:
    """Return the bundle's bytes, at most `limit_bytes`: the largest parts lose their beginning to fit. `at` is Unix time."""
    room = limit_bytes - OVERHEAD_BYTES - PART_OVERHEAD_BYTES * len(parts)
    fitted = _fitted(parts, room, limit_bytes)
    while len(content := _packed(about, fitted, at)) > limit_bytes and any(part.text for part in fitted):
        # Packed together it is a little more than what was measured piece by piece.
        room = min(room, sum(map(_packed_size, fitted))) * 9 // 10
        fitted = _fitted(fitted, room, limit_bytes)
    return content


def _fitted(parts: Sequence[Part], room: int, limit_bytes: int) -> list[Part]:
    kept = {part.name: part for part in parts}
    sizes = {part.name: _packed_size(part) for part in parts}
    while sum(sizes.values()) > room and any(part.text for part in kept.values()):
        largest = max(sizes, key=lambda name: (sizes[name], name))
        length = len(kept[largest].text) // 2
        why = f"the last {length} characters, shortened by the size limit of {limit_bytes} bytes for the bundle"
        kept[largest] = kept[largest].shortened(length, why)
        sizes[largest] = _packed_size(kept[largest])
        beat()
    return [kept[part.name] for part in parts]


def _packed_size(part: Part) -> int:
    return len(zlib.compress(part.text.encode("utf-8", "replace"), 6)) if part.text else 0


def _packed(about: Mapping[str, Any], parts: Sequence[Part], at: int) -> bytes:
    contents = {part.name: part.text.encode("utf-8", "replace") for part in parts if part.held}
    manifest = {"schema": SCHEMA, **about, "parts": [_entry(part, contents.get(part.name)) for part in parts]}
    files = {MANIFEST: json.dumps(manifest, indent=1, ensure_ascii=False).encode("utf-8", "replace"), **contents}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), at, 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _entry(part: Part, content: bytes | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": part.name, "state": part.state.value, "source": part.source}
    entry |= {name: value for name in ("what", "why", "taken_at") if (value := getattr(part, name))}
    if content is not None:
        entry |= {"bytes": len(content), "sha256": sha256(content).hexdigest(), "took_s": round(part.took_s, 2)}
        entry |= {name: value for name in ("secrets", "serials") if (value := getattr(part, name))}
    return entry


def unpack(content: bytes) -> Bundle:
    """Read a bundle and check every digest. Raises BadInput for what is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            files = _files(archive)
        manifest = json.loads(files[MANIFEST])
        entries = manifest["parts"]
        digests = {entry["name"]: entry["sha256"] for entry in entries if "sha256" in entry}
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"this is no evidence bundle, or only a part of one: {error}") from error
    broken = [name for name, digest in digests.items() if sha256(files.get(name, b"")).hexdigest() != digest]
    broken += [name for name in files if name != MANIFEST and name not in digests]
    return Bundle(manifest, {name: text.decode("utf-8", "replace") for name, text in files.items()}, tuple(sorted(broken)))


def _files(archive: tarfile.TarFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    left = READ_LIMIT_BYTES
    for member in archive:
        opened = archive.extractfile(member) if member.isfile() else None
        if opened is None:
            continue
        if member.size > left:
            raise BadInput(f"the bundle holds more than {READ_LIMIT_BYTES} bytes; it was not written by Hotspare")
        files[member.name] = opened.read()
        left -= member.size
    return files
