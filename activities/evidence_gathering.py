"""Gathers the parts of an evidence bundle, each within its own time: from a node that may die meanwhile, and from beside it.

What cannot be had is named with the reason; no part costs another. Nothing that opens NVML is started after XID 79, 119 or 120.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from temporalio.exceptions import CancelledError

from activities.clock import Clock, beat
from activities.errors import AccessRefused, CapabilityMissing, DeadlinePassed, HotspareError, NodeUnreachable
from activities.evidence_parts import DMESG, NO_COMMAND, NodePart, Part, PartState
from activities.node_access import CommandResult, NodeAccess
from checks.kernel_log import read_lines
from checks.model import NO_NVML_AFTER

logger = logging.getLogger(__name__)

SILENT_TRIES = 2
"""Parts in a row that find no node before it is left alone. Hotspare default: the first may have met a broken connection."""

ABSENT = ("no such command", "no such file")
"""How the reason begins where there is nothing to read: a part that need not be there is then skipped, not missing."""

LOOK_S = 0.2
"""Seconds between signs of life while something is waited for."""


@dataclass
class NodeReader:
    """Asks one machine for one part after the other, and remembers what that says about the next ones.

    `no_nvml` is why NVML is not touched, empty where it may be. `until` is on the clock.
    """

    access: NodeAccess
    sudo: bool
    clock: Clock
    until: float
    deadline_s: float
    part_limit: int
    no_nvml: str = ""
    source: str = "node"
    gone: str = ""
    _silent: int = field(default=0, init=False)

    def read(self, part: NodePart) -> Part:
        """Run the command of a part."""
        limit = part.limit or self.part_limit
        if part.skipped or (part.nvml and self.no_nvml):
            return Part(part.name, PartState.SKIPPED, self.source, why=part.skipped or self.no_nvml)
        taken = self.attempt(part.name, lambda limit_s: self._output(part, limit_s, limit), part.deadline_s, part.nvml)
        taken = replace(taken, what=_told(part.command))
        if part.optional and taken.why.startswith(ABSENT):
            return replace(taken, state=PartState.SKIPPED)
        if len(taken.text) >= limit and part.unpack is None:
            return replace(taken, state=PartState.TRUNCATED, why=taken.why or f"the last {limit} characters")
        return taken

    def attempt(self, name: str, read: Callable[[float], tuple[str, str]], deadline_s: float, nvml: bool = False) -> Part:
        """Make one part of what `read` returns (text, remark) within its time, or say why there is none."""
        if self.gone:
            return self._missing(name, self.gone)
        left_s = self.until - self.clock.now()
        if left_s <= 0:
            return self._missing(name, f"no time left of {self.deadline_s:.0f} s")
        beat(f"evidence: {name}")
        since = self.clock.now()
        try:
            text, remark = read(min(deadline_s, left_s))
        except (NodeUnreachable, AccessRefused) as error:
            self._silent += 1 if isinstance(error, NodeUnreachable) else SILENT_TRIES
            if self._silent >= SILENT_TRIES:
                self.gone = f"not tried, the {self.source} does not answer any more"
            return self._missing(name, str(error))
        except DeadlinePassed as error:
            if nvml:
                self.no_nvml = f"{name} did not end: what opens NVML is left alone"
            return self._missing(name, str(error))
        except CancelledError:
            raise
        except Exception as error:  # whatever is wrong with one part must not cost the others
            if not isinstance(error, HotspareError):
                logger.exception("evidence: %s could not be taken", name)
            return self._missing(name, str(error) or type(error).__name__)
        self._silent = 0
        return Part(name, PartState.TAKEN, self.source, why=remark, text=text, took_s=self.clock.now() - since, taken_at=_now())

    def _missing(self, name: str, why: str) -> Part:
        return Part(name, PartState.MISSING, self.source, why=why, taken_at=_now())

    def _output(self, part: NodePart, deadline_s: float, limit: int) -> tuple[str, str]:
        """Return what a command printed; one that printed nothing but an error has failed."""
        answer = self._answer(part, deadline_s, limit)
        said = answer.stderr.strip()
        if answer.exit_status and not answer.stdout.strip():
            if _absent(answer):
                raise CapabilityMissing(f"no such command on the {self.source}: {_command_of(part)}")
            raise CapabilityMissing(said[-300:] or f"{_command_of(part)} ended with status {answer.exit_status}")
        text = part.unpack(answer.stdout) if part.unpack is not None else answer.stdout
        if said:
            text += f"\n[stderr]\n{said}\n"
        return text, f"ended with status {answer.exit_status}" if answer.exit_status else ""

    def _answer(self, part: NodePart, deadline_s: float, limit: int) -> CommandResult:
        """Run a command as the settings say, then the other way: sudo may allow some commands only, or one may need it."""
        until = self.clock.now() + deadline_s
        plain, with_sudo = [*part.command], ["sudo", "-n", *part.command]
        ways = [with_sudo, plain] if self.sudo else [plain, with_sudo] if part.root else [plain]
        answer = self.access.run(ways[0], deadline_s, limit)
        other_way = bool(answer.exit_status) and not answer.stdout.strip() and not _absent(answer)
        if other_way and ways[1:] and (left_s := until - self.clock.now()) > 0:
            again = self.access.run(ways[1], left_s, limit)
            return again if again.stdout.strip() or not again.exit_status else answer
        return answer


def _absent(answer: CommandResult) -> bool:
    return answer.exit_status == NO_COMMAND or "command not found" in answer.stderr


def nvml_is_unsafe(logs: Sequence[Part]) -> str:
    """Why NVML must not be opened after what the kernel log says, or because it says nothing; empty where it may be."""
    readable = [part for part in logs if part.held and (part.name == DMESG or "kernel:" in part.text)]
    if not readable:
        return "not touched: the kernel log cannot be read, so whether NVML may be opened is not known"
    current = next((part for part in readable if part.name == DMESG), readable[-1])
    events = [event for event in read_lines(current.text.splitlines()) if event.kind == "xid"]
    codes = {event.code for event in events if event.code in NO_NVML_AFTER and event.code is not None}
    if not codes:
        return ""
    return f"NVML is not touched after {', '.join(f'XID {code}' for code in sorted(codes))} in the kernel log"


class Aside:
    """A look that goes on beside the others and may hang without holding them up: at AWS, at the job, at host memory."""

    def __init__(self, name: str, source: str, what: str, look: Callable[[], str]) -> None:
        self._part = Part(name, PartState.MISSING, source, what, "no answer")
        self._look = look
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True, name=f"evidence {name}").start()

    @property
    def name(self) -> str:
        """Name of the part."""
        return self._part.name

    def part(self, wait_s: float) -> Part:
        """The part as it is within `wait_s` seconds."""
        left = wait_s
        while not self._ended.wait(max(0.0, min(LOOK_S, left))) and left > 0:
            left -= LOOK_S
            beat()
        if self._ended.is_set():
            return self._part
        return replace(self._part, why=f"{self._part.what}: no answer within {wait_s:.0f} s", taken_at=_now())

    def _run(self) -> None:
        try:
            text = self._look()
            self._part = replace(self._part, state=PartState.TAKEN, why="", text=text, taken_at=_now())
        except CapabilityMissing as error:
            self._part = replace(self._part, state=PartState.SKIPPED, why=str(error), taken_at=_now())
        except Exception as error:  # it is told in the manifest, and must not end in nowhere with its thread
            self._part = replace(self._part, why=str(error) or type(error).__name__, taken_at=_now())
        finally:
            self._ended.set()


def _command_of(part: NodePart) -> str:
    return "nvidia-bug-report.sh" if part.unpack is not None else part.command[0]


def _told(command: object) -> str:
    """A command for the manifest; a script that travels in it is left out."""
    words = [word for word in command if "\n" not in word] if isinstance(command, (list, tuple)) else []
    return " ".join(words)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
