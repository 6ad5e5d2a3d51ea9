"""What is remembered of single GPUs: where each was seen, which incidents accused it, and who banned it and why.

A host is known by the serials of its GPUs: after a stop and start the same instance id may be on another host, and a new
instance id on one that was here before.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from activities.message import Message

KEPT_STRIKES = 50
"""Strikes remembered one by one per host or GPU, newest last. Hotspare default: after so many half-lives none weighs anything."""

KEPT_HOMES = 20
"""Instances that a GPU was seen in, newest last. Hotspare default: a board moves a few times in its life."""

KEPT_MARKS = 20
"""Words about a GPU's ban that are kept, newest last. Hotspare default: enough for an audit, bounded."""


class Strike(Message):
    """One incident in which a host had to be disrupted or could not be mended. `gpu_serial` is the GPU that was accused."""

    at: datetime
    fault_class: str = ""
    incident: str = ""
    gpu_serial: str = ""


class HostGpu(Message):
    """A GPU of a host, as last seen there."""

    serial: str
    uuid: str = ""
    pci: str = ""


class Home(Message):
    """An instance that a GPU was seen in, from its first sight to its last; `last_seen` may be a day old."""

    instance_id: str
    name: str = ""
    zone: str = ""
    reservation: str = ""
    first_seen: datetime
    last_seen: datetime


class Mark(Message):
    """Somebody's word that a GPU is known bad, or is not any more."""

    at: datetime
    bad: bool
    by: str
    why: str


class GpuRecord(Message):
    """All that is remembered of one GPU. `version` is for conditional writes: 0 means not stored yet."""

    serial: str
    version: int = 0
    uuid: str = ""
    homes: list[Home] = []
    strikes: list[Strike] = []
    marks: list[Mark] = []

    @property
    def known_bad(self) -> Mark | None:
        """The mark that bans the GPU, None where the last word is that it is not banned, or there is none."""
        return self.marks[-1] if self.marks and self.marks[-1].bad else None

    @property
    def home(self) -> Home | None:
        """Where the GPU was seen last."""
        return max(self.homes, key=lambda home: home.last_seen, default=None)


def with_mark(record: GpuRecord, mark: Mark) -> GpuRecord:
    """Return the record with a word added, or as it was where that word has been said already."""
    if any((one.at, one.bad, one.by) == (mark.at, mark.bad, mark.by) for one in record.marks):
        return record
    return record.model_copy(update={"marks": [*record.marks, mark][-KEPT_MARKS:]})


def with_strike(strikes: list[Strike], new: Strike) -> list[Strike]:
    """Return the strikes with a new one. An incident strikes once."""
    if any(one.incident == new.incident and new.incident for one in strikes):
        return strikes
    return [*strikes, new][-KEPT_STRIKES:]


def banned(records: Iterable[GpuRecord]) -> list[str]:
    """Say of each known-bad GPU since when, why, and by whose word."""
    marks = [(record.serial, mark) for record in records if (mark := record.known_bad) is not None]
    return [f"GPU {serial} is known bad since {mark.at:%Y-%m-%d}: {mark.why} ({mark.by})" for serial, mark in sorted(marks)]


def same_host(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return the serials that were there before and are there now. Any is enough: boards do not wander by themselves."""
    return sorted(set(before) & set(after))
