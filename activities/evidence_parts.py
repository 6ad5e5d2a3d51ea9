"""The parts of an evidence bundle: which command of the node each is, within which time, and what became of it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from activities.errors import BadInput
from activities.settings import EvidenceSettings
from checks.node_scripts import BUG_REPORT, TAILS

DMESG, JOURNAL, PROBE, SUPPORT_CASE = "dmesg.txt", "kernel-journal.txt", "probe.json", "support-case.txt"

DCGM_FIELDS = "150,155,202,230,310,311,312,313,393,394,395,409,419,429,439"
"""Temperature, power, PCIe replays, last XID, ECC counters, remapped rows, NVLink errors. Source: dcgm_fields.h, DCGM 3 and 4."""

DCGM_LOGS = ("/var/log/nvidia-dcgm/*", "/var/log/nv-hostengine.log")
SERVICE_LOGS = ("/sys/fs/pstore/*", "/var/log/fabricmanager.log", "/var/log/nvidia-installer.log")
"""What a crash or a service left behind on the node's disk. Source: kernel documentation (pstore), Fabric Manager User Guide."""

JOURNAL_LINES = 20_000
"""Lines of the journal that are read, the newest. Hotspare default: about 3 MB, which come over SSH within seconds."""

NEWEST_FILES = 20
"""Files taken of those that match. Hotspare default: the ranks of one node, twice over."""

NO_COMMAND = 127
"""Exit status of a shell and of `timeout` for a command that is not there."""

PACKED_LIMIT_BYTES = 8_000_000
"""Bytes taken of a packed bug report, from its beginning. Hotspare default: one is about 5 MB."""


