"""Tells one event that shows on many nodes from many faults: a job that crashed, a switch, a roll-out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from checks.model import Action, Confidence

BEFORE_S = 600.0
"""A fault so long before a job's end may be what ended it, seconds. Source: Meta's fleet study, arXiv:2410.21680."""

AFTER_S = 300.0
"""Lines so long after a job's end, or after the last line like them, still belong to it, seconds. Source: as `BEFORE_S`."""

SKEW_S = 10.0
"""Difference of the nodes' clocks that is allowed for, seconds. Hotspare default; NTP keeps them much closer."""

FRESH_BOOT_S = 600.0
"""A fault so soon after the boot came with it, seconds. Hotspare default: drivers and Fabric Manager are up by then."""

ROLL_OUT_GAP_S = 6 * 3600.0
"""A roll-out is over after so long without another node, seconds. Hotspare default: node groups roll one node at a time."""

SEVERAL = 3
"""Nodes from which one event is likelier than chance, where no common switch is known. Hotspare default."""

SHARE = 0.3
"""And at least this part of the nodes looked at. Hotspare default, as for storms among open incidents."""

APPLICATION_ONLY = frozenset({43, 45})
"""XIDs that ask for nothing by themselves but show that a job ended. Source: NVIDIA XID catalog."""

NOT_HARDWARE = frozenset({"none", "application", "configuration", "unknown_code"})


@dataclass(frozen=True)
class Sighting:
    """One fault on one node, told by `lines` lines.

    `at` is Unix time, `uptime_s` seconds since boot, None where the line does not say.
    """

    node: str
    kind: str
    code: Optional[int]
    fault_class: str
    action: Action
    at: Optional[float] = None
    uptime_s: Optional[float] = None
    signal: str = ""
    lines: int = 1

    @property
    def key(self) -> str:
        """The fault as settings name it, such as "xid:79"."""
        return f"{self.kind}:{self.signal or self.code}"

    @property
    def sympathetic(self) -> bool:
        """Whether this is what a job's end looks like on every node of the job."""
        return self.fault_class == "application" or (self.kind == "xid" and self.code in APPLICATION_ONLY)


