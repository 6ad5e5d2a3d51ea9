"""Whether the node's clock is synchronised: logs of nodes cannot be ordered otherwise, and certificates and tokens fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional

from checks.host import CommandOutput, Host
from checks.model import Finding, Verdict
from checks.probes.kernel_numbers import decimal
from checks.probes.rates import SETTLES_S

CHRONY = ("chronyc", "-c", "-n", "tracking")
TIMEDATECTL = ("timedatectl", "show", "-p", "NTPSynchronized")
_OFFSET = 4
_LEAP = 13
"""Fields of chronyc's tracking line, counted from 0. Source: chronyc manual, tracking."""


@dataclass(frozen=True)
class Clock:
    """`synchronised` and `offset_s` (of the system's clock from true time) are None where nothing tells them.

    `source` is the tool that told, "" where the node has none; `error` says why a tool that is there did not tell.
    """

    synchronised: Optional[bool] = None
    offset_s: Optional[float] = None
    source: str = ""
    error: str = ""


def start_clock(host: Host, deadline_s: float) -> Callable[[], Clock]:
    """Start asking the time service; what is returned waits for its answer."""
    tracking = host.start(CHRONY, deadline_s)
    return lambda: _read(host, tracking(), deadline_s)


def _read(host: Host, tracking: CommandOutput, deadline_s: float) -> Clock:
    """Ask chrony first, since it knows the offset; systemd only where there is no chrony that answers."""
    if tracking.ok:
        clock = parse_tracking(tracking.stdout)
        if clock is not None:
            return clock
    answer = host.run(TIMEDATECTL, deadline_s)
    name, _, value = answer.stdout.strip().partition("=")
    if answer.ok and name == "NTPSynchronized" and value in ("yes", "no"):
        return Clock(value == "yes", None, "timedatectl")
    if tracking.missing:
        # Without chrony and without a systemd that answers, as in a container, there is nobody to ask.
        return Clock(source="timedatectl", error="it timed out") if answer.timed_out else Clock()
    why = "it timed out" if tracking.timed_out else (tracking.stdout or tracking.stderr).strip()[:200] or "it printed nothing"
    return Clock(source="chronyc", error=why)


def parse_tracking(text: str) -> Optional[Clock]:
    """Parse the line that `chronyc -c tracking` prints, None where it is no such line."""
    fields = text.strip().split(",")
    if len(fields) <= _LEAP:
        return None
    offset = decimal(fields[_OFFSET])
    if offset is None:
        return None
    synchronised = fields[_LEAP] != "Not synchronised"
    return Clock(synchronised, offset if synchronised else None, "chronyc")


def judge_clock(clock: Clock, most_s: float, at: float, uptime_s: Optional[float]) -> list[Finding]:
    """A clock that is wrong is a matter of configuration: restart the time service. A node that has nobody to ask gives none.

    Time services find the time in the first minutes of a boot: until then a clock that is wrong is no fault.
    """
    if not clock.source:
        return []
    wrong = _complaint(clock, most_s)
    if wrong and uptime_s is not None and uptime_s < SETTLES_S:
        evidence = f"up for {uptime_s:.0f} s; a fault from {SETTLES_S:g} s"
        return [Finding("clock_settling", Verdict.OK, f"not yet after the boot: {wrong[0]}", evidence, at)]
    if wrong:
        return [Finding("clock", Verdict.WARN, f"{wrong[0]}; restart the time service", wrong[1], at)]
    if clock.synchronised is None:
        summary = f"whether the clock is synchronised could not be read: {clock.source} does not answer"
        return [Finding("clock", Verdict.UNKNOWN, summary, clock.error, at)]
    return [Finding("clock", Verdict.OK, "the clock is synchronised", _offset(clock), at)]


def _complaint(clock: Clock, most_s: float) -> Optional[tuple[str, str]]:
    """Say what is wrong, and the evidence; None where nothing is, or where it could not be read."""
    if clock.synchronised is None:
        return (f"the time service does not run: {clock.source} has nobody to ask", clock.error) if _no_daemon(clock) else None
    if not clock.synchronised:
        return "the clock is not synchronised", clock.source
    if clock.offset_s is not None and abs(clock.offset_s) > most_s:
        return f"the clock is {abs(clock.offset_s) * 1000:.0f} ms off", f"{_offset(clock)}; threshold {most_s * 1000:g} ms"
    return None


def _no_daemon(clock: Clock) -> bool:
    return "talk to daemon" in clock.error


def _offset(clock: Clock) -> str:
    return clock.source if clock.offset_s is None else f"{clock.source}: {clock.offset_s * 1000:.3f} ms off"
