"""Reads which file systems are mounted, and asks each how full it is, in a child that a hung server cannot hold up."""

from __future__ import annotations

import errno
import json
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from checks.host import Host
from checks.probes.child import end_child

LOCAL_TYPES = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs"})
NETWORK_TYPES = frozenset({"nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "beegfs", "gpfs", "wekafs", "9p"})
_NETWORK_FUSE = ("s3", "mountpoint-s3", "goofys", "gcsfuse", "ceph", "juicefs", "glusterfs", "sshfs")
MOUNTS_LIMIT = 64
"""File systems that are asked at most. Hotspare default: a node has about ten; containers repeat them."""
_HUNG_LIMIT = 3
"""After so many that hang the others are not asked: each costs the whole deadline."""
_NOT_OURS = (errno.ENOENT, errno.EACCES, errno.EPERM)
"""Not seen from here, or not for this user: says nothing of the file system."""


@dataclass(frozen=True)
class Mount:
    """One file system. `state` is "ok", "hung", "error" (with `error`) or "not_asked"; per cents are what is left for users."""

    device: str
    place: str
    type: str
    options: tuple[str, ...]
    network: bool
    state: str = "not_asked"
    error: str = ""
    free_percent: Optional[float] = None
    free_inodes_percent: Optional[float] = None


@dataclass(frozen=True)
class Mounts:
    """All real file systems. `readable` is False where the table of mounts could not be read."""

    readable: bool
    mounts: tuple[Mount, ...] = ()


Answer = tuple[str, str, Optional[float], Optional[float]]
"""State, error, per cent of bytes free, per cent of inodes free."""


def read_mounts(host: Host, deadline_s: float, ask: Optional[Callable[[str], Answer]] = None) -> Mounts:
    """Read the table and ask every file system within `deadline_s` each; what does not answer hangs."""
    # Seen through a root prefix, "self" is a process of another mount namespace: the first process has the host's.
    text = (host.read_text("/proc/1/mounts") if host.root != "/" else None) or host.read_text("/proc/mounts")
    if text is None:
        return Mounts(False)
    mounts = sorted(_real(text), key=lambda one: one.network)[:MOUNTS_LIMIT]
    answers = _ask_all([host.path(one.place) for one in mounts], deadline_s, ask or ask_one)
    return Mounts(True, tuple(_answered(one, answer) for one, answer in zip(mounts, answers)))


def _real(text: str) -> list[Mount]:
    """Parse the table; of a file system that is mounted several times keep the first place, and whether any is writable."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        parts = line.split(" ")
        if len(parts) < 4:
            continue
        device, place, kind, options = _plain(parts[0]), _plain(parts[1]), parts[2], tuple(parts[3].split(","))
        network = _is_network(kind, device)
        if not network and (kind not in LOCAL_TYPES or not (device.startswith("/dev/") or kind == "zfs")):
            continue
        known = found.get(device)
        if known is None:
            found[device] = Mount(device, place, kind, options, network)
        elif "rw" in options and "rw" not in known.options:
            found[device] = replace(known, options=options)
    return list(found.values())


def _is_network(kind: str, device: str) -> bool:
    if kind in NETWORK_TYPES:
        return True
    return kind.startswith("fuse") and (kind.partition(".")[2].startswith(_NETWORK_FUSE) or device.startswith(_NETWORK_FUSE))


def _plain(text: str) -> str:
    """Undo the octal escapes of white space."""
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escaped, character)
    return text


def ask_one(path: str) -> Answer:
    """Ask one file system how full it is. Waits for its server for as long as that takes."""
    try:
        answer = os.statvfs(path)
    except OSError as error:
        return ("not_asked" if error.errno in _NOT_OURS else "error", error.strerror or str(error), None, None)
    percent = 100.0 * answer.f_bavail / answer.f_blocks if answer.f_blocks else None
    inodes = 100.0 * answer.f_favail / answer.f_files if answer.f_files else None
    return ("ok", "", percent, inodes)


def _ask_all(paths: Sequence[str], deadline_s: float, ask: Callable[[str], Answer]) -> list[Answer]:
    """Ask in a child; when it hangs, leave it and go on behind the path that held it up."""
    answers: list[Answer] = []
    hung = 0
    while len(answers) < len(paths) and hung < _HUNG_LIMIT:
        got = _child_answers(paths[len(answers) :], deadline_s, ask)
        answers += got
        if len(answers) < len(paths):
            answers.append(("hung", f"no answer within {deadline_s:g} s", None, None))
            hung += 1
    return [*answers, *[("not_asked", "others hang", None, None)] * (len(paths) - len(answers))]


def _child_answers(paths: Sequence[str], deadline_s: float, ask: Callable[[str], Answer]) -> list[Answer]:
    receiver, sender = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(receiver)
        os.close(sender)
        return [("not_asked", f"no process could be started: {error}", None, None)] * len(paths)
    if child == 0:
        _answer(paths, sender, ask)
    os.close(sender)
    try:
        return _receive(receiver, len(paths), deadline_s)
    finally:
        os.close(receiver)
        end_child(child, 0.1)


def _answer(paths: Sequence[str], sender: int, ask: Callable[[str], Answer]) -> None:
    """One line an answer, at once; leaves without any clean-up that belongs to the parent."""
    try:
        for path in paths:
            os.write(sender, json.dumps(ask(path)).encode() + b"\n")
    finally:
        os._exit(0)


def _receive(receiver: int, wanted: int, deadline_s: float) -> list[Answer]:
    """Read lines until all are there or one takes longer than the deadline."""
    content = b""
    until = time.monotonic() + deadline_s
    while content.count(b"\n") < wanted:
        ready, _, _ = select.select([receiver], [], [], max(0.0, until - time.monotonic()))
        chunk = os.read(receiver, 1 << 16) if ready else b""
        if not chunk:
            break
        content += chunk
        until = time.monotonic() + deadline_s
    return [_parsed(line) for line in content.split(b"\n")[:-1]]


def _parsed(line: bytes) -> Answer:
    state, error, percent, inodes = json.loads(line)
    return (state, error, percent, inodes)


def _answered(mount: Mount, answer: Answer) -> Mount:
    state, error, percent, inodes = answer
    return replace(mount, state=state, error=error, free_percent=percent, free_inodes_percent=inodes)
