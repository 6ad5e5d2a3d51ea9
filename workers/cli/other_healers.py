"""Who else repairs these nodes, and what each does about a fault, and when, beside what Hotspare does. For `hotspare doctor`.

The facts are in other_healers.csv, each with its public source; per code EKS says "replace or reboot, by reason" now, and
which in its guide of 2024. Minutes are those from the fault to the act; empty: not published.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.table import Table
from rich.text import Text

from activities.all_healers import UNKNOWN
from activities.errors import HotspareError
from activities.healers import Healer
from activities.inventory import Node
from activities.names import ROLE_HEAD
from checks.catalog import lookup_xid
from checks.model import Action, Verdict
from workers.cli.health import Line
from workers.settings import Settings
from workers.wiring import Wiring
from workflows.decisions.ladder import DISRUPTIVE
from workflows.decisions.settings import PolicySettings

FACTS = Path(__file__).with_name("other_healers.csv")

CLUSTERMGTD = "clustermgtd of ParallelCluster"
"""Minutes until it acts: SlurmdTimeout, 180 s in ParallelCluster's slurm.conf, and its look every 60 s."""

SWITCHES = {
    "Auto Scaling group": "told by Standby",
    "EKS node auto repair": "told for its whole node group, if healers.pause_node_group_repair",
    "EKS Auto Mode": "cannot be told: Hotspare observes and resumes jobs",
    "Karpenter": "told by karpenter.sh/do-not-repair, from Karpenter 1.15",
    "NVSentinel": "told by the label ManagedByNVSentinel=false",
    CLUSTERMGTD: "kept away by Slurm's state FAIL instead of a drain; a node that is silent beyond SlurmdTimeout is lost",
    "SageMaker HyperPod": "cannot be told: Hotspare observes and resumes jobs",
}
"""How each stands back (docs/ownership.md)."""


@dataclass(frozen=True)
class Compared:
    """One fault as another healer treats it and as Hotspare does. `minutes`: theirs; `ours_minutes`: the most a rung takes.

    `in_the_middle`: they would act while our rung is under way, unless they stand back.
    """

    healer: str
    signal: str
    action: str
    minutes: int | None
    ours: tuple[str, ...]
    ours_minutes: int
    in_the_middle: bool
    source: str


def compare(policy: PolicySettings, healers: Iterable[str]) -> list[Compared]:
    """Return every fact about these healers beside the ladder of the policy."""
    wanted = set(healers)
    return [_beside(row, policy) for row in _facts() if row["healer"] in wanted]


def check_healers(settings: Settings, wiring: Wiring, nodes: Sequence[Node]) -> tuple[list[Line], list[str]]:
    """Look for other healers of these nodes; returns what to say, and the kinds that are there."""
    try:
        found = [one for node in nodes if node.role != ROLE_HEAD for one in wiring.healers.found(node)]
    except HotspareError as error:
        do = "mend access to AWS and Kubernetes; until then no node is restarted"
        return [Line("other healers", Verdict.UNKNOWN, f"who else repairs the nodes is not known: {error}", do)], []
    if settings.slurm.flavour == "parallelcluster":
        found += [Healer(kind=CLUSTERMGTD, name="") for node in nodes if node.role != ROLE_HEAD]
    counted = Counter(one.words for one in found)
    lines = [_line(next(one for one in found if one.words == words), count) for words, count in counted.most_common()]
    if settings.kubernetes.source == "none":
        more = "without [kubernetes] only Auto Scaling groups can be looked for"
        lines.append(Line("other healers", Verdict.OK, more if found else f"none found; {more}"))
    elif not found:
        lines.append(Line("other healers", Verdict.OK, "nobody else repairs these nodes"))
    return lines, [kind for kind in SWITCHES if kind in {one.kind for one in found}]


def table_of(healer: str, compared: Sequence[Compared]) -> Table:
    """One healer's table: faults that are treated alike are one row."""
    title = f"\n{healer}: {SWITCHES[healer]}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1))
    table.add_column("XID", overflow="fold", max_width=24)
    table.add_column("they", overflow="fold", max_width=22)
    table.add_column("after", no_wrap=True)
    table.add_column("Hotspare", overflow="fold", max_width=34)
    table.add_column("a rung within", no_wrap=True)
    rows: dict[tuple[str, str, str, str, bool], list[str]] = {}
    for one in compared:
        if one.healer == healer:
            ours = ", ".join(one.ours)
            within = f"{one.ours_minutes} min" if one.ours_minutes else ""
            key = (one.action, _after(one.minutes), ours, within, one.in_the_middle)
            rows.setdefault(key, []).append(one.signal.removeprefix("xid:").removeprefix("class:").replace("_", " "))
    for (action, after, ours, within, clash), signals in rows.items():
        table.add_row(", ".join(signals), action, Text(after, style="yellow" if clash else ""), ours, within)
    return table


@cache
def _facts() -> tuple[dict[str, str], ...]:
    with FACTS.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def _beside(row: dict[str, str], policy: PolicySettings) -> Compared:
    kind, _, value = row["signal"].partition(":")
    entry = lookup_xid(int(value)) if kind == "xid" else None
    by_class = policy.ladders.get(entry.fault_class if entry else value, [])
    ladder = policy.ladders_by_code.get(row["signal"], by_class)
    minutes = int(row["minutes"]) if row["minutes"] else None
    rung = next((one for one in ladder if one in DISRUPTIVE and _works(one, policy)), None)
    ours_minutes = round(_longest_s(rung, policy) / 60) if rung else 0
    return Compared(
        healer=row["healer"],
        signal=row["signal"],
        action=row["action"],
        minutes=minutes,
        ours=_in_words([one for one in ladder if _works(one, policy)], entry.fault_class if entry else value),
        ours_minutes=ours_minutes,
        in_the_middle=minutes is not None and minutes < ours_minutes,
        source=row["source"],
    )


def _in_words(rungs: Sequence[Action], fault_class: str) -> tuple[str, ...]:
    if not rungs:
        return ("nothing",) if fault_class == "none" else ("a person is asked",)
    return tuple(one.value.lower().replace("_", " ").removesuffix(" node") for one in rungs)


def _works(rung: Action, policy: PolicySettings) -> bool:
    return rung is not Action.RESET_GPU or bool(policy.reset_capable_types)


def _longest_s(rung: Action, policy: PolicySettings) -> float:
    boot = 0.0 if rung is Action.RESET_GPU else policy.rung_deadlines_s.get(rung, policy.boot_deadline_s)
    return boot + policy.settling_s + policy.retest_deadline_s


def _after(minutes: int | None) -> str:
    if minutes is None:
        return ""
    return f"{minutes} min" if minutes else "at once"


def _line(healer: Healer, nodes: int) -> Line:
    count = f"{nodes} node{'' if nodes == 1 else 's'}"
    if healer.kind == UNKNOWN.kind:
        do = "until the Kubernetes API answers, no node is restarted"
        return Line("other healers", Verdict.UNKNOWN, f"{healer.doubt}: {count}", do)
    if healer.doubt:
        do = f"permit it (docs/ownership.md); until then {healer.kind} is told, as if it were there, before a restart"
        return Line("other healers", Verdict.UNKNOWN, healer.doubt, do)
    if healer.owns:
        return Line("other healers", Verdict.WARN, f"{healer.words}: {count}", f"{healer.owns}: observe, and resume jobs")
    return Line("other healers", Verdict.OK, f"{healer.words}: {count}; {SWITCHES.get(healer.kind, 'stands back')}")
