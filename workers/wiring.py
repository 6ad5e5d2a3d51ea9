"""Builds the real clients and the activity classes from the settings: the one place that knows both.

Clients are built when first asked for, so that a command opens only what it uses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from temporalio.client import Client

from activities import names
from activities.briefing import BriefingActivities
from activities.burn_in import BurnInActivities, BurnInLauncher
from activities.clients.ec2_boto3 import Ec2Boto3
from activities.clients.list_inventory import ListInventory
from activities.clients.mpirun_launcher import MpirunLauncher
from activities.clients.sqlite_memory import SqliteMemory
from activities.clients.ssh_paramiko import SshAccess
from activities.clients.tag_inventory import TagInventory
from activities.clients.temporal_gateway import TemporalGateway
from activities.clients.webhook_notifier import WebhookNotifier
from activities.ec2 import Ec2Activities, Ec2Client
from activities.host_memory import HostMemory, HostMemoryActivities
from activities.incidents import IncidentActivities, WorkflowGateway
from activities.inventory import Inventory, InventoryActivities, Node
from activities.jobs.activities import JobActivities
from activities.jobs.command import CommandJobAdapter
from activities.jobs.protocol import JobAdapter
from activities.node import NodeActivities
from activities.node_access import NodeAccess
from activities.notify import Notifier, NotifyActivities
from activities.probing import ChecksArchive, Probe
from activities.quarantine import QuarantineActivities, QuarantineMarks
from checks.archive import build_archive
from workers.settings import Settings
from workflows.decide import DecideActivities

Activity = Callable[..., Any]


class Wiring:
    """Clients and activities of one process. `client` may be absent where nothing speaks to Temporal."""

    def __init__(self, settings: Settings, client: Client | None = None) -> None:
        self._settings = settings
        self._client = client

    def close(self) -> None:
        """Close what was opened."""
