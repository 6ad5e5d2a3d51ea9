"""The linter of jobs: why this one will not come back by itself after a fault, and which setting mends it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_TORCHRUN = re.compile(r"(^|/)torchrun$")
_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_FLAG = re.compile(r"^--(?P<name>[a-z][a-z0-9_-]*)(=(?P<value>.*))?$")
_DYNAMIC_RENDEZVOUS = frozenset({"c10d", "etcd", "etcd-v2"})
"""Backends over which workers meet again after one has left. Source: torch.distributed.run."""


@dataclass(frozen=True)
class Torchrun:
    """How torchrun was asked to restart its workers; without --max-restarts it does so 0 times (torch.distributed.run)."""

    max_restarts: int = 0
    rdzv_backend: str = "static"


@dataclass(frozen=True)
class Trap:
    """A setting that ends the job, or keeps it on a bad node, and what to write instead."""

    what: str
    mend: str


@dataclass(frozen=True)
class JobShape:
    """What a job's definition says about faults, whatever job system it is for.

    `controller` is who starts ranks again ("JobSet train", "Slurm"). `restarts_allowed` is how often it does over the job's life:
    0 is never, None without a bound. `restart_setting` is the setting that says so, with a value that would do. `command` is what
    ranks execute, where it can be read. `shows_progress`: a step counter is to be seen, by a command or by annotations.
    """

    controller: str
    restarts_allowed: int | None
    restart_setting: str
    command: Sequence[str] = ()
    shows_progress: bool = True
    progress_setting: str = "[job] progress"
    traps: Sequence[Trap] = field(default_factory=tuple)

    @property
    def torchrun(self) -> Torchrun | None:
        """How torchrun runs in the command, None where it does not."""
        return torchrun_in(self.command)


def warnings_of(shape: JobShape) -> list[str]:
    """Return why the job will not come back by itself, each with the setting that mends it; empty where it will."""
    found = []
    torchrun = shape.torchrun
    if shape.restarts_allowed == 0:
        found.append(
            f"this job will not come back by itself: {shape.controller} restarts it 0 times; set {shape.restart_setting}"
        )
    if torchrun is not None and torchrun.max_restarts == 0 and shape.restarts_allowed == 0:
        found.append("torchrun restarts its workers 0 times, so one failed process ends the job; set --max-restarts=3")
    if torchrun is not None and torchrun.max_restarts > 0 and torchrun.rdzv_backend not in _DYNAMIC_RENDEZVOUS:
        found.append(
            f"torchrun has --max-restarts={torchrun.max_restarts}, but workers of several nodes do not meet again over the "
            f"rendezvous {torchrun.rdzv_backend!r}; set --rdzv-backend=c10d with --rdzv-endpoint"
        )
    found += [f"{trap.what}; {trap.mend}" for trap in shape.traps]
    if not shape.shows_progress:
        found.append(
            f"no step counter is to be seen, so nobody can prove that the job trains again; set {shape.progress_setting}"
        )
    return found


def budget_warnings(shape: JobShape, left: int | None, warn_at: int) -> list[str]:
    """Return a warning where `warn_at` restarts or fewer are left of a budget that was above 0."""
    if left is None or left > warn_at or shape.restarts_allowed == 0:
        return []
    of = "" if shape.restarts_allowed is None else f" of {shape.restarts_allowed}"
    return [f"{shape.controller} has {left}{of} restarts left; for the next run set {shape.restart_setting}"]


def torchrun_in(command: Iterable[str]) -> Torchrun | None:
    """Find torchrun in a command, also one that a shell is told (`bash -c "torchrun ..."`), and read its restart settings."""
    words = [part for word in command for part in _split(word)]
    starts = [at for at, word in enumerate(words) if _TORCHRUN.search(word) or word in _MODULES]
    if not starts:
        return None
    flags = _flags(words[starts[0] + 1 :])
    restarts = flags.get("max-restarts", "0")
    return Torchrun(int(restarts) if restarts.isdigit() else 0, flags.get("rdzv-backend", "static"))


def _split(word: str) -> list[str]:
    if not re.search(r"\s", word):
        return [word]
    try:
        return shlex.split(word.replace("\\\n", " "), comments=True)
    except ValueError:
        return word.split()


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return --name=value and --name value, names with dashes; torchrun takes underscores too."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if match := _FLAG.match(word):
            value = match["value"]
            following = words[at + 1] if at + 1 < len(words) else ""
            found.setdefault(match["name"].replace("_", "-"), following if value is None else value)
    return found
