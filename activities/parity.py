"""Whether nodes are set up alike: what was seen of each is kept, a newcomer is compared with a job's nodes, a sweep with all.

A difference is a matter for people: the node does not join, and is never restarted or replaced for it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.clock import beat
from activities.errors import AccessRefused, CommandFailed, DeadlinePassed, HotspareError, NodeUnreachable, as_application_error
from activities.host_memory import HostMemory, SeenConfiguration
from activities.inventory import Inventory, Node
from activities.jobs.protocol import JobAdapter
from activities.message import Message
from activities.names import ROLE_WORKER
from activities.node_access import AccessTo
from activities.node_messages import Seen
from activities.probing import Probe, ProbeCrashed, ProbeWish
from activities.settings import ParitySettings
from checks.diagnosis.candidates import FINDING_CLASSES
from checks.parity import Configuration, Parity, compare, configuration_from_json, fits
from checks.parity.compare import ENOUGH
from checks.parity.configuration import known, not_applicable

LOOKS = 6
"""Peers of a newcomer that are probed at most, where too few are known. Hotspare default: some seconds; two may be silent."""

TOLD = 50
"""Nodes that one report names at most. Hotspare default: more than a person reads; all are counted."""

PARITY = "parity"
"""Name of the check of a node's own versions."""

logger = logging.getLogger(__name__)


class CompareFleet(Message):
    """Compare these nodes of a cluster, as they were last seen. `found` is what a look found wrong with some, by instance id."""

    cluster: str
    instance_ids: list[str]
    found: dict[str, list[Seen]] = {}


class NodeDifferences(Message):
    """A node that is set up otherwise than it should be, and in what."""

    instance_id: str
    node_name: str
    differences: list[str]


class ParityReport(Message):
    """The nodes that differ, at most `TOLD`, out of `count`; and what nobody is accused of, because there is no majority.

    `token` stands for these differences on this day; `told` says that a person knows them already.
    """

    differing: list[NodeDifferences] = []
    count: int = 0
    undecided: list[str] = []
    token: str = ""
    told: bool = False


class DifferencesTold(Message):
    """A person was told."""

    token: str


@dataclass(frozen=True)
class JoinVerdict:
    """Whether a node may join: no `differences`. `said` tells with whom it was compared, and what could not be."""

    differences: tuple[str, ...]
    said: str


