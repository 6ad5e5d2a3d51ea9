"""What Hotspare would have done about the faults in the logs of the days before, had it been there in mode observe. Pure.

Each episode of a node is judged by itself: by the catalog, together with what other nodes show at the time, then by the policy.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from activities.host_memory import HostRecord, RungAttempt
from activities.inventory import Node
from activities.names import incident_id
from activities.node import Examination, Gpu, Opinion
from activities.owners import owner_of
from activities.probing import PastLog
from checks.diagnosis import FleetLogs, Hardware, Recommendation
from checks.model import Action
from workflows.decisions.facts import Facts
from workflows.decisions.ladder import DISRUPTIVE, rungs_for
from workflows.decisions.policy import next_step
from workflows.decisions.settings import Mode, PolicySettings

EPISODE_S = 3600.0
"""Faults of a node that are nearer to each other are one episode, unless it restarted. Hotspare default: a repair takes less."""

THEN = "that ran there"
"""Stands for the name of a job of which only the log is left: "would restart the job that ran there"."""


@dataclass(frozen=True)
class WouldHave:
    """One episode: when, on which node, what was wrong, and what would have been done, with the reasons.

    `storm`: of which event on many nodes it is a part, empty for none.
    """

    at: datetime
    node: str
    fault_class: str
    action: Action
    code: int | None
    lines: int
    what: str
    because: tuple[str, ...]
    storm: str = ""


@dataclass
class _Episode:
    node: Node
    lines: list[tuple[float, str]]

    @property
    def name(self) -> str:
        """The node of this episode, as a host name that no other episode has."""
        return f"{self.node.instance_id}--{int(self.lines[0][0])}"


def would_have(
    cluster: str, nodes: Sequence[Node], logs: Mapping[str, PastLog], policy: PolicySettings, hardware: Hardware, now: datetime
) -> list[WouldHave]:
    """Return every episode about which something would have been done, the oldest first. `logs` are by instance id."""
    episodes = {one.name: one for node in nodes if node.instance_id in logs for one in episodes_of(node, logs[node.instance_id])}
    fleet = FleetLogs(hardware, now.timestamp())
    for episode in episodes.values():
        for _ in fleet.read(io.BytesIO(_as_log(episode)), episode.name):
            pass
    recommended, storms = fleet.conclude(looked_at=len(nodes))
    stormy = {name: storm.because[0] for storm in storms for name in storm.nodes}
    found: list[WouldHave] = []
    attempts: dict[str, list[RungAttempt]] = {}
    for one in sorted(recommended, key=lambda one: episodes[one.node].lines[0][0] if one.node in episodes else 0.0):
        if one.node in episodes and one.diagnosis.action is not Action.NONE:
            episode = episodes[one.node]
            before = attempts.setdefault(episode.node.instance_id, [])
            found.append(_judged(cluster, episode, one, stormy.get(one.node, ""), policy, before))
    return found


def episodes_of(node: Node, log: PastLog) -> Iterator[_Episode]:
    """Part a node's fault lines by silence, and by its restarts. Lines without a time cannot be placed."""
    current: list[tuple[float, str]] = []
    for at, line in sorted((at, line) for at, line in log.lines if at is not None):
        if current and (at - current[-1][0] > EPISODE_S or any(current[-1][0] < boot <= at for boot in log.boots)):
            yield _Episode(node, current)
            current = []
        current.append((at, line))
    if current:
        yield _Episode(node, current)


def _as_log(episode: _Episode) -> bytes:
    """The episode as a log in the form of journald, under a host name of its own."""
    stamped = (
        f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.%f}+00:00 {episode.name} kernel: {line}"
        for at, line in episode.lines
    )
    return ("\n".join(stamped) + "\n").encode()


def _judged(
    cluster: str, episode: _Episode, found: Recommendation, storm: str, policy: PolicySettings, before: list[RungAttempt]
) -> WouldHave:
    """Ask the policy what it would do, everything being observed, after what it would have done to the node before."""
    watching = observing(policy)
    facts = _facts(cluster, episode, found, storm, before)
    step = next_step(facts, watching)
    first, *reasons = step.because
    rung = next((one for one in rungs_for(facts, watching).observed if one in DISRUPTIVE), None)
    if rung is not None and not storm:
        before.append(RungAttempt(rung=rung, at=facts.now, fault_class=found.diagnosis.fault_class, code=found.diagnosis.code))
    return WouldHave(
        at=datetime.fromtimestamp(episode.lines[0][0], UTC),
        node=episode.node.name,
        fault_class=found.diagnosis.fault_class,
        action=found.diagnosis.action,
        code=found.diagnosis.code,
        lines=found.lines,
        what=first.removeprefix("observe mode: "),
        because=tuple(reasons or found.diagnosis.because),
        storm=storm,
    )


def observing(policy: PolicySettings) -> PolicySettings:
    """The same policy with everything observed."""
    cleared = {"mode": Mode.OBSERVE, "mode_by_rung": {}, "mode_by_class": {}}
    pools = {name: {key: value for key, value in pool.items() if key not in cleared} for name, pool in policy.pools.items()}
    return policy.model_copy(update={**cleared, "pools": pools})


def _facts(cluster: str, episode: _Episode, found: Recommendation, storm: str, before: Sequence[RungAttempt]) -> Facts:
    said, node = found.diagnosis, episode.node.model_copy(update={"quarantine": "", "state": "running", "fate": ""})
    gpu = Gpu(pci=said.gpu.pci) if said.gpu else Gpu()
    opinion = Opinion(
        fault_class=said.fault_class,
        action=said.action,
        confidence=said.confidence,
        because=list(said.because),
        code=said.code,
        gpu=gpu,
        at_boundary=said.at_boundary,
    )
    ended = datetime.fromtimestamp(episode.lines[-1][0], UTC)
    return Facts(
        cluster=cluster,
        incident=incident_id(cluster, node.instance_id),
        run="past",
        node=node,
        now=ended,
        record=HostRecord(instance_id=node.instance_id, attempts=list(before)),
        opinion=opinion,
        examination=Examination(reachable=True, verdict=found.verdict, opinion=opinion, taken_at=ended),
        alone=not storm,
        storm=storm,
        job=THEN if said.action is Action.RESTART_JOB else "",
        owned_by=owner_of(node.owner, ()),
    )
