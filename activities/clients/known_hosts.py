"""known_hosts files of OpenSSH: which keys a host has there, and adding new ones, never in place of others."""

from __future__ import annotations

import fcntl
import fnmatch
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import paramiko

from activities.clients.host_keys import HostKey
from activities.errors import AccessRefused

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"


@dataclass(frozen=True)
class _Entry:
    marker: str
    names: tuple[str, ...]
    key: HostKey

    def covers(self, names: Sequence[str]) -> bool:
        """Whether one of a host's names fits the entry's patterns, as OpenSSH reads them: one with ! in front rules it out."""
        fits = [one for one in self.names if any(_fits(name, one.removeprefix("!")) for name in names)]
        return bool(fits) and not any(one.startswith("!") for one in fits)

    def is_of(self, name: str) -> bool:
        return any(one == name or (one.startswith("|1|") and _hashed(name, one) == one) for one in self.names)


def known_keys(files: Sequence[str], name: str) -> tuple[HostKey, ...]:
    """Return the keys that the files have for a host, without those that one of them revokes. A missing file has none.

    `name` is the host's name there: `host`, or `[host]:port` where the port is not 22.
    """
    entries = list(_entries(files))
    revoked = {entry.key for entry in entries if entry.marker == REVOKED}
    return tuple(entry.key for entry in entries if not entry.marker and entry.is_of(name) and entry.key not in revoked)


def authorities(files: Sequence[str], names: Sequence[str]) -> tuple[HostKey, ...]:
    """Return the keys whose certificates prove a host's key, without revoked ones. `names`: the host's, with and without port."""
    entries = list(_entries(files))
    revoked = {entry.key for entry in entries if entry.marker == REVOKED}
    found = (entry.key for entry in entries if entry.marker == AUTHORITY and entry.covers(names))
    return tuple(key for key in dict.fromkeys(found) if key not in revoked)


def is_revoked(files: Sequence[str], key: HostKey) -> bool:
    """Whether one of the files revokes a key."""
    return any(entry.marker == REVOKED and entry.key == key for entry in _entries(files))


def remember(files: Sequence[str], name: str, keys: Sequence[HostKey]) -> tuple[HostKey, ...]:
    """Add keys of a host to the first of the files, and return those that were new. Two processes may do it at once.

    Raises AccessRefused, and writes nothing, when the files have other keys of the host or revoke one of these.
    """
    file = Path(os.path.realpath(files[0]))
    with _alone_with(file):
        known = known_keys(files, name)
        _refuse_change(files, name, known, keys)
        new = tuple(key for key in keys if key not in known)
        if new:
            _replace(file, _text_of(file) + "".join(f"{name} {key.kind} {key.blob}\n" for key in new))
    return new


def _refuse_change(files: Sequence[str], name: str, known: Sequence[HostKey], keys: Sequence[HostKey]) -> None:
    for key in keys:
        if is_revoked(files, key):
            raise AccessRefused(f"the key {key} of {name} is revoked in {' or '.join(files)}: give the host new keys")
    kinds = {key.kind for key in keys}
    other = [key for key in known if key not in keys and key.kind in kinds]
    if other or (known and not set(known) & set(keys)):
        raise AccessRefused(
            f"the host key of {name} has changed: known is {known[0] if not other else other[0]}, new is "
            f"{', '.join(map(str, keys))}. If the instance was replaced, remove the old one: {removal(files, name)}"
        )


def removal(files: Sequence[str], name: str) -> str:
    """The command that takes a host's keys out of the file."""
    return f"ssh-keygen -R '{name}' -f {files[0]}"


def _entries(files: Sequence[str]) -> Iterator[_Entry]:
    for file in files:
        for line in _text_of(Path(file)).splitlines():
            words = line.split()
            marker = words.pop(0) if words and words[0].startswith("@") else ""
            if len(words) >= 3 and not words[0].startswith("#"):
                yield _Entry(marker, tuple(words[0].split(",")), HostKey(words[1], words[2]))


def _text_of(file: Path) -> str:
    """The lines of a file, each ended; nothing where there is no file that we may read."""
    try:
        text = file.read_text(errors="surrogateescape")
    except OSError:
        return ""
    return text if not text or text.endswith("\n") else text + "\n"


def _fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern with * and ?; the brackets around a host before its port are themselves."""
    if pattern.startswith("|1|"):
        return _hashed(name, pattern) == pattern
    return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def _hashed(name: str, like: str) -> str:
    try:
        return str(paramiko.HostKeys.hash_host(name, like))
    except Exception:  # a hash that nobody can read is nobody's name
        return ""


@contextmanager
def _alone_with(file: Path) -> Iterator[None]:
    """Hold the lock of a file. It is a file beside it, because the file itself is replaced."""
    if file.exists() and not file.is_file():
        raise AccessRefused(f"{file} takes no host keys: name a file in UserKnownHostsFile of the OpenSSH configuration")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.with_name(f"{file.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(file: Path, text: str) -> None:
    """Put a new text in the file's place, so that a reader sees the old one or the new one. Its mode stays."""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", errors="surrogateescape") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        new.chmod(mode)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
