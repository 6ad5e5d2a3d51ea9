"""Builds the real clients and the activity classes from the settings: the one place that knows both.

Clients are imported and built when first asked for, so that a command loads and opens only what it uses.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.client import Client

from activities import names
from activities.active_tests import ActiveTestGate
from activities.all_healers import AllHealers, KindOfHealers
from activities.auto_scaling import AutoScalingHealers
from activities.briefing import BriefingActivities
from activities.burn_in import BurnInActivities, BurnInLauncher
from activities.capacity import CapacityActivities, CapacityClient
from activities.draining import DrainActivities, Drainer, NoDrainer
from activities.ec2 import Ec2Activities, Ec2Client
from activities.eks_repair import EksRepairHealers
from activities.errors import CapabilityMissing
from activities.event_queue import EventQueue
from activities.evidence import EvidenceActivities, EvidenceCollector
from activities.evidence_asides import EvidenceSources
from activities.evidence_store import EvidenceStore
from activities.giving_up import GivingUpActivities, NoReplacer, Replacer
from activities.group_slots import GroupSlots, NodeGroupSlots
from activities.healers import HealerActivities, Healers
from activities.host_memory import HostMemory, HostMemoryActivities
from activities.hyperpod import HyperPodHealers, HyperPodReplacer
from activities.incidents import IncidentActivities, WorkflowGateway
from activities.inventory import Inventory, InventoryActivities, Node
from activities.jobs.activities import JobActivities
from activities.jobs.command import CommandJobAdapter
from activities.jobs.none import NoJobAdapter
from activities.jobs.protocol import JobAdapter
from activities.karpenter import KarpenterHealers
from activities.karpenter_claims import KarpenterClaims
from activities.kubernetes import KubernetesApi
from activities.kubernetes_healers import NodeObjects
from activities.learned_bandwidth import BandwidthActivities, LearnedFloors
from activities.node import NodeActivities
from activities.node_access import AccessTo, NodeAccess
from activities.notify import Notifier, NotifyActivities
from activities.nvsentinel import NvSentinelHealers
from activities.owned_nodes import OwnedNodes
from activities.owner_slots import OwnerSlotActivities, SlotOwner
from activities.owners import Owner
from activities.parity import FleetParity, ParityActivities
from activities.permissions import Permissions, QueueLook
from activities.probing import ChecksArchive, PastLog, Probe
from activities.provisioning import ProvisioningActivities
from activities.quarantine import HeadFileMarks, LauncherMarks, QuarantineActivities, QuarantineMarks
from activities.reconcile import ReconcileActivities
from activities.spare_records import SpareActivities, records_of
from activities.spare_work import CommandSpareWork, SpareWorkActivities
from activities.stood_back import StoodBack
from checks.archive import build_archive
from workers.connection import TemporalAway
from workers.settings import Settings
from workflows.decide import DecideActivities
from workflows.decisions.settings import Mode, PolicySettings

if TYPE_CHECKING:
    from boto3.session import Session

    from activities.clients.host_key_trust import HostKeyTrust
    from activities.clients.hyperpod_boto3 import HyperPodBoto3
    from activities.kubernetes_nodes import KubernetesNodes
    from activities.settings import AwsSettings
    from activities.slurm import Slurm

Activity = Callable[..., Any]

ROLE_OF_QUEUE = {
    names.QUEUE_WORKFLOWS: "control",
    names.QUEUE_AWS: "aws",
    names.QUEUE_K8S: "k8s",
    names.QUEUE_SSH: "ssh",
    names.QUEUE_SSH_SLOW: "ssh",
    names.QUEUE_NOTIFY: "notify",
}
"""The worker role that serves each task queue."""


class Wiring:
    """Clients and activities of one process. `client` may be absent where nothing speaks to Temporal."""

    def __init__(self, settings: Settings, client: Client | None = None, role: str = "") -> None:
        """`role` is the worker role whose AWS credentials are used; empty: those of the process."""
        self._settings = settings
        self._client = client
        self._role = role
        self._by_credentials: dict[str, Wiring] = {}
        self._closing = ExitStack()

    def close(self) -> None:
        """Close what was opened."""
        self._closing.close()

    @cached_property
    def ec2(self) -> Ec2Client:
        """EC2 of the configured region, or HyperPod in its place."""
        if self.hyperpod is not None:
            return self.hyperpod
        from activities.clients.ec2_boto3 import Ec2Boto3

        return Ec2Boto3(self._settings.aws, credentials_of(self._settings, self._role))

    @cached_property
    def hyperpod(self) -> HyperPodBoto3 | None:
        """SageMaker HyperPod, where the nodes are its instances."""
        if self._settings.aws.provider != "hyperpod":
            return None
        from activities.clients.hyperpod_boto3 import HyperPodBoto3

        return HyperPodBoto3(self._settings.aws, credentials_of(self._settings, self._role))

    @cached_property
    def capacity(self) -> CapacityClient:
        """The Capacity Reservations that instances run in."""
        from activities.clients.capacity_boto3 import CapacityBoto3

        return CapacityBoto3(self._settings.aws, credentials_of(self._settings, self._role))

    @cached_property
    def healers(self) -> Healers:
        """Who else repairs nodes: Auto Scaling groups, and those of Kubernetes where there is one."""
        from activities.clients.asg_boto3 import AsgBoto3

        settings, role, record = self._settings, credentials_of(self._settings, self._role), StoodBack(self.ec2)
        groups = AutoScalingHealers(AsgBoto3(settings.aws, role), self.ec2)
        nodes = NodeObjects(self.kubernetes) if self.kubernetes is not None else None
        hyperpod: list[KindOfHealers] = [HyperPodHealers(self.hyperpod, nodes)] if self.hyperpod is not None else []
        if self.kubernetes is None or nodes is None:
            return AllHealers(hyperpod or [groups], record)
        from activities.clients.eks_boto3 import EksBoto3

        cluster = settings.kubernetes.eks_cluster
        eks = EksBoto3(settings.aws, role)
        may_pause = settings.healers.pause_node_group_repair
        kinds: list[KindOfHealers] = [
            OwnedNodes(nodes, hyperpod_by_label=not hyperpod),
            *hyperpod,
            NvSentinelHealers(self.kubernetes, nodes, record),
            KarpenterHealers(self.kubernetes, nodes, record, settings.healers),
            EksRepairHealers(eks, self.ec2, nodes, cluster, may_pause=may_pause),
            groups,
        ]
        return AllHealers(kinds, record)

    @cached_property
    def inventory(self) -> Inventory:
        """Where nodes are looked up: by tag, or the list in the settings file."""
        settings = self._settings.inventory
        if settings.source == "list":
            from activities.clients.list_inventory import ListInventory

            return ListInventory(self.ec2, self._settings.name, settings.nodes, settings.cache_s)
        from activities.clients.tag_inventory import TagInventory

        return TagInventory(self.ec2, self._settings.name, settings.cache_s)

    @cached_property
    def memory(self) -> HostMemory:
        """Host memory: a file, or a DynamoDB table that all workers share."""
        if self._settings.store.memory == "dynamodb":
            from activities.clients.dynamo_memory import DynamoMemory

            role = credentials_of(self._settings, self._role)
            return DynamoMemory(self._settings.aws, self._settings.store, role)
        from activities.clients.sqlite_memory import SqliteMemory

        return SqliteMemory(self._settings.store.host_memory)

    def event_queue(self, url: str) -> EventQueue:
        """The queue in which AWS tells about instances."""
        from activities.clients.sqs_boto3 import SqsBoto3

        return SqsBoto3(self._settings.aws, url, credentials_of(self._settings, self._role))

    def queue_look(self, url: str) -> QueueLook:
        """That queue seen from outside, as `doctor` looks at it, with the credentials of who runs it."""
        from activities.clients.permissions_boto3 import QueueLookBoto3

        return QueueLookBoto3(self._settings.aws, url)

    def permissions(self, credentials: str) -> Permissions:
        """What an entry of aws.roles may do, or the process itself where that is empty."""
        from activities.clients.permissions_boto3 import PermissionsBoto3

        return PermissionsBoto3(self._settings.aws, credentials)

    @cached_property
    def notifier(self) -> Notifier:
        """Where pages go."""
        from activities.clients.webhook_notifier import WebhookNotifier

        return WebhookNotifier(self._settings.notify)

    @cached_property
    def gateway(self) -> WorkflowGateway:
        """The way to start and join workflows. Raises TemporalAway where the process has no connection."""
        from activities.clients.temporal_gateway import TemporalGateway

        if self._client is None:
            raise TemporalAway("this needs Temporal, and no server answers; see: hotspare doctor")
        return TemporalGateway(self._client)

    @cached_property
    def access_to(self) -> AccessTo:
        """Gives the access to a node: SSH, Jobs of Kubernetes, or Run Command; a head node is always reached over SSH."""
        if self._settings.access.kind == "ssh":
            return self._ssh_access_to
        if self._settings.access.kind == "ssm":
            from activities.clients.run_command_boto3 import RunCommandBoto3
            from activities.clients.ssm_access import SsmAccessTo

            settings, role = self._settings, credentials_of(self._settings, self._role)
            client = RunCommandBoto3(settings.aws, settings.access.ssm, role)
            return SsmAccessTo(client, settings.access, lambda: self._ssh_access_to)
        from activities.clients.agent_access import AgentAccessTo

        if self.kubernetes is None:
            raise CapabilityMissing('access.kind = "agent" needs Kubernetes, and kubernetes.source is "none"')
        return AgentAccessTo(self.kubernetes, self._settings.access, self._settings.kubernetes, lambda: self._ssh_access_to)

    @cached_property
    def _ssh_access_to(self) -> AccessTo:
        """Connections are kept open over calls."""
        from activities.clients.ssh_paramiko import SshAccessTo

        access = SshAccessTo(self._settings.access, self.host_keys)
        self._closing.callback(access.close)
        return access

    @cached_property
    def host_keys(self) -> HostKeyTrust:
        """What knows the host keys of instances, from AWS."""
        from activities.clients.host_key_trust import HostKeyTrust

        def read_console(instance_id: str, now: bool) -> str:
            return self.ec2.console_output(instance_id, latest=now)

        return HostKeyTrust(self._settings.access.ssh_config, read_console)

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
    def evidence_stores(self) -> tuple[EvidenceStore, EvidenceStore]:
        """Where bundles are kept, and the folder that takes those that are not taken there."""
        from activities.clients.evidence_store_folder import FolderEvidenceStore

        folder = FolderEvidenceStore(self._settings.store.evidence_dir)
        if not self._settings.evidence.bucket:
            return folder, folder
        from activities.clients.evidence_store_s3 import S3EvidenceStore

        role = credentials_of(self._settings, self._role)
        return S3EvidenceStore(self._settings.aws, self._settings.evidence, role), folder

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

    @property
    def jobs(self) -> JobAdapter:
        """The job system."""
        return self._job_adapter

    @cached_property
    def _job_adapter(self) -> JobAdapter:
        if self._settings.job.adapter == "none":
            return NoJobAdapter()
        if self._settings.job.adapter == "slurm":
            from activities.jobs.slurm import SlurmJobs

            return SlurmJobs(self.slurm, self._settings.job, self._settings.slurm)
        if self._settings.job.adapter == "kubernetes":
            return self._kubernetes_jobs
        return CommandJobAdapter(lambda: self._access_to_alias(self._settings.job.head), self._settings.job)

    @property
    def _kubernetes_jobs(self) -> JobAdapter:
        from activities.jobs.kubernetes import KubernetesJobs
        from activities.jobs.progress import ProgressCommand

        settings, nodes = self._settings, self.kubernetes_nodes
        assert self.kubernetes is not None  # the nodes would have been refused
        progress = ProgressCommand(lambda: self._access_to_alias(settings.job.head), settings.job)
        return KubernetesJobs(self.kubernetes, nodes, self.inventory, progress, settings.kubernetes, settings.job)

    @cached_property
    def _launcher(self) -> BurnInLauncher:
        settings = self._settings
        kind = settings.burn_in.launcher
        if kind == "auto":
            kind = "kubernetes" if settings.access.kind == "agent" else "srun" if settings.job.adapter == "slurm" else "mpirun"
        if kind in ("kubernetes", "mpijob"):
            return self._kube_launcher(kind)
        host = settings.burn_in.launch_host or settings.job.head
        if kind == "srun":
            return self._srun_launcher(host)
        if kind == "torchrun":
            from activities.clients.torchrun_launcher import TorchrunLauncher

            return TorchrunLauncher(self.access_to, settings.burn_in)
        from activities.clients.mpirun_launcher import MpirunLauncher

        return MpirunLauncher(lambda: self._access_to_alias(host), settings.burn_in)

    def _srun_launcher(self, host: str) -> BurnInLauncher:
        from activities.clients.srun_launcher import SrunLauncher
        from activities.slurm_marks import SlurmMarks

        if self._settings.job.adapter != "slurm":
            raise CapabilityMissing('burn_in.launcher = "srun" needs Slurm, and job.adapter is not "slurm"')
        marks = SlurmMarks(self.slurm, self._settings.slurm)
        return SrunLauncher(lambda: self._access_to_alias(host), self.slurm, marks, self._settings.burn_in)

    def _kube_launcher(self, kind: str) -> BurnInLauncher:
        """Group runs as pods; they need no SSH to the nodes, and no head node."""
        from activities.clients.agent_access import AgentAccessTo
        from activities.clients.kube_launcher import KubeLauncher
        from activities.clients.mpijob_launcher import MpiJobLauncher

        if self.kubernetes is None:
            raise CapabilityMissing(f'burn_in.launcher = "{kind}" needs Kubernetes, and kubernetes.source is "none"')
        settings = self._settings
        access_to = AgentAccessTo(self.kubernetes, settings.access, settings.kubernetes, lambda: self._ssh_access_to)
        launcher = KubeLauncher if kind == "kubernetes" else MpiJobLauncher
        return launcher(self.kubernetes, access_to, settings.access, settings.kubernetes, settings.burn_in)

    @cached_property
    def _launcher_marks(self) -> LauncherMarks | None:
        """What keeps the job launcher off a node."""
        settings = self._settings
        if settings.kubernetes.source != "none":
            from activities.kubernetes_marks import KubernetesMarks

            return KubernetesMarks(self.kubernetes_nodes, self.inventory, settings.kubernetes.gpu_resource)
        if not settings.job.head:
            return None
        if settings.job.adapter == "slurm":
            from activities.slurm_marks import SlurmMarks

            return SlurmMarks(self.slurm, settings.slurm)
        return HeadFileMarks(settings.job.head, self.access_to, self.inventory, settings.access.sudo)

    @property
    def _owner_slots(self) -> OwnerSlotActivities:
        """What gives slots back to those who keep the number of nodes."""
        from activities.clients.asg_boto3 import AsgBoto3
        from activities.clients.eks_boto3 import EksBoto3

        aws, role = self._settings.aws, credentials_of(self._settings, self._role)
        groups = GroupSlots(AsgBoto3(aws, role))
        node_groups = NodeGroupSlots(groups, EksBoto3(aws, role), self._settings.kubernetes.eks_cluster)
        owners: dict[Owner, SlotOwner] = {Owner.GROUP: groups, Owner.NODE_GROUP: node_groups}
        if self.kubernetes is not None:
            owners[Owner.KARPENTER] = KarpenterClaims(self.kubernetes)
        return OwnerSlotActivities(owners, self.ec2, self.memory, self._settings.effects)

    @property
    def _provisioning(self) -> ProvisioningActivities:
        from activities.clients.provision_boto3 import ProvisionBoto3

        settings, role = self._settings, credentials_of(self._settings, self._role)
        client = ProvisionBoto3(settings.aws, role)
        return ProvisioningActivities(client, self.ec2, self.memory, settings.provision, settings.effects)

    @property
    def _replacer(self) -> Replacer:
        """Whoever replaces nodes that are given up: HyperPod, clustermgtd of ParallelCluster, else nobody."""
        if self.hyperpod is not None:
            return HyperPodReplacer(self.hyperpod, self.ec2)
        marks = self._launcher_marks
        if self._settings.job.adapter != "slurm" or self._settings.slurm.flavour != "parallelcluster" or marks is None:
            return NoReplacer()
        from activities.slurm_marks import SlurmMarks

        return marks if isinstance(marks, SlurmMarks) else NoReplacer()

    @cached_property
    def slurm(self) -> Slurm:
        """Slurm on the head node, where it starts the jobs."""
        from activities.slurm import Slurm

        head = self._settings.job.head
        return Slurm(lambda: self._access_to_alias(head), self.inventory, self._settings.slurm, self._settings.name)

    @cached_property
    def kubernetes(self) -> KubernetesApi | None:
        """The cluster's Kubernetes, None where it has none. It is reached with the first request."""
        settings = self._settings.kubernetes
        if settings.source == "none":
            return None
        try:
            from activities.clients.kubernetes_connection import connect
        except ModuleNotFoundError as error:
            raise CapabilityMissing(f"kubernetes.source needs {error.name}: pip install 'hotspare[kubernetes]'") from error

        role = credentials_of(self._settings, self._role)
        client = connect(settings, self._settings.aws, lambda: aws_session(self._settings.aws, role))
        self._closing.callback(client.close)
        return client

    @cached_property
    def kubernetes_nodes(self) -> KubernetesNodes:
        """Which Kubernetes Node each instance is. Raises CapabilityMissing where there is no Kubernetes."""
        from activities.kubernetes_nodes import KubernetesNodes

        if self.kubernetes is None:
            raise CapabilityMissing('this needs Kubernetes, and kubernetes.source is "none"')
        return KubernetesNodes(self.kubernetes)

    @cached_property
    def _drainer(self) -> Drainer:
        """What moves pods off a node."""
        if self.kubernetes is None:
            return NoDrainer()
        from activities.kubernetes_drain import KubernetesDrainer

        return KubernetesDrainer(self.kubernetes, self.kubernetes_nodes, self._settings.kubernetes)

    def _access_to_alias(self, alias: str) -> NodeAccess:
        return self.access_to(self.inventory.resolve(self._settings.name, alias))

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
        head = CommandSpareWork(lambda: self._access_to_alias(settings.job.head), settings.preemptible)
        spare_work = SpareWorkActivities(head, self.gate, settings.preemptible)
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