@dataclass(frozen=True)
class Storm:
    """One event on many nodes. `kind`: application, fabric, rollout; `suspect`: the node that may have begun it, else empty."""

    kind: str
    fault_class: str
    action: Action
    confidence: Confidence
    because: tuple[str, ...]
    sightings: tuple[Sighting, ...] = field(repr=False)
    suspect: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that shows it, in the order in which they were seen."""
        return tuple(dict.fromkeys(one.node for one in self.sightings))

    @property
    def codes(self) -> tuple[str, ...]:
        """Every fault that belongs to it, such as "xid:45"."""
        return tuple(sorted({one.key for one in self.sightings}))

    @property
    def lines(self) -> int:
        """How many log lines tell of it."""
        return sum(one.lines for one in self.sightings)

    @property
    def span(self) -> tuple[Optional[float], Optional[float]]:
        """Unix times of its first and last sighting."""
        times = [one.at for one in self.sightings if one.at is not None]
        return (min(times), max(times)) if times else (None, None)


def find_storms(
    sightings: Iterable[Sighting],
    looked_at: int,
    domains: Optional[Mapping[str, str]] = None,
    job_ended_at: Optional[float] = None,
) -> list[Storm]:
    """Return the storms among the faults of `looked_at` nodes; what is in none of them is its node's own affair.

    `domains` names the NVLink domain of nodes where it is known. `job_ended_at` (Unix time, s) limits application incidents to
    the lines around the end of that job. Lines without a time of day are taken as of one time, for the logs were given together.
    """
    left = list(sightings)
    storms = _roll_outs(left, looked_at)
    left = _without(left, storms)
    storms += _fabric(left, looked_at, domains or {})
    left = _without(left, storms)
    return storms + _application(left, job_ended_at)


def _without(sightings: list[Sighting], storms: Iterable[Storm]) -> list[Sighting]:
    taken = {id(one) for storm in storms for one in storm.sightings}
    return [one for one in sightings if id(one) not in taken]


def _groups(sightings: Iterable[Sighting], gap_s: float) -> list[list[Sighting]]:
    """Part sightings by silence. Those without a time join the group if there is one only, else they are a group of their own."""
    given = list(sightings)
    timed = sorted((one for one in given if one.at is not None), key=lambda one: one.at or 0.0)
    untimed = [one for one in given if one.at is None]
    groups: list[list[Sighting]] = []
    for one in timed:
        if groups and (one.at or 0.0) - (groups[-1][-1].at or 0.0) <= gap_s:
            groups[-1].append(one)
        else:
            groups.append([one])
    if untimed and len(groups) == 1:
        groups[0] += untimed
    elif untimed:
        groups.append(untimed)
    return groups


def _nodes(sightings: Iterable[Sighting]) -> int:
    return len({one.node for one in sightings})


def _many(sightings: Sequence[Sighting], looked_at: int) -> bool:
    return _nodes(sightings) >= max(SEVERAL, SHARE * looked_at)


def _roll_outs(sightings: Iterable[Sighting], looked_at: int) -> list[Storm]:
    """The same fault soon after the boot on many nodes: what the boots have in common is to blame."""
    fresh: dict[str, list[Sighting]] = {}
    for one in sightings:
        with_boot = one.uptime_s is not None and one.uptime_s <= FRESH_BOOT_S
        if with_boot and one.fault_class not in ("none", "application"):
            fresh.setdefault(one.key, []).append(one)
    storms = []
    for key, alike in fresh.items():
        for group in _groups(alike, ROLL_OUT_GAP_S):
            if _many(group, looked_at):
                why = f"{key} within {FRESH_BOOT_S:.0f} s of the boot on {_nodes(group)} of {looked_at} nodes"
                blame = "what they booted (image, driver, firmware, configuration) is to blame, not each node: stop the roll-out"
                storms.append(_storm("rollout", "configuration", Action.CONTACT_SUPPORT, group, f"{why}: {blame}"))
    return storms


def _fabric(sightings: Sequence[Sighting], looked_at: int, domains: Mapping[str, str]) -> list[Storm]:
    """NVLink or switch faults of one time on several nodes of one domain; jobs that ended by it belong to it."""
    by_domain: dict[str, list[Sighting]] = {}
    for one in sightings:
        if one.fault_class in ("link", "fabric") and one.action is not Action.NONE:
            by_domain.setdefault(domains.get(one.node, ""), []).append(one)
    storms: list[Storm] = []
    for domain, alike in by_domain.items():
        for group in _groups(alike, AFTER_S):
            if not (_nodes(group) >= 2 if domain else _many(group, looked_at)):
                continue
            where = f"of NVLink domain {domain}" if domain else "(NVLink domain not known)"
            why = f"NVLink or switch faults on {_nodes(group)} nodes {where} at one time"
            blame = "one switch, cable or Fabric Manager is to blame, not each node: rebooting them one by one mends nothing"
            members = group + [one for one in _without(list(sightings), storms) if one.sympathetic and _near(one, group)]
            storms.append(_storm("fabric", "fabric", Action.CONTACT_SUPPORT, members, f"{why}: {blame}"))
    return storms


def _near(one: Sighting, group: Sequence[Sighting]) -> bool:
    times = [member.at for member in group if member.at is not None]
    return one.at is None or not times or min(times) - SKEW_S <= one.at <= max(times) + AFTER_S


def _application(sightings: Sequence[Sighting], job_ended_at: Optional[float]) -> list[Storm]:
    """What jobs that ended left on their nodes. At most the node that was first is suspected."""
    alike = [one for one in sightings if one.sympathetic and (job_ended_at is None or _around(one, job_ended_at))]
    storms = []
    for group in _groups(alike, AFTER_S):
        nodes = _nodes(group)
        suspect, why = _first(group, sightings)
        if nodes >= 2:
            because = f"job-level faults on {nodes} nodes at one time: one job ended, its nodes are not each at fault"
            storms.append(_storm("application", "application", Action.RESTART_JOB, group, because, why, suspect=suspect))
    return storms


def _around(one: Sighting, ended_at: float) -> bool:
    return one.at is None or ended_at - BEFORE_S <= one.at <= ended_at + AFTER_S


def _first(group: Sequence[Sighting], everything: Iterable[Sighting]) -> tuple[str, str]:
    """Return the node that may have ended the job, and why: one with a hardware fault just before, else the first to fault."""
    times = sorted(one.at for one in group if one.at is not None)
    hardware = [one for one in everything if one.fault_class not in NOT_HARDWARE and not one.sympathetic]
    if not times:
        nodes = sorted({one.node for one in hardware if one.at is None})
        if len(nodes) == 1:
            return nodes[0], f"{nodes[0]} alone has a hardware fault; the lines bear no time of day"
        return "", "no node is suspected: the lines bear no time of day"
    before = [one for one in hardware if one.at is not None and times[0] - BEFORE_S <= one.at <= times[0] + SKEW_S]
    if before:
        first = min(before, key=lambda one: one.at or 0.0)
        return first.node, f"{first.node} had {first.key} just before, which may have ended the job"
    leaders = sorted({one.node for one in group if one.at == times[0]})
    if len(leaders) == 1:
        return leaders[0], f"{leaders[0]} faulted first: suspect it alone, if the job faults there again"
    return "", f"no node is suspected: {len(leaders)} nodes faulted first at the same time"


def _storm(kind: str, fault_class: str, action: Action, group: Sequence[Sighting], *because: str, suspect: str = "") -> Storm:
    untimed = sum(one.at is None for one in group)
    notes = ("lines without a time of day are taken as of one time",) if untimed else ()
    confidence = Confidence.LOW if untimed else Confidence.MEDIUM
    return Storm(kind, fault_class, action, confidence, (*because, *notes), tuple(group), suspect)
