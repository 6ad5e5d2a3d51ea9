"""Builds the activity classes from the settings, over the clients and systems that they choose: the one place that knows all."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from temporalio.client import Client

from activities import names
from activities.active_tests import ActiveTestGate
from activities.briefing import BriefingActivities
from activities.burn_in import BurnInActivities
from activities.capacity import CapacityActivities
from activities.draining import DrainActivities
from activities.ec2 import Ec2Activities
from activities.evidence import EvidenceActivities, EvidenceCollector
from activities.evidence_asides import EvidenceSources
from activities.giving_up import GivingUpActivities
from activities.healers import HealerActivities
from activities.host_memory import HostMemoryActivities
from activities.incidents import IncidentActivities
from activities.inventory import InventoryActivities, Node
from activities.jobs.activities import JobActivities
from activities.learned_bandwidth import BandwidthActivities, LearnedFloors
from activities.node import NodeActivities
from activities.notify import NotifyActivities
from activities.parity import FleetParity, ParityActivities
from activities.probing import ChecksArchive, PastLog, Probe
from activities.quarantine import QuarantineActivities, QuarantineMarks
from activities.reconcile import ReconcileActivities
from activities.spare_records import SpareActivities, records_of
from activities.spare_work import CommandSpareWork, SpareWorkActivities
from checks.archive import build_archive
from workers.credentials import ROLE_OF_QUEUE, credentials_of
from workers.settings import Settings
from workers.systems import Systems
from workflows.decide import DecideActivities

Activity = Callable[..., Any]


class Wiring(Systems):
    """Clients and activities of one process. `client` may be absent where nothing speaks to Temporal."""

    def __init__(self, settings: Settings, client: Client | None = None, role: str = "") -> None:
        """`role` is the worker role whose AWS credentials are used; empty: those of the process."""
        super().__init__(settings, client, role)
        self._by_credentials: dict[str, Wiring] = {}

    @cached_property
    def node_activities(self) -> NodeActivities:
        """Looking at nodes; `doctor` uses it without a workflow."""
        settings = self._settings
        return NodeActivities(
            self.access_to,
            self._probe,
            self.gate,
            settings.access,
            settings.burn_in,
            self.memory,
            parity=self.parity,
        )

    @cached_property
    def evidence(self) -> EvidenceCollector:
        """What gathers evidence bundles; `hotspare evidence` uses it without a workflow."""
        settings, head = self._settings, self._settings.job.head
        sources = EvidenceSources(
            self.access_to,
            self._probe,
            self.memory,
            self.ec2,
            self._job_adapter,
            (lambda: self._access_to_alias(head)) if head else None,
        )
        store, refuge = self.evidence_stores
        return EvidenceCollector(sources, store, refuge, settings.access, settings.evidence, settings.store)

    @cached_property
    def parity(self) -> FleetParity:
        """What is known of how the nodes are set up; `status` shows who differs."""
        return FleetParity(self.memory, self.inventory, self._job_adapter, self.access_to, self._probe, self._settings.parity)

    def past_log(self, node: Node, since: datetime) -> PastLog:
        """What a node's log says of the time since then."""
        return self._probe.past(self.access_to(node), since)

    @cached_property
    def _probe(self) -> Probe:
        checks = self._settings.checks
        return Probe(self._archive, self._settings.access, checks.thresholds, checks.overrides)

    @cached_property
    def gate(self) -> ActiveTestGate:
        """What the load tests ask before they start a run."""
        return ActiveTestGate(self.access_to, self._probe, self._job_adapter, self.inventory, self.ec2)

    @cached_property
    def _archive(self) -> ChecksArchive:
        """The checks as they travel to nodes, written to a scratch folder of this process."""
        archive = build_archive()
        folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="hotspare-checks-"))
        file = Path(folder) / "checks.tar.gz"
        file.write_bytes(archive.content)
        return ChecksArchive(file, archive.digest)

    def activities(self, *, attributes: bool) -> dict[str, list[Activity]]:
        """Every activity by the task queue that serves it. `attributes` says whether workflows may write search attributes.

        Those of a role that has credentials of its own are built over clients of their own.
        """
        built = {wiring: wiring._activities(attributes) for wiring in map(self._as, ROLE_OF_QUEUE.values())}
        return {queue: built[self._as(role)][queue] for queue, role in ROLE_OF_QUEUE.items()}

    def _as(self, role: str) -> Wiring:
        """Return the wiring of a worker role: this one, where the role has the same credentials."""
        credentials = credentials_of(self._settings, role)
        if credentials == credentials_of(self._settings, self._role):
            return self
        if credentials not in self._by_credentials:
            self._by_credentials[credentials] = wiring = Wiring(self._settings, self._client, role)
            self._closing.callback(wiring.close)
        return self._by_credentials[credentials]

    def _activities(self, attributes: bool) -> dict[str, list[Activity]]:
        settings = self._settings
        marks = QuarantineMarks(self.ec2, self._launcher_marks)
        decide = DecideActivities(
            settings.policy,
            settings.limits,
            settings.name,
            attributes=attributes,
            sweep=settings.sweep,
            spares=settings.spares,
            spares_work=bool(settings.preemptible.evict),
            isolation=settings.isolation,
            ui_url=settings.temporal.ui_url,
        )
        ec2 = Ec2Activities(self.ec2, self.access_to, self.memory, settings.effects)
        jobs = JobActivities(self._job_adapter, self.inventory, marks, settings.job)
        look_ups: list[object] = [InventoryActivities(self.inventory, lambda nodes: records_of(self.memory, nodes))]
        look_ups += [HostMemoryActivities(self.memory), SpareActivities(self.memory), BandwidthActivities(self.memory)]
        drains, replacer = self.kubernetes is not None, self._replacer
        look_ups.append(BriefingActivities(self.inventory, self.memory, self.healers, drains, replacer))
        look_ups.append(HealerActivities(self.healers))
        look_ups.append(CapacityActivities(self.ec2, self.capacity, self.memory, settings.effects))
        look_ups.append(self._provisioning)
        look_ups.append(self._owner_slots)
        look_ups.append(ParityActivities(self.parity, self.inventory, self.memory))
        evict = CommandSpareWork(lambda: self._access_to_alias(settings.job.head), settings.preemptible)
        spare_work = SpareWorkActivities(evict, self.gate, settings.preemptible)
        reconcile = ReconcileActivities(self.ec2, self.inventory, marks, self.memory, self._job_adapter)
        giving_up = GivingUpActivities(replacer, self.ec2, settings.effects)
        learned = LearnedFloors(self.memory, settings.burn_in.learned)
        burn_in = BurnInActivities(self._launcher, self.gate, settings.burn_in, learned=learned)
        holders: dict[str, list[object]] = {
            names.QUEUE_WORKFLOWS: [decide, IncidentActivities(self.gateway)],
            names.QUEUE_AWS: [*look_ups, ec2, self.node_activities, giving_up],
            names.QUEUE_K8S: [DrainActivities(self._drainer)],
            names.QUEUE_SSH: [self.node_activities, QuarantineActivities(marks), jobs, reconcile, giving_up],
            names.QUEUE_SSH_SLOW: [self.node_activities, EvidenceActivities(self.evidence), ec2, jobs, burn_in, spare_work],
            names.QUEUE_NOTIFY: [NotifyActivities(self.notifier)],
        }
        return {queue: [method for holder in held for method in activity_methods(holder)] for queue, held in holders.items()}


def make_memory_table(settings: Settings) -> str:
    """Make the DynamoDB table of host memory with the process's own credentials, and return its name."""
    from activities.clients.dynamo_client import create_memory_table

    return create_memory_table(settings.aws, settings.store, credentials_of(settings, ""))


def activity_methods(holder: object) -> list[Activity]:
    """The activities of an activity class's instance."""
    methods = inspect.getmembers(holder, inspect.ismethod)
    return [method for _, method in methods if hasattr(method, "__temporal_activity_definition")]