def aws_session(settings: AwsSettings, role: str) -> Session:
    """Return the AWS session of a worker role, or the process's own."""
    from activities.clients.aws_session import session_of

    return session_of(settings, role)


def credentials_in_use(settings: Settings) -> list[str]:
    """Every entry of aws.roles that a process or command of this cluster uses, and empty for the process's own."""
    return sorted({credentials_of(settings, role) for role in ("", *ROLE_OF_QUEUE.values(), "watcher", "intake")})


def credentials_of(settings: Settings, role: str) -> str:
    """Return the entry of aws.roles that a role uses, empty for the process's own credentials.

    While nothing may be done to nodes, all use those of `observe` where there are any: what cannot write is not asked to behave.
    """
    if "observe" in settings.aws.roles and observes(settings.policy):
        return "observe"
    return role if role in settings.aws.roles else ""


def observes(policy: PolicySettings) -> bool:
    """Whether no rung of any fault class may disrupt a node of any pool."""
    modes = policy.model_dump(mode="json", include={"mode", "mode_by_rung", "mode_by_class", "pools"})
    return not set(_words(modes)) & {Mode.APPROVE.value, Mode.ACT.value}


def _words(data: Any) -> Iterator[str]:
    """Every text in a table of tables."""
    for value in data.values():
        if isinstance(value, dict):
            yield from _words(value)
        elif isinstance(value, str):
            yield value


def activity_methods(holder: object) -> list[Activity]:
    """The activities of an activity class's instance."""
    methods = inspect.getmembers(holder, inspect.ismethod)
    return [method for _, method in methods if hasattr(method, "__temporal_activity_definition")]
