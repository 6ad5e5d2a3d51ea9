"""The clients of one process, each imported and built when first asked for, so that a command opens only what it uses."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from temporalio.client import Client

from activities.capacity import CapacityClient
from activities.ec2 import Ec2Client
from activities.errors import CapabilityMissing
from activities.event_queue import EventQueue
from activities.evidence_store import EvidenceStore
from activities.host_memory import HostMemory
from activities.incidents import WorkflowGateway
from activities.inventory import Inventory
from activities.kubernetes import KubernetesApi
from activities.node_access import AccessTo, NodeAccess
from activities.notify import Notifier
from activities.permissions import Permissions, QueueLook
from workers.connection import TemporalAway
from workers.credentials import credentials_of
from workers.settings import Settings

if TYPE_CHECKING:
    from boto3.session import Session

    from activities.clients.host_key_trust import HostKeyTrust
    from activities.clients.hyperpod_boto3 import HyperPodBoto3
    from activities.kubernetes_nodes import KubernetesNodes
    from activities.settings import AwsSettings


class Clients:
    """AWS, nodes, Kubernetes, host memory, people. `client` may be absent where nothing speaks to Temporal."""

    def __init__(self, settings: Settings, client: Client | None = None, role: str = "") -> None:
        """`role` is the worker role whose AWS credentials are used; empty: those of the process."""
        self._settings = settings
        self._client = client
        self._role = role
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
        """Nodes over SSH; connections are kept open over calls."""
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

    def _access_to_alias(self, alias: str) -> NodeAccess:
        return self.access_to(self.inventory.resolve(self._settings.name, alias))

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


def aws_session(settings: AwsSettings, role: str) -> Session:
    """Return the AWS session of a worker role, or the process's own."""
    from activities.clients.aws_session import session_of

    return session_of(settings, role)