class PartState(StrEnum):
    """TAKEN whole; TRUNCATED to a limit; MISSING, though it ought to be there; SKIPPED on purpose or where it does not apply."""

    TAKEN = "taken"
    TRUNCATED = "truncated"
    MISSING = "missing"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Part:
    """One part and what became of it. `source` is node, head, aws or hotspare; `what` the command or the look behind it.

    `why` says more wherever the part is not simply taken. `secrets` and `serials` were taken out of the text.
    """

    name: str
    state: PartState
    source: str = "node"
    what: str = ""
    why: str = ""
    text: str = ""
    took_s: float = 0.0
    taken_at: str = ""
    secrets: int = 0
    serials: int = 0

    @property
    def held(self) -> bool:
        """Whether there is something to read."""
        return self.state in (PartState.TAKEN, PartState.TRUNCATED)

    @property
    def line(self) -> str:
        """The part in one line, for people."""
        return f"{self.name}: {self.why}" if self.why else f"{self.name}: {self.state.value}"

    def shortened(self, limit: int, why: str) -> Part:
        """Return the part with the last `limit` characters of its text."""
        if len(self.text) <= limit:
            return self
        return replace(self, text=self.text[len(self.text) - limit :], state=PartState.TRUNCATED, why=why)

    def to_json(self) -> dict[str, Any]:
        """All of it, for the spool."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Part:
        """Read what `to_json` gave. Raises KeyError, TypeError, ValueError for anything else."""
        return cls(**{**data, "state": PartState(data["state"])})


@dataclass(frozen=True)
class NodePart:
    """A part that a command on the node (or the head node) prints.

    `nvml` ones are left out after XID 79, 119 or 120. The command of an `optional` one need not be there. A `root` one that fails
    is tried with sudo too. `unpack` turns what it prints into text.
    """

    name: str
    command: Sequence[str]
    deadline_s: float
    nvml: bool = False
    optional: bool = False
    root: bool = False
    skipped: str = ""
    limit: int = 0
    unpack: Callable[[str], str] | None = None


def node_parts(settings: EvidenceSettings, python: str, since: datetime, words: Mapping[str, str]) -> list[NodePart]:
    """Every part that is asked of the node, in the order in which a dying node is asked. `probe.json` comes after the log.

    `since` is from when on the kernel's journal is read; `words` (node, job) are filled into the paths of logs.
    """
    limit_s, tails = settings.part_deadline_s, (python, "-I", "-c", TAILS, str(settings.part_limit // 2), str(NEWEST_FILES))
    dcgm = "" if settings.dcgm else "evidence.dcgm is off"
    journal = ("journalctl", "_TRANSPORT=kernel", "--since", f"@{since.timestamp():.0f}", "-o", "short-iso-precise", "--utc")
    fabric = ("journalctl", "-u", "nvidia-fabricmanager", "-n", "500", "--no-pager")
    report = ("sh", "-c", BUG_REPORT, "sh", str(PACKED_LIMIT_BYTES))
    return [
        NodePart(DMESG, ("dmesg",), limit_s, root=True),
        NodePart(JOURNAL, (*journal, "-n", str(JOURNAL_LINES), "--no-pager"), limit_s, optional=True, root=True),
        log_part("nccl-logs.txt", "evidence.nccl_logs", settings.nccl_logs, tails, words, limit_s),
        NodePart("service-logs.txt", (*tails, *SERVICE_LOGS), limit_s, optional=True),
        NodePart("fabric-manager.txt", fabric, limit_s, optional=True),
        NodePart("uptime.txt", ("uptime",), limit_s),
        NodePart("uname.txt", ("uname", "-a"), limit_s),
        NodePart("pci.txt", ("lspci", "-nn", "-d", "10de:"), limit_s),
        NodePart("processes.txt", ("ps", "-eo", "pid,stat,lstart,comm", "--sort", "pid"), limit_s),
        NodePart("topology.txt", ("nvidia-smi", "topo", "-m"), limit_s, nvml=True),
        NodePart("nvidia-smi.txt", ("nvidia-smi", "-q"), limit_s, nvml=True),
        NodePart("dcgm-logs.txt", (*tails, *DCGM_LOGS), limit_s, optional=True, skipped=dcgm),
        NodePart("dcgm-health.json", ("dcgmi", "health", "-c", "-j"), limit_s, nvml=True, optional=True, skipped=dcgm),
        NodePart("dcgm-fields.txt", ("dcgmi", "dmon", "-e", DCGM_FIELDS, "-c", "1"), limit_s, True, True, skipped=dcgm),
        NodePart(
            "nvidia-bug-report.log",
            report,
            settings.bug_report_deadline_s,
            nvml=True,
            optional=True,
            root=True,
            skipped="" if settings.bug_report else "evidence.bug_report is off",
            limit=2 * PACKED_LIMIT_BYTES,
            unpack=unpacked_report,
        ),
    ]


def head_parts(settings: EvidenceSettings, python: str, words: Mapping[str, str]) -> list[NodePart]:
    """Every part that is asked of the job's head node."""
    tails = (python, "-I", "-c", TAILS, str(settings.part_limit // 2), str(NEWEST_FILES))
    place, paths = "evidence.nccl_logs_on_head", settings.nccl_logs_on_head
    return [log_part("nccl-logs-on-head.txt", place, paths, tails, words, settings.part_deadline_s)]


def log_part(
    name: str, setting: str, paths: Sequence[str], tails: Sequence[str], words: Mapping[str, str], deadline_s: float
) -> NodePart:
    """The ends of the log files that a setting names. Paths with a word that is not known are left out."""
    filled = [path for path in (_filled(path, words) for path in paths) if path]
    why = "" if filled else f"{setting} names no file" if not paths else f"{setting} needs {{job}}, and no job is known"
    return NodePart(name, (*tails, *filled), deadline_s, optional=True, skipped=why)


def _filled(path: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        if f"{{{word}}}" in path and not value:
            return ""
        path = path.replace(f"{{{word}}}", glob_safe(value))
    return path


def glob_safe(word: str) -> str:
    """A word that stands for itself in a pattern of file names, and stays within its folder."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in word).replace("/", "_")


def unpacked_report(text: str, limit: int = 30_000_000) -> str:
    """Read a packed report as far as it goes: it may have been cut, and must not grow without bounds. Raises BadInput."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(base64.b64decode(text, validate=False), limit)
    except (ValueError, zlib.error) as error:
        raise BadInput(f"the bug report cannot be unpacked: {error}") from error
    return content.decode("utf-8", "replace") + ("" if unpacker.eof else "\n[the report goes on; it was cut here]\n")
