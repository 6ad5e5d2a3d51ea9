"""Disks and file systems: NVMe controllers, md arrays, file systems that went read-only, are full or do not answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from checks.host import Host
from checks.model import Action, Finding, Verdict
from checks.probes.looks import Looks
from checks.probes.mounts import Mount, Mounts, read_mounts
from checks.probes.rates import last_seen
from checks.thresholds import Thresholds

NVME = "/sys/class/nvme"
_CONTROLLER = re.compile(r"^nvme\d+$")
_ARRAY = re.compile(r"^(md\S*) : (\S+)(.*)$")
_MEMBERS = re.compile(r"\[([0-9]{1,9})/[0-9]{1,9}\] \[([U_]+)\]")
_REPAIRING = re.compile(r"\b(?:recovery|resync|reshape)\s*=")
DEAD_STATES = ("dead", "deleting", "deleting (no IO)")
"""States out of which an NVMe controller does not come back. Source: Linux, drivers/nvme/host/sysfs.c."""
_READ_ONLY_BY_DESIGN = ("/dev/dm-", "/dev/mapper/", "/dev/loop", "/dev/ram", "/dev/zram")
"""Verified or packed images are read-only from the start."""
_SMALL_PLACES = ("/boot", "/efi")


@dataclass(frozen=True)
class Array:
    """One md array. `missing` members of `members`; `failed` lists those that the kernel threw out."""

    name: str
    active: bool
    level: str
    members: int
    missing: int
    failed: tuple[str, ...]
    repairing: bool


@dataclass(frozen=True)
class Storage:
    """What the node says of its disks. States of NVMe controllers by name, None where one could not be read."""

    controllers: dict[str, Optional[str]]
    arrays: tuple[Array, ...]
    mounts: Mounts
    read_only_wanted: frozenset[str]


def read_storage(host: Host, deadline_s: float) -> Storage:
    """Read controllers, arrays and mounts; a file system that hangs costs `deadline_s`."""
    names = [name for name in host.list(NVME) or () if _CONTROLLER.match(name)]
    states = {name: host.read_text(f"{NVME}/{name}/state") for name in names}
    table = host.read_text("/etc/fstab") or ""
    rows = [line.split() for line in table.splitlines() if not line.lstrip().startswith("#")]
    wanted = frozenset(row[1] for row in rows if len(row) > 3 and "ro" in row[3].split(","))
    return Storage(states, tuple(parse_mdstat(host.read_text("/proc/mdstat") or "")), read_mounts(host, deadline_s), wanted)


def parse_mdstat(text: str) -> Iterable[Array]:
    """Parse /proc/mdstat. Source: Linux, Documentation/admin-guide/md.rst."""
    for block in re.split(r"\n(?=\S)", text):
        head = _ARRAY.match(block.splitlines()[0]) if block.strip() else None
        if not head:
            continue
        words = [word for word in head.group(3).split() if not word.startswith("(")]
        level = words[0] if words and "[" not in words[0] else ""
        failed = tuple(word.split("[")[0] for word in words if "(F)" in word)
        counts = _MEMBERS.search(block)
        members = int(counts.group(1)) if counts else sum("[" in word for word in words)
        missing = counts.group(2).count("_") if counts else len(failed)
        yield Array(head.group(1), head.group(2) == "active", level, members, missing, failed, bool(_REPAIRING.search(block)))


def note_mounts(storage: Storage, looks: Looks) -> None:
    """Remember which file systems can be written, so that a later look can tell that one changed."""
    for mount in storage.mounts.mounts:
        if not mount.network and "rw" in mount.options:
            looks.note(f"mount/{mount.device}/writable", 1)


def judge_storage(storage: Storage, looks: Looks, limits: Thresholds, at: float) -> list[Finding]:
    """Return the findings of disks, arrays and file systems; what a node does not have gives none."""
    findings = [
        *_controllers(storage.controllers, at),
        *(finding for array in storage.arrays for finding in _array(array, at)),
        *_file_systems(storage, looks, limits, at),
    ]
    names = {finding.check for finding in findings}
    if "disk" not in names and (storage.controllers or storage.arrays or storage.mounts.mounts):
        summary = "no disk is gone, and no file system went read-only"
        findings.append(Finding("disk", Verdict.OK, summary, _counted(storage), at))
    return findings


def _counted(storage: Storage) -> str:
    mounts = storage.mounts.mounts
    tightest = min((one.free_percent for one in mounts if one.free_percent is not None), default=None)
    free = "" if tightest is None else f"; the fullest has {tightest:.0f} % free"
    return f"{len(storage.controllers)} NVMe controllers, {len(storage.arrays)} arrays, {len(mounts)} file systems{free}"


def _controllers(states: dict[str, Optional[str]], at: float) -> Iterable[Finding]:
    for name, state in states.items():
        if state == "live":
            continue
        evidence = f"{NVME}/{name}/state = {state}; in order: live"
        if not state:
            yield Finding("disk", Verdict.UNKNOWN, f"the state of {name} could not be read", evidence, at)
        elif state in DEAD_STATES:
            yield Finding("disk", Verdict.CRITICAL, f"the disk {name} is gone: {state}", evidence, at, Action.REBOOT_NODE)
        else:
            yield Finding("disk", Verdict.WARN, f"the disk {name} is {state}", evidence, at, Action.RUN_DIAGNOSTICS)


def _array(array: Array, at: float) -> Iterable[Finding]:
    evidence = f"/proc/mdstat: {array.level or 'no level'}, {array.missing} of {array.members} members missing"
    evidence += f", failed: {', '.join(array.failed)}" if array.failed else ""
    if not array.active:
        yield Finding("disk", Verdict.CRITICAL, f"the array {array.name} is not active", evidence, at, Action.REBOOT_NODE)
    elif array.repairing:
        yield Finding("disk", Verdict.WARN, f"the array {array.name} is being repaired", evidence, at, Action.RUN_DIAGNOSTICS)
    elif array.missing or array.failed:
        yield Finding("disk", Verdict.CRITICAL, f"the array {array.name} is degraded", evidence, at, Action.REBOOT_NODE)


def _file_systems(storage: Storage, looks: Looks, limits: Thresholds, at: float) -> Iterable[Finding]:
    if not storage.mounts.readable:
        yield Finding("mounts", Verdict.UNKNOWN, "the table of mounts could not be read", "/proc/mounts", at)
        return
    for mount in storage.mounts.mounts:
        yield from _answers(mount, at)
        if not mount.network:
            yield from _read_only(mount, storage.read_only_wanted, looks, at)
            yield from _full(mount, limits.min_disk_percent, at)
    asked = [mount for mount in storage.mounts.mounts if mount.state == "ok"]
    if asked and all(mount.state in ("ok", "not_asked") for mount in storage.mounts.mounts):
        skipped = [f"{one.place} ({one.error})" for one in storage.mounts.mounts if one.state == "not_asked"]
        evidence = f"not asked: {', '.join(skipped)}"[:300] if skipped else ""
        yield Finding("mounts", Verdict.OK, f"{len(asked)} file systems answer", evidence, at)


def _answers(mount: Mount, at: float) -> Iterable[Finding]:
    """A server that does not answer is seen by many nodes; the node is no worse than they are, but no job can start on it."""
    if mount.state not in ("hung", "error"):
        return
    evidence = f"{mount.type} {mount.device}: {mount.error}"
    if mount.network:
        yield Finding("mounts", Verdict.WARN, f"the file system at {mount.place} does not answer", evidence, at)
    else:
        summary = f"the disk file system at {mount.place} does not answer"
        yield Finding("disk", Verdict.CRITICAL, summary, evidence, at, Action.REBOOT_NODE)


def _read_only(mount: Mount, wanted: frozenset[str], looks: Looks, at: float) -> Iterable[Finding]:
    """Linux goes on read-only after an error; images that were so from the start, or that fstab wants so, are in order."""
    gave_up = [word for word in mount.options if word in ("emergency_ro", "shutdown")]
    if "rw" in mount.options and not gave_up:
        return
    was_writable = last_seen(looks, f"mount/{mount.device}/writable") == 1
    by_design = mount.device.startswith(_READ_ONLY_BY_DESIGN) or mount.place in wanted
    if by_design and not was_writable and not gave_up:
        return
    seen = "it was writable at the last look" if was_writable else "nothing says that it should be read-only"
    evidence = f"{mount.device} {mount.type} {','.join(mount.options)[:200]}; {seen}"
    summary = f"the file system at {mount.place} went read-only"
    yield Finding("disk", Verdict.CRITICAL, summary, evidence, at, Action.REBOOT_NODE)


def _full(mount: Mount, least: float, at: float) -> Iterable[Finding]:
    if mount.place.startswith(_SMALL_PLACES) or "ro" in mount.options:
        return
    shares: Sequence[tuple[str, Optional[float]]] = (("space", mount.free_percent), ("inodes", mount.free_inodes_percent))
    for what, percent in shares:
        if percent is not None and percent < least:
            summary = f"the file system at {mount.place} is full: {percent:.1f} % of its {what} is free"
            yield Finding("disk_full", Verdict.WARN, summary, f"{mount.device}; threshold {least:g} %", at)