class FleetParity:
    """What is known of the nodes' configurations. Lives beside the looks that give them."""

    def __init__(
        self,
        memory: HostMemory,
        inventory: Inventory,
        jobs: JobAdapter,
        access_to: AccessTo,
        probe: Probe,
        settings: ParitySettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._memory, self._inventory, self._jobs = memory, inventory, jobs
        self._access_to, self._probe = access_to, probe
        self._settings, self._now = settings, now

    def note(self, node: Node, seen: Configuration | None) -> Configuration | None:
        """Remember how a node is set up, together with its image. A store that fails stops no look at a node."""
        if seen is None:
            return None
        image = known(node.image) if node.image else not_applicable("the inventory does not tell it")
        whole = seen.having({"image": image})
        try:
            self._memory.save_configuration(
                SeenConfiguration(instance_id=node.instance_id, taken_at=self._now(), document=whole.to_json())
            )
        except HotspareError as error:
            logger.warning("how %s is set up was not remembered: %s", node.name, error)
        return whole

    def join(self, node: Node, job: str, in_place_of: str) -> JoinVerdict:
        """Compare a node that was just looked at with the other nodes of the job that it is to join."""
        peers = self._peers(node, job, in_place_of)
        seen = _recall(self._memory, self._settings, [node, *peers], self._now())
        own = seen.pop(node.instance_id, None)
        if own is None:
            return JoinVerdict((), "configuration: not compared, its own is not known")
        for peer in [peer for peer in peers if peer.instance_id not in seen][:LOOKS]:
            if len(seen) >= ENOUGH:
                break
            beat(f"looks how {peer.name} is set up")
            if (found := self.note(peer, self._look(peer))) is not None:
                seen[peer.instance_id] = found
        parity = fits(own, list(seen.values()), self._settings.golden, self._settings.ignored)
        return JoinVerdict(tuple(difference.words for difference in parity.differences), _said(parity, job))

    def compare(self, nodes: Sequence[Node]) -> dict[str, Parity]:
        """Compare nodes by their pool, as they were last seen; by name. One that was not seen lately is left out."""
        return compare_seen(self._memory, self._settings, nodes, self._now())

    def _peers(self, node: Node, job: str, in_place_of: str) -> list[Node]:
        """The job's other nodes of the same type; where the job cannot tell, the workers of the same pool."""
        members: list[str] | None = None
        if job:
            try:
                members = self._jobs.status(job).nodes
            except HotspareError as error:
                logger.warning("which nodes %s has is not known: %s", job, error)
        return [
            other
            for other in self._inventory.list("")
            if other.instance_id not in (node.instance_id, in_place_of)
            and other.instance_type == node.instance_type
            and other.state == "running"
            and not other.quarantine
            and (other.name in members if members else other.role == ROLE_WORKER and other.pool_name() == node.pool_name())
        ]

    def _look(self, node: Node) -> Configuration | None:
        try:
            return self._probe.run(self._access_to(node), node, ProbeWish()).configuration
        except (NodeUnreachable, DeadlinePassed, AccessRefused, CommandFailed, ProbeCrashed) as error:
            logger.warning("how %s is set up could not be read: %s", node.name, error)
            return None


class ParityActivities:
    """The comparison of a whole fleet, after a sweep has looked at it."""

    def __init__(self, parity: FleetParity, inventory: Inventory, memory: HostMemory) -> None:
        self._parity, self._inventory, self._memory = parity, inventory, memory

    @activity.defn
    def compare_fleet(self, request: CompareFleet) -> ParityReport:
        """Say which nodes differ from their pool or from what is pinned, and whether a person has been told today."""
        with as_application_error():
            wanted = set(request.instance_ids)
            nodes = [node for node in self._inventory.list(request.cluster) if node.instance_id in wanted]
            parities = self._parity.compare(nodes)
            by_themselves = {node.name: _of_configuration(request.found.get(node.instance_id, [])) for node in nodes}
            report = report_of(nodes, parities, by_themselves)
            token = _token(request.cluster, parities, by_themselves)
            return report.model_copy(update={"token": token, "told": self._memory.intent_age_s(token) is not None})

    @activity.defn
    def differences_told(self, request: DifferencesTold) -> None:
        """Remember that a person was told, so that the next sweep is silent."""
        with as_application_error():
            self._memory.note_intent(request.token, "a person was told which nodes differ")


def compare_seen(memory: HostMemory, settings: ParitySettings, nodes: Sequence[Node], now: datetime) -> dict[str, Parity]:
    """Compare nodes by their pool, as they were last seen; by name. One that was not seen lately is left out."""
    seen = _recall(memory, settings, nodes, now)
    looked_at = [node for node in nodes if node.instance_id in seen]
    return compare(
        {node.name: seen[node.instance_id] for node in looked_at},
        settings.golden,
        settings.ignored,
        {node.name: node.pool for node in looked_at},
    )


def _recall(memory: HostMemory, settings: ParitySettings, nodes: Sequence[Node], now: datetime) -> dict[str, Configuration]:
    """What was seen lately, by instance id. What an earlier release wrote otherwise counts as not seen."""
    oldest = now - timedelta(seconds=settings.max_age_s)
    found = {}
    for seen in memory.configurations([node.instance_id for node in nodes]):
        if seen.taken_at >= oldest:
            try:
                found[seen.instance_id] = configuration_from_json(seen.document)
            except (KeyError, TypeError, AttributeError) as error:
                logger.warning("what is remembered of %s is not readable: %r", seen.instance_id, error)
    return found


def report_of(
    nodes: Sequence[Node], parities: Mapping[str, Parity], by_themselves: Mapping[str, Sequence[Seen]] | None = None
) -> ParityReport:
    """Put a comparison into the words of a report, together with what is wrong with the configuration of single nodes."""
    differing = []
    for node in nodes:
        words = [one.words for one in parities.get(node.name, Parity()).differences]
        words += [seen.summary for seen in (by_themselves or {}).get(node.name, [])]
        if words:
            differing.append(NodeDifferences(instance_id=node.instance_id, node_name=node.name, differences=words))
    pools = {node.name: node.pool_name() for node in nodes}
    undecided = dict.fromkeys(f"{pools[name]}: {line}" for name, parity in parities.items() for line in parity.undecided)
    return ParityReport(differing=differing[:TOLD], count=len(differing), undecided=list(undecided)[:TOLD])


def _of_configuration(seen: Sequence[Seen]) -> list[Seen]:
    """Keep the findings about configuration; what the comparison says by itself is not said twice."""
    return [one for one in seen if FINDING_CLASSES.get(one.check) == "configuration" and one.check != PARITY]


def _token(cluster: str, parities: Mapping[str, Parity], by_themselves: Mapping[str, Sequence[Seen]]) -> str:
    """The same differences on the same day have the same token; how many peers agree, or a number that moves, does not matter."""
    told = [(name, one.fact, one.here, one.there) for name, parity in parities.items() for one in parity.differences]
    told += [(name, one.check, one.verdict.value, "") for name, findings in by_themselves.items() for one in findings]
    digest = hashlib.sha256(repr(sorted(told)).encode()).hexdigest()[:12]
    return f"parity/{cluster}/{datetime.now(UTC):%Y-%m-%d}/{digest}"


def _said(parity: Parity, job: str) -> str:
    whose = f"other nodes of {job}" if job else "other nodes of its pool"
    parts = [f"compared with {parity.peers} {whose}" if parity.peers else f"not compared, none of the {whose} is known"]
    parts += [f"not decided: {line}" for line in parity.undecided]
    parts += [f"not known: {line}" for line in parity.unread]
    return f"configuration: {'; '.join(parts)}"
