"""Gathers the evidence bundle of an incident: one tar.gz of what a node says before anything is done to it, secrets taken out."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from activities.clock import Clock, beat
from activities.errors import CapabilityMissing, DeadlinePassed, NodeUnreachable
from activities.node_access import NodeAccess

ITEM_LIMIT = 4_000_000
"""Characters kept of one item, from its end. Hotspare default: of a kernel ring buffer of 1 to 16 MB the end matters."""

ITEM_DEADLINE_S = 20.0
"""Seconds for one item. Hotspare default: `nvidia-smi -q` on 8 GPUs takes 2 to 5 s, and hangs on a broken one."""


@dataclass(frozen=True)
class Item:
    """One file of the bundle: the command whose output it is. Items that touch NVML are left out after XID 79, 119 or 120."""

    name: str
    command: Sequence[str]
    nvml: bool = False


ITEMS = (
    Item("dmesg.txt", ("dmesg",)),
    Item("uptime.txt", ("uptime",)),
    Item("uname.txt", ("uname", "-a")),
    Item("fabric-manager.txt", ("journalctl", "-u", "nvidia-fabricmanager", "-n", "500", "--no-pager")),
    Item("pci.txt", ("lspci", "-nn", "-d", "10de:")),
    Item("processes.txt", ("ps", "-eo", "pid,stat,lstart,comm", "--sort", "pid")),
    Item("nvidia-smi.txt", ("nvidia-smi", "-q"), nvml=True),
)
"""What is gathered beside the probe's own answer. Arguments of processes are left out: secrets travel in them."""

_SECRETS = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        "[private key taken out]",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "[AWS key id taken out]"),
    (re.compile(r"(?i)(authorization:\s*\w+\s+)\S+"), r"\1[taken out]"),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:password|passwd|secret|token|api_?key|access_?key)[\w-]*\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|\S+)"
        ),
        r"\1[taken out]",
    ),
    (re.compile(r"(\w+://[^/\s:@]+:)[^@\s]+@"), r"\1[taken out]@"),
)


def redact(text: str) -> str:
    """Take out what looks like a secret: private keys, AWS key ids, authorization headers, `token=...`, passwords in URLs."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


@dataclass(frozen=True)
class Gathered:
    """What could be had, by file name, and what could not, with the reason."""

    files: dict[str, str]
    missing: list[str]


def gather(
    access: NodeAccess, probe: Callable[[], str], sudo: Sequence[str], no_nvml: bool, deadline_s: float, clock: Clock
) -> Gathered:
    """Collect every item within `deadline_s`; what fails or comes too late is named instead."""
    until = clock.now() + deadline_s
    gathered = Gathered({}, [])

    def attempt(name: str, read: Callable[[], str]) -> None:
        beat(f"evidence: {name}")
        try:
            gathered.files[name] = redact(read())
        except (NodeUnreachable, DeadlinePassed, CapabilityMissing) as error:
            gathered.missing.append(f"{name}: {error}")

    attempt("probe.json", probe)
    for item in ITEMS:
        left_s = until - clock.now()
        if item.nvml and no_nvml:
            gathered.missing.append(f"{item.name}: NVML is not touched after XID 79, 119 or 120 in this boot")
        elif left_s <= 0:
            gathered.missing.append(f"{item.name}: no time left of {deadline_s:.0f} s")
        else:
            command, limit_s = [*sudo, *item.command], min(ITEM_DEADLINE_S, left_s)
            attempt(item.name, lambda command=command, limit_s=limit_s: _output(access, command, limit_s))  # type: ignore[misc]
    return gathered


def _output(access: NodeAccess, command: list[str], deadline_s: float) -> str:
    answer = access.run(command, deadline_s, ITEM_LIMIT)
    text = answer.stdout + (f"\n[stderr]\n{answer.stderr}" if answer.stderr.strip() else "")
    if answer.exit_status == 127 and not answer.stdout:
        raise CapabilityMissing(f"no such command on the node: {command[0]}")
    return text if answer.exit_status == 0 else f"{text}\n[exit status {answer.exit_status}]\n"


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk. `missing` also names items that the size limit shortened."""

    path: Path
    sha256: str
    size_bytes: int
    items: list[str]
    missing: list[str]


def write_bundle(gathered: Gathered, path: Path, limit_bytes: int) -> Bundle:
    """Write the bundle as one file that is there whole or not at all; items lose their beginning to fit the limit."""
    files, missing = dict(gathered.files), list(gathered.missing)
    content = _packed({**files, "missing.txt": "\n".join(missing) + "\n"})
    while len(content) > limit_bytes and files:
        largest = max(files, key=lambda name: len(files[name]))
        files[largest] = files[largest][len(files[largest]) // 2 + 1 :]
        missing = [line for line in missing if not line.startswith(f"{largest}: shortened")]
        missing.append(
            f"{largest}: shortened to its last {len(files[largest])} characters by the size limit of {limit_bytes} bytes"
        )
        if not files[largest]:
            del files[largest]
        content = _packed({**files, "missing.txt": "\n".join(missing) + "\n"})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return read_bundle(path)


def read_bundle(path: Path) -> Bundle:
    """Describe a bundle that was written before."""
    content = path.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        items = sorted(name for name in archive.getnames() if name != "missing.txt")
        listed = archive.extractfile("missing.txt")
        missing = listed.read().decode().splitlines() if listed else []
    return Bundle(path, hashlib.sha256(content).hexdigest(), len(content), items, [line for line in missing if line])


def _packed(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in sorted(files):
            content = files[name].encode("utf-8", "replace")
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def bundle_name(incident: str, token: str) -> str:
    """File name of a bundle: readable, safe, and one per incident and token."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", incident).strip("_")[-80:]
    return f"{safe}-{hashlib.sha256(token.encode()).hexdigest()[:12]}.tar.gz"
