"""What a cluster has of job systems, healers and owners: which of each the settings choose, over the process's clients."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from activities.all_healers import AllHealers, KindOfHealers
from activities.auto_scaling import AutoScalingHealers
from activities.burn_in import BurnInLauncher
from activities.draining import Drainer, NoDrainer
from activities.eks_repair import EksRepairHealers
from activities.errors import CapabilityMissing
from activities.giving_up import NoReplacer, Replacer
from activities.group_slots import GroupSlots, NodeGroupSlots
from activities.healers import Healers
from activities.hyperpod import HyperPodHealers, HyperPodReplacer
from activities.jobs.command import CommandJobAdapter
from activities.jobs.none import NoJobAdapter
from activities.jobs.protocol import JobAdapter
from activities.karpenter import KarpenterHealers
from activities.karpenter_claims import KarpenterClaims
from activities.kubernetes_healers import NodeObjects
from activities.nvsentinel import NvSentinelHealers
from activities.owned_nodes import OwnedNodes
from activities.owner_slots import OwnerSlotActivities, SlotOwner
from activities.owners import Owner
from activities.provisioning import ProvisioningActivities
from activities.quarantine import HeadFileMarks, LauncherMarks
from activities.stood_back import StoodBack
from workers.clients import Clients
from workers.credentials import credentials_of

if TYPE_CHECKING:
    from activities.slurm import Slurm


class Systems(Clients):
    """The job system, its launcher of group runs and its marks; who else heals nodes; who owns them."""

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
    def slurm(self) -> Slurm:
        """Slurm on the head node, where it starts the jobs."""
        from activities.slurm import Slurm

        head = self._settings.job.head
        return Slurm(lambda: self._access_to_alias(head), self.inventory, self._settings.slurm, self._settings.name)

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
        """What gives slots back to the owners of nodes."""
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
    def _drainer(self) -> Drainer:
        """What moves pods off a node."""
        if self.kubernetes is None:
            return NoDrainer()
        from activities.kubernetes_drain import KubernetesDrainer

        return KubernetesDrainer(self.kubernetes, self.kubernetes_nodes, self._settings.kubernetes)
